"""The figures of a run: what was done, what went wrong meanwhile, and how long it was felt."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Final

import msgspec

from limpet.chaos.history import Call, Fault, History
from limpet.chaos.verdict import Verdict

__all__ = ["FaultFigures", "Report", "make_report"]

SETTLE_US: Final = 1_500_000
"""How long before a fault, and after its end, counts as its surroundings."""


class FaultFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the faults of one name did. ``away_ms``: the longest time without one good answer, from the fault's start until it was
    healed, for the worst of them and in the middle. p99 of good turns before, during and after, in milliseconds."""

    name: str
    times: int
    away_ms_worst: float
    away_ms_median: float
    degraded: int
    undurable: int
    p99_before_ms: float | None
    p99_during_ms: float | None
    p99_after_ms: float | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A run. ``operations`` by operation and outcome; ``undurable`` are decisions answered ``durable: false``, ``unasked`` those
    for which nobody was asked (no replicas)."""

    seed: int
    namespace: str
    topology: str
    seconds: float
    calls: int
    operations: dict[str, dict[str, int]]
    decisions: int
    durable: int
    undurable: int
    unasked: int
    degraded: int
    unavailable: int
    rollbacks: int
    resets: dict[str, int]
    binds: int
    stale_fences: int
    faults: tuple[FaultFigures, ...]
    verdict: Verdict


def make_report(history: History, verdict: Verdict) -> Report:
    """Counts."""
    calls = history.calls
    operations: dict[str, Counter[str]] = {}
    for call in calls:
        name = "degraded" if call.answer is not None and call.answer.degraded else call.outcome
        operations.setdefault(call.op, Counter())[name] += 1
    resets = Counter(c.answer.reset for c in calls if c.answer is not None and c.answer.reset is not None)
    decided = [c for c in calls if c.accepted is not None and _decides(c)]
    note = history.notes[0] if history.notes else None
    return Report(
        seed=note.seed if note else 0,
        namespace=note.namespace if note else "",
        topology=note.topology if note else "",
        seconds=(max(c.end_us for c in calls) - min(c.start_us for c in calls)) / 1e6 if calls else 0.0,
        calls=len(calls),
        operations={op: dict(counts) for op, counts in sorted(operations.items())},
        decisions=len(decided),
        durable=sum(c.durable for c in decided),
        undurable=sum(_undurable(c) for c in decided),
        unasked=sum(c.answer is not None and c.answer.durable is None for c in decided),
        degraded=sum(c.answer is not None and c.answer.degraded for c in calls),
        unavailable=sum(c.outcome == "store_unavailable" for c in calls),
        rollbacks=resets["rollback"],
        resets=dict(resets),
        binds=sum(c.answer is not None and c.answer.action == "bind" and c.op == "resolve" for c in calls),
        stale_fences=sum(c.outcome == "stale_fence" for c in calls),
        faults=tuple(_figures(name, history) for name in dict.fromkeys(fault.name for fault in history.faults)),
        verdict=verdict,
    )


def _decides(call: Call) -> bool:
    answer = call.accepted
    if answer is None:
        return False
    if call.op == "resolve":
        return answer.created or answer.reset is not None or answer.action == "bind"
    return call.op in ("advance", "confirm", "rebind")


def _undurable(call: Call) -> bool:
    return call.answer is not None and call.answer.durable is False


def _good(call: Call) -> bool:
    return call.known is not None


def _figures(name: str, history: History) -> FaultFigures:
    faults = [fault for fault in history.faults if fault.name == name]
    away = sorted(_away_ms(fault, history) for fault in faults)
    within = [c for c in history.calls if any(f.start_us <= c.end_us and c.start_us <= f.healed_us for f in faults)]
    before = [c for c in history.calls if any(f.start_us - SETTLE_US <= c.start_us and c.end_us < f.start_us for f in faults)]
    after = [c for c in history.calls if any(f.healed_us <= c.start_us <= f.healed_us + SETTLE_US for f in faults)]
    return FaultFigures(
        name=name,
        times=len(faults),
        away_ms_worst=away[-1],
        away_ms_median=away[len(away) // 2],
        degraded=sum(c.answer is not None and c.answer.degraded for c in within),
        undurable=sum(_undurable(c) for c in within),
        p99_before_ms=_p99(before),
        p99_during_ms=_p99(within),
        p99_after_ms=_p99(after),
    )


def _away_ms(fault: Fault, history: History) -> float:
    """The longest stretch in the fault without a good answer of the store."""
    ends = sorted(c.end_us for c in history.calls if _good(c) and fault.start_us <= c.end_us <= fault.healed_us)
    marks = [fault.start_us, *ends, fault.healed_us]
    return max(later - earlier for earlier, later in pairwise(marks)) / 1000


def _p99(calls: list[Call]) -> float | None:
    """Of all calls that waited for nobody, also the failed ones."""
    times = sorted((c.end_us - c.start_us) / 1000 for c in calls if not c.wait_ms)
    return times[min(len(times) - 1, int(len(times) * 0.99))] if times else None
