"""What ``limpet demo`` shows while it runs, and at the end."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from limpet.demo.count import Side
from limpet.demo.ledger import Handover, Kill
from limpet.demo.plan import Plan
from limpet.demo.run import CLAIM_TTL_MS, GATEWAYS, Report

__all__ = ["Live", "Silent", "show"]

_GLYPHS: Final = {"good": ("✓", "ok", "green"), "bad": ("✗", "x", "red"), "note": ("·", "-", "dim"), "none": ("", "", "")}


class Silent:
    """Shows nothing (``--json``)."""

    def ready(self, pids: Sequence[int]) -> None:
        """Nothing."""

    def progress(self, done: int, total: int, turns: int) -> None:
        """Nothing."""

    def killed(self, kill: Kill) -> None:
        """Nothing."""

    def handed_over(self, handovers: Sequence[Handover]) -> None:
        """Nothing."""


class Live:
    """A line for each thing that happens, above a bar where the output is a terminal."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._bar = Progress(
            SpinnerColumn("line" if _ascii(out) else "dots"),
            TextColumn("{task.description}"),
            BarColumn(None),
            TextColumn("{task.fields[said]}"),
            console=out,
            transient=True,
            expand=True,
            disable=not out.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None, said="")
        self._quarter = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def begin(self, plan: Plan) -> None:
        """What is about to happen."""
        count = len(plan.conversations)
        if plan.source == "generated":
            what = f"{GATEWAYS} gateway processes, one store, {count} users with one conversation each, or two in a row."
        else:
            what = f"{GATEWAYS} gateway processes, one store, {plan.source} in {count} sessions."
        self._out.print(Text.assemble(("Limpet demo", "bold"), f"  {what}"), soft_wrap=not self._out.is_terminal)
        self._out.print()

    def store(self, what: str) -> None:
        """The store is there."""
        self._say("good", what)

    def ready(self, pids: Sequence[int]) -> None:
        """The gateways are up."""
        self._say("good", f"{len(pids)} gateways are up, each a process of its own (pids {', '.join(map(str, pids))})")

    def progress(self, done: int, total: int, turns: int) -> None:
        """The bar moves; without one, a line at each quarter."""
        self._bar.update(self._task, description="talking", total=total, completed=done, said=f"{turns:,} requests")
        quarter = done * 4 // total
        if quarter > self._quarter and not self._out.is_terminal:
            self._say("note", f"{done} of {total} done, {turns:,} requests answered")
        self._quarter = quarter

    def killed(self, kill: Kill) -> None:
        """One gateway less."""
        self._say("bad", f"{kill.gateway} (pid {kill.pid}) killed by SIGKILL while it held {_many(kill.claims, 'claim')}")

    def handed_over(self, handovers: Sequence[Handover]) -> None:
        """The others took over."""
        larger = sum(each.heir_fence is not None and each.heir_fence > (each.fence or 0) for each in handovers)
        refused = sum(each.late_refused for each in handovers)
        seconds = max(each.seconds for each in handovers)
        whole = larger == refused == len(handovers)
        self._say(
            "good" if whole else "bad",
            f"{larger} of {len(handovers)} bound by another gateway within {seconds:.1f} s, each with a larger fence "
            f"(a claim lives {CLAIM_TTL_MS / 1000:g} s); {refused} late confirms of the dead one refused",
        )

    def _say(self, kind: str, text: str) -> None:
        _say(self._out, kind, text)


def show(out: Console, report: Report) -> None:
    """The table and the verdict."""
    counted, turns = report.counted, f"{report.counted.turns:,}"
    resets = f"; {_many(counted.new, '/new', '/new')}, {_many(counted.idle, 'idle reset')}" if counted.new or counted.idle else ""
    _say(out, "good", f"{turns} requests answered in {report.seconds:.1f} s{resets}")
    if counted.left_out:
        _say(out, "note", f"{counted.left_out} keys left out: this machine was slower than their idle policy")
    out.print()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    table.add_column(f"counted over {counted.conversations} conversations", overflow="fold")
    table.add_column("with Limpet", justify="right", style="green" if report.ok else "")
    table.add_column("without", justify="right", style="red")
    number = counted.conversations
    for name, cell in (
        ("binds per conversation", _binds),
        ("split over several workers", _split),
        ("affinity scopes per conversation", _scopes),
    ):
        table.add_row(name, cell(counted.limpet, number), cell(counted.alone, number))
    out.print(Padding(table, (0, 0, 0, 2), expand=False))
    out.print()
    for text in (
        "Without: the same requests at the same gateways, each with a table of its own and scopes made of session ids.",
        "A further worker or scope means a prompt cache that starts cold. /new and an idle reset end a conversation.",
    ):
        _say(out, "none", text, "dim")
    out.print()
    if report.ok:
        _say(out, "good", "Every guarantee held.", "bold green")
        _say(out, "none", "Next: `limpet serve` runs the service; `limpet --help` shows the rest.", "dim")
    for failure in report.failures:
        _say(out, "bad", failure, "bold red")


def _binds(side: Side, number: int) -> str:
    return _mean(side.binds, side.binds_most, number)


def _split(side: Side, number: int) -> str:
    return f"{side.split} of {number}"


def _scopes(side: Side, number: int) -> str:
    return _mean(side.scopes, side.scopes_most, number)


def _mean(total: int, most: int, number: int) -> str:
    """``1`` where it is 1 throughout; else the mean and the most."""
    if total == number and most == 1:
        return "1"
    return f"{total / max(number, 1):.1f} (up to {most})"


def _many(number: int, one: str, more: str | None = None) -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"


def _ascii(out: Console) -> bool:
    return not (out.encoding or "ascii").lower().startswith("utf")


def _say(out: Console, kind: str, text: str, style: str = "") -> None:
    """A mark and a text; on a terminal its further lines are indented, elsewhere it stays one line."""
    glyph, plain, colour = _GLYPHS[kind]
    mark = Text(plain if _ascii(out) else glyph, colour)
    if not out.is_terminal:
        out.print(Text.assemble("  ", mark, "  " if kind == "none" else " ", text), soft_wrap=True)
        return
    row = Table.grid(padding=(0, 1))
    row.add_column(width=2 if _ascii(out) else 1)
    row.add_column(overflow="fold")
    row.add_row(mark, Text(text, style))
    out.print(Padding(row, (0, 0, 0, 2), expand=False))
