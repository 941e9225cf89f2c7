"""What ``limpet workers`` and ``limpet drain`` ask the service, and how they are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import msgspec

from limpet.cli.http import Service
from limpet.cli.problem import ServiceProblem
from limpet.cli.render import console, print_json
from limpet.clock import SystemClock
from limpet.settings import Settings
from limpet.validate import check_text

__all__ = ["Drain", "WorkerList", "drain", "service", "undrain", "workers"]

POLL_S: Final = 0.3
UNBOUNDED: Final = 10_000
"""Columns: a line of the table is one line of the output, however narrow the terminal is."""
STYLES: Final = {"live": "green", "draining": "yellow", "gone": "red", "damaged": "bold red"}


class Drain(msgspec.Struct, frozen=True):
    """The progress of a drain, as the service tells it."""

    worker: str
    running: bool
    moved: int
    left: int
    done: float
    may_stop: bool
    passes: int = 0
    problem: str | None = None


class _Worker(msgspec.Struct, frozen=True):
    worker: str
    pool: str
    address: str
    capacity: float
    incarnation: str
    ttl_ms: int
    state: str
    heartbeat_age_ms: int
    bindings: int
    drain: Drain | None = None


class WorkerList(msgspec.Struct, frozen=True):
    """The answer of ``GET /v1/workers``."""

    workers: list[_Worker]
    unregistered: int
    unnamed: int


def service(url: str | None, namespace: str | None) -> Service:
    """The service of the settings. Raises InvalidRequest."""
    settings = Settings.load(url=url, namespace=namespace)
    # The header is sent only if somebody chose a namespace: a token has its own, and naming another one is refused.
    chosen = settings.namespace if "namespace" in settings.model_fields_set else None
    return Service(settings.url, settings.secret("token"), chosen, settings.url_ca, settings.url_cert)


def workers(*, url: str | None, namespace: str | None, as_json: bool) -> int:
    """The registered workers and what is bound to them."""
    found, answer = service(url, namespace).get("/v1/workers", WorkerList)
    if as_json:
        print_json(msgspec.Raw(answer))
        return 0
    from rich.table import Table
    from rich.text import Text

    out = console()
    if not found.workers:
        out.print("No workers are registered. A worker registers itself with PUT /v1/workers/{id}.")
    else:
        table = Table(box=None, pad_edge=False, header_style="dim")
        # An upstream's name is its URL: shown once, and never broken, so that it can be copied into `limpet drain`.
        elsewhere = any(each.address != each.worker for each in found.workers)
        for name in ("worker", "pool", "state", "bindings", "capacity", "heartbeat", *(("address",) if elsewhere else ())):
            table.add_column(name, justify="right" if name in ("bindings", "capacity", "heartbeat") else "left", no_wrap=True)
        for each in found.workers:
            state = Text(each.state, STYLES.get(each.state, ""))
            if each.drain is not None:
                state.append(", may stop" if each.drain.may_stop else f", {each.drain.moved} moved", "dim")
            beat = f"{each.heartbeat_age_ms / 1000:.0f} s ago" if each.ttl_ms else "static"
            row: list[str | Text] = [each.worker, each.pool, state, str(each.bindings), f"{each.capacity:g}", beat]
            if elsewhere:
                row.append(each.address if each.address != each.worker else "")
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
        wide = out.measure(table, options=out.options.update(width=UNBOUNDED)).maximum
        console(max(out.width, wide)).print(table)
    for count, words in (
        (found.unregistered, "to workers that are not registered: nothing moves them but their own next turns"),
        (found.unnamed, "claimed, with no worker named yet"),
    ):
        if count:
            out.print(f"{count:,} live {'binding' if count == 1 else 'bindings'} {words}", style="dim", soft_wrap=True)
    return 0


def undrain(worker: str, *, url: str | None, namespace: str | None, as_json: bool) -> int:
    """The worker may be proposed again."""
    path = f"/v1/workers/{quote(check_text(worker, 'WORKER'), safe='')}/undrain"
    _, answer = service(url, namespace).post(path, {}, dict)
    if as_json:
        print_json(msgspec.Raw(answer))
    else:
        console().print(f"{worker} takes new conversations again.", markup=False)
    return 0


def drain(worker: str, *, wait: bool, timeout_s: float, url: str | None, namespace: str | None, as_json: bool) -> int:
    """Starts or continues a drain and follows it. Exit code 0 once the worker may stop, 1 if it may not within the time."""
    asked = service(url, namespace)
    path = f"/v1/workers/{quote(check_text(worker, 'WORKER'), safe='')}/drain"
    last, answer = asked.post(path, {}, Drain)
    if not wait:
        if as_json:
            print_json(msgspec.Raw(answer))
        else:
            console().print(f"{worker} is draining; follow it with `limpet drain {worker}` or `limpet watch`.", markup=False)
        return 0
    if as_json:
        last = _follow(asked, path, last, timeout_s, lambda _: None)
        print_json(last)
        return 0 if last.may_stop else 1
    return _show(asked, worker, path, last, timeout_s)


def _show(asked: Service, worker: str, path: str, last: Drain, timeout_s: float) -> int:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    out = console()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"))
    with Progress(*columns, console=out, transient=True) as bar:
        from rich.markup import escape

        task = bar.add_task(escape(worker), total=1.0, words="")

        def show(drain: Drain) -> None:
            bar.update(task, completed=drain.done, words=f"{drain.moved} moved, {drain.left} in flight")

        last = _follow(asked, path, last, timeout_s, show)
    if last.may_stop:
        out.print(f"{worker} may stop: {_moved(last.moved)}, none left.", markup=False)
        return 0
    why = f" ({last.problem})" if last.problem else ""
    out.print(
        f"{worker} may not stop yet{why}: {_moved(last.moved)}, {last.left} claims in flight. Run this again to go on.",
        markup=False,
    )
    return 1


def _follow(asked: Service, path: str, last: Drain, timeout_s: float, show: Callable[[Drain], None]) -> Drain:
    from threading import Event

    clock, pause = SystemClock(), Event()
    until = clock.monotonic() + timeout_s
    quiet = 0
    while not last.may_stop and clock.monotonic() < until:
        show(last)
        pause.wait(POLL_S)
        last, _ = asked.get(path, Drain)
        # Another process of the service may run it, and tells ours within a moment; one that stopped is started again.
        quiet = 0 if last.running or last.may_stop else quiet + 1
        if quiet >= 10:
            if last.problem == "not_draining":
                raise ServiceProblem("Somebody undrained the worker meanwhile; nothing more is moved.", problem_code="undrained")
            last, _ = asked.post(path, {}, Drain)
            quiet = 0
    show(last)
    return last


def _moved(count: int) -> str:
    return "1 binding moved" if count == 1 else f"{count:,} bindings moved"
