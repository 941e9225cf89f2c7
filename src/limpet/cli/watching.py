"""Reading Server-Sent Events with the standard library, and printing them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from limpet.cli.fleet import service
from limpet.cli.http import Service
from limpet.cli.problem import ServiceProblem
from limpet.cli.render import console

__all__ = ["watch"]

SILENCE_S: Final = 40.0
"""The service breaks a silence every 15 s; after this long the connection is dead."""
MAX_PAUSE_S: Final = 15.0
STYLES: Final = {
    "advance": "yellow", "suspend": "yellow", "forget": "yellow", "bind": "green", "rebind": "magenta", "release": "dim",
    "worker": "blue", "drain": "blue", "reset": "red",
}  # fmt: skip


class _Event(msgspec.Struct, frozen=True):
    kind: str
    at_ms: int | None = None
    digest: str | None = None
    epoch: int | None = None
    fence: int | None = None
    worker: str | None = None
    reason: str | None = None
    moved: int | None = None
    left: int | None = None
    done: float | None = None
    may_stop: bool | None = None


def watch(*, kinds: tuple[str, ...], count: int | None, url: str | None, namespace: str | None, as_json: bool) -> int:
    """Until interrupted, or ``count`` events have been told."""
    for number, raw in enumerate(_forever(service(url, namespace), kinds), 1):
        if as_json:
            sys.stdout.write(raw.decode() + "\n")
            sys.stdout.flush()
        else:
            _print(msgspec.json.decode(raw, type=_Event))
        if number == count:
            break
    return 0


def _print(event: _Event) -> None:
    from rich.text import Text

    at = "" if event.at_ms is None else datetime.fromtimestamp(event.at_ms / 1000).strftime("%H:%M:%S.%f")[:-3]
    line = Text.assemble((f"{at:12}  ", "dim"), (f"{event.kind:8}", STYLES.get(event.kind, "")))
    line.append(f"  {(event.digest or '')[:8]:8}", "dim")
    words = [event.worker, event.reason and event.reason.replace("_", " ")]
    if event.kind == "drain":
        state = "may stop" if event.may_stop else f"{event.done or 0:.0%} of this pass"
        words += [f"{event.moved} moved", f"{event.left} in flight", state]
    line.append("  " + ", ".join(word for word in words if word))
    if event.epoch is not None:
        line.append(f"  epoch {event.epoch}", "dim")
    if event.kind == "reset":
        line.append("  some events may have been missed", "red")
    console().print(line, soft_wrap=True)


def _forever(asked: Service, kinds: tuple[str, ...]) -> Iterator[bytes]:
    """Events, over any number of connections. Raises ServiceProblem when the first one fails, or one is refused."""
    last_id, pause_s, met = "", 0.5, False
    while True:
        try:
            for name, data in asked.events("/v1/events" + (f"?kind={','.join(kinds)}" if kinds else ""), last_id, SILENCE_S):
                met, pause_s = True, 0.5
                last_id = name or last_id
                if data:
                    yield data
        except ServiceProblem as problem:
            if not met or (problem.http_status is not None and problem.http_status < 500):
                raise
        sys.stderr.write("limpet: the connection broke; trying again\n")
        threading.Event().wait(pause_s)
        pause_s = min(pause_s * 2, MAX_PAUSE_S)
