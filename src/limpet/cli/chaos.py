"""``limpet chaos``: random clients against a store, then the checker's verdict."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from limpet.chaos.history import Fault
from limpet.chaos.report import Report
from limpet.chaos.run import Options, run, sweep
from limpet.chaos.store import Action, StoreTormentor
from limpet.chaos.verdict import RULES
from limpet.cli.render import console, print_json
from limpet.errors import InvalidRequest, StoreUnavailable
from limpet.settings import Settings

__all__ = ["chaos"]


def chaos(
    *,
    minutes: float,
    processes: int,
    callers: int,
    seed: int | None,
    keep: Path | None,
    actions: tuple[Action, ...],
    as_json: bool,
) -> int:
    """Runs it against the settings' store, or a throw-away one of its own. 1 if a guarantee did not hold.

    ``keep``: where the recorded history stays. ``actions``: what may be done to the store meanwhile; nothing by default.
    """
    settings = Settings.load()
    options = Options(
        seconds=minutes * 60,
        processes=processes,
        callers=callers,
        seed=secrets.randbelow(2**31) if seed is None else seed,
        deadline_ms=settings.deadline_ms,
    )
    with contextlib.ExitStack() as stack:
        if keep is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="limpet-chaos-")))
        else:
            keep.mkdir(parents=True, exist_ok=True)
            if any(keep.glob("*.jsonl")):
                raise InvalidRequest(
                    f"{keep} holds the history of another run, which would be judged with this one; name another."
                )
            folder = keep
        url, what = stack.enter_context(_store(settings))
        nemesis = StoreTormentor(url, actions)
        if as_json:
            report = asyncio.run(_run(url, folder, options, what, nemesis, None, None))
            print_json(report)
            return outcome(report)
        out = console()
        out.print(Text(f"{what}, seed {options.seed}", "dim"))
        with _bar(out, minutes) as (progress, faulted):
            report = asyncio.run(_run(url, folder, options, what, nemesis, progress, faulted))
    show(out, report)
    return outcome(report)


def outcome(report: Report) -> int:
    """The exit code: 0 if something was tried and nothing violated."""
    if not report.calls:
        typer.echo(
            "limpet: No call was made in that time, so nothing is proven; run it longer (--minutes), or on a less busy machine.",
            err=True,
        )
        return 1
    return 0 if report.verdict.sound else 1


async def _run(
    url: str,
    folder: Path,
    options: Options,
    what: str,
    nemesis: StoreTormentor,
    progress: Callable[[float], None] | None,
    faulted: Callable[[Fault], None] | None,
) -> Report:
    history, report = await run(url, folder, options, topology=what, nemesis=nemesis, progress=progress, faulted=faulted)
    with contextlib.suppress(StoreUnavailable):  # what is left expires by itself, but for a few small keys
        await sweep(url, history)
    return report


@contextlib.contextmanager
def _store(settings: Settings) -> Iterator[tuple[str, str]]:
    url = settings.secret("redis_url")
    if url is not None:
        yield url, "your store (LIMPET_REDIS_URL), in a namespace that goes afterwards"
        return
    from limpet.embedded import EmbeddedStore

    with EmbeddedStore.acquire(ephemeral=True) as store:
        yield store.url, "a throw-away Valkey of its own"


@contextlib.contextmanager
def _bar(out: Console, minutes: float) -> Iterator[tuple[Callable[[float], None], Callable[[Fault], None]]]:
    columns = (TextColumn("{task.description}"), BarColumn(None), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn())
    with Progress(*columns, console=out, transient=True, expand=True, disable=not out.is_terminal) as bar:
        task = bar.add_task(f"random turns for {minutes:g} minutes", total=1.0)

        def faulted(fault: Fault) -> None:
            out.print(Text(f"  {fault.name} {fault.node}".rstrip(), "yellow"))

        yield (lambda part: bar.update(task, completed=part)), faulted


def show(out: Console, report: Report) -> None:
    """The tables at the end."""
    table = Table(box=box.SIMPLE_HEAD, title_justify="left", title=f"{report.calls} calls in {report.seconds:.0f} s")
    for name in ("operation", "answered", "stale fence", "degraded", "unavailable", "other"):
        table.add_column(name, justify="left" if name == "operation" else "right")
    for op, counts in report.operations.items():
        named = [counts.get(name, 0) for name in ("ok", "stale_fence", "degraded", "store_unavailable")]
        table.add_row(op, *map(str, named), str(sum(counts.values()) - sum(named)))
    out.print(table)
    out.print(
        f"  {report.decisions} decisions: {report.durable} durable, {report.undurable} not, {report.unasked} unasked\n"
        f"  told to bind {report.binds}, rollbacks healed {report.rollbacks}, resets {sum(report.resets.values())}"
    )
    if report.faults:
        out.print(_faults(report))
    for what, times in report.verdict.excused.items():
        out.print(Text(f"  {what}: {times} (allowed: none of it had been answered durable: true)", "dim"))
    if report.verdict.sound:
        out.print(Text(f"  No violation of any of {len(RULES)} rules.", "green"))
        return
    for rule, times in report.verdict.totals.items():
        out.print(Text(f"  {rule}: {times}  ({RULES[rule]})", "bold red"))
        for violation in [each for each in report.verdict.violations if each.rule == rule][:3]:
            out.print(Text(f"    {violation.target}: {violation.message}"), soft_wrap=True)
    out.print(f"  Repeat with --seed {report.seed}; --keep DIR keeps the whole history, --json prints the calls that prove it.")


def _faults(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    heads = ("fault", "times", "away, worst", "median", "degraded", "p99 before", "during", "after")
    for name in heads:
        table.add_column(name, justify="left" if name == "fault" else "right")
    for fault in report.faults:
        p99s = (fault.p99_before_ms, fault.p99_during_ms, fault.p99_after_ms)
        table.add_row(
            fault.name,
            str(fault.times),
            f"{fault.away_ms_worst:.0f} ms",
            f"{fault.away_ms_median:.0f} ms",
            str(fault.degraded),
            *("-" if value is None else f"{value:.1f} ms" for value in p99s),
        )
    return table
