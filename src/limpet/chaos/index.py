"""A history, arranged for judging: who issued which tick and when, what is calm, which calls are repeats."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from limpet.chaos.history import Call, Fault, History, Target

__all__ = ["Identity", "Index", "Issue", "Trail", "Windows", "identity"]

Identity = tuple[object, ...]


class Windows:
    """When data could be lost. A call that lies wholly between two such windows is *calm*, and has the number of its gap."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(spans):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def gap(self, start: int, end: int) -> int | None:
        """The number of the gap that holds all of it; None if it touches a window."""
        after = bisect_left(self._ends, start)
        return after if bisect_right(self._starts, end) == after else None


@dataclass(slots=True)
class Issue:
    """A tick that a call said it made. It was made between the start of the call's first try and the end of this answer."""

    tick: int
    what: Literal["epoch", "fence"]
    identity: Identity
    call: Call
    start_us: int
    end_us: int


@dataclass(slots=True)
class Trail:
    """All about one record."""

    target: Target
    calls: list[Call] = field(default_factory=list)
    issues: dict[tuple[Identity, int], Issue] = field(default_factory=dict)
    forgotten: bool = False


class Index:
    """What the rules read."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.lossy = Windows(_span(fault) for fault in history.faults if fault.lossy)
        self.clocks = Windows(_span(fault) for fault in history.faults if fault.clock)
        self.trails: dict[Target, Trail] = {}
        self._first: dict[Identity, Call] = {}
        self._gaps: dict[int, int | None] = {}
        for call in sorted(history.calls, key=lambda each: each.start_us):
            self._first.setdefault(identity(call), call)
            target = call.target
            if target is not None:
                self._file(self.trails.setdefault(target, Trail(target)), call)
        self.stalls: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for stall in history.stalls:
            self.stalls[stall.process].append((stall.start_us, stall.end_us))

    def _file(self, trail: Trail, call: Call) -> None:
        trail.calls.append(call)
        trail.forgotten = trail.forgotten or call.op == "forget"
        answer = call.accepted
        if answer is None:
            return
        epoch, fence = made(call)
        who = identity(call)
        for tick, what in ((epoch, "epoch"), (fence, "fence")):
            if tick is not None:
                known = trail.issues.get((who, tick))
                if known is None:
                    kind: Literal["epoch", "fence"] = "epoch" if what == "epoch" else "fence"
                    trail.issues[who, tick] = Issue(tick, kind, who, call, self._first[who].start_us, call.end_us)
                else:
                    known.end_us = min(known.end_us, call.end_us)

    def retry(self, call: Call) -> bool:
        """A repeat of an earlier call, which may be told that one's result."""
        return self._first[identity(call)] is not call

    def gap(self, call: Call) -> int | None:
        """The calm gap of a call, or None. A repeat counts from its first try."""
        known = self._gaps.get(id(call), -1)
        if known == -1:
            known = self._gaps[id(call)] = self.lossy.gap(self._first[identity(call)].start_us, call.end_us)
        return known

    def covers(self, earlier: Call, later: Call) -> bool:
        """Whether what ``earlier`` was told must still stand for ``later``: nothing could be lost in between, or it was durable;
        and ``later`` was not answered by a primary that may have been deposed."""
        gap = self.gap(later)
        if gap is None and not later.durable:
            return False
        return earlier.durable or (gap is not None and self.gap(earlier) == gap)


def identity(call: Call) -> Identity:
    """Equal for a call and its repeats: one request id means one result."""
    if call.request_id is None:
        return (call.client, call.seq)
    return (call.op, call.target, call.request_id)


def made(call: Call) -> tuple[int | None, int | None]:
    """The epoch and the fence that the answer says this call made."""
    answer = call.accepted
    epoch = fence = None
    if answer is not None and call.op == "resolve":
        epoch = answer.epoch if answer.created or answer.reset is not None else None
        fence = answer.fence if answer.action == "bind" else None
    elif answer is not None and call.op == "advance":
        epoch = answer.epoch if answer.applied else None
    elif answer is not None and call.op == "rebind":
        fence = answer.fence
    return epoch, fence


def _span(fault: Fault) -> tuple[int, int]:
    return fault.start_us, fault.healed_us
