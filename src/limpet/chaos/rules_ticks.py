"""Rules about epochs and fences: issued once, upwards, by somebody (G1, G2, G3, G6)."""

from __future__ import annotations

from collections import defaultdict

from limpet.chaos.history import Call, Op
from limpet.chaos.index import Index, Issue, Trail, identity
from limpet.chaos.verdict import Findings

__all__ = [
    "each_from_somebody",
    "issued_once",
    "larger_when_later",
    "one_conversation_per_epoch",
    "replaced_once",
    "retries_agree",
]

RING = 8
_WRITES: frozenset[Op] = frozenset({"resolve", "advance", "suspend", "forget", "confirm", "abort", "release", "renew", "rebind"})


def issued_once(index: Index, trail: Trail, findings: Findings) -> None:
    """G3, whatever was lost: no tick is reported as new by two calls, as an epoch or as a fence."""
    by_tick: dict[int, Issue] = {}
    for issue in trail.issues.values():
        other = by_tick.setdefault(issue.tick, issue)
        if other.identity != issue.identity:
            text = f"{issue.what} {issue.tick} was issued to two calls"
            findings.found("issued-twice", trail.target, text, other.call, issue.call)


def one_conversation_per_epoch(index: Index, trail: Trail, findings: Findings) -> None:
    """G3, whatever was lost: all who were told an epoch were told the same ordinal and reason."""
    seen: dict[tuple[int, str], tuple[object, Call]] = {}
    for call in trail.calls:
        answer = call.accepted
        if answer is None or answer.epoch is None:
            continue
        for name, value in (("ordinal", answer.ordinal), ("reason", answer.reason)):
            if value is None:
                continue
            first, teller = seen.setdefault((answer.epoch, name), (value, call))
            if first != value:
                text = f"epoch {answer.epoch} has {name} {first} and {value}: two conversations share it"
                findings.found("issued-twice", trail.target, text, teller, call)
                break


def larger_when_later(index: Index, trail: Trail, findings: Findings) -> None:
    """G3, whatever was lost: a tick issued by a call that began after another tick had been told is larger than that one."""
    told = sorted(
        (
            (call.end_us, tick, call)
            for call in trail.calls
            if (answer := call.known) is not None
            for tick in (answer.epoch, answer.fence)
            if tick is not None
        ),
        key=lambda each: each[:2],
    )
    top, teller, position = 0, None, 0
    for issue in sorted(trail.issues.values(), key=lambda each: each.start_us):
        while position < len(told) and told[position][0] < issue.start_us:
            _, tick, call = told[position]
            if tick > top:
                top, teller = tick, call
            position += 1
        if teller is not None and issue.tick <= top:
            text = f"{issue.what} {issue.tick} was issued after {top} had been told"
            findings.found("not-larger", trail.target, text, teller, issue.call)


def replaced_once(index: Index, trail: Trail, findings: Findings) -> None:
    """G1: of all who met a due reset exactly one made it, so no two calls replaced the same epoch (or made the first one), unless
    the first replacement was lost."""
    by_previous: dict[int, list[Issue]] = defaultdict(list)
    for issue in trail.issues.values():
        answer = issue.call.accepted
        if issue.what == "epoch" and answer is not None and (answer.previous_epoch or not trail.forgotten):
            by_previous[answer.previous_epoch or 0].append(issue)
    for previous, issues in by_previous.items():
        issues.sort(key=lambda each: each.tick)
        for i, later in enumerate(issues):
            rivals = [each for each in issues[:i] if each.identity != later.identity]
            rival = next((each for each in rivals if index.covers(each.call, later.call)), None)
            if rival is not None:
                text = f"epoch {previous or 'none'} was replaced by {rival.tick} and by {later.tick}"
                findings.found("replaced-twice", trail.target, text, rival.call, later.call)
            elif rivals:
                findings.excuse("replacements lost")


def each_from_somebody(index: Index, trail: Trail, findings: Findings) -> None:
    """G2 and G6: an epoch or fence that no answer reported as new needs a call that may have made it and whose answer is not
    known: never a fork, a renewal, or another record's call. After a loss a call may have made one more than it tells."""
    issued = {issue.tick for issue in trail.issues.values()}
    first_told: dict[int, Call] = {}
    for call in trail.calls:
        if (answer := call.known) is not None:
            for tick in (answer.epoch, answer.previous_epoch, answer.fence):
                stated = tick in (call.expected_epoch, call.seen_epoch)  # what a lost epoch was is told back to its teller
                if tick is not None and tick not in issued and not stated:
                    before = first_told.get(tick)
                    if before is None or call.end_us < before.end_us:
                        first_told[tick] = call
    if not first_told:
        return
    hidden = sorted(
        start
        for call in trail.calls
        if call.op in ("resolve", "advance", "rebind")
        for start in [call.start_us] * (call.unknown + (index.lossy.gap(call.start_us, call.end_us) is None))
    )
    for n, (tick, call) in enumerate(sorted(first_told.items(), key=lambda each: each[1].end_us)):
        if n >= len(hidden) or hidden[n] > call.end_us:
            text = f"{tick} was told, and no call can have issued it"
            findings.found("from-nowhere", trail.target, text, call)
            return


def retries_agree(index: Index, trail: Trail, findings: Findings) -> None:
    """A retried advance returns the first result, as long as the ring of eight can still hold it. (A lost compare-and-set has
    changed nothing, so it has none to return: it tells the current epoch each time.)"""
    tries: dict[object, list[Call]] = defaultdict(list)
    for call in trail.calls:
        if call.op == "advance" and call.request_id is not None:
            tries[identity(call)].append(call)
    for calls in tries.values():
        answered = [call for call in calls if call.accepted and call.accepted.applied and index.gap(call) is not None]
        if len(answered) < 2 or trail.forgotten:
            continue
        first, last = answered[0], answered[-1]
        if index.gap(first) != index.gap(last) or {call.answer.epoch for call in answered if call.answer} == {_epoch(first)}:
            continue
        until = max(call.end_us for call in answered)
        begun = calls[0].start_us
        others = [c for c in trail.calls if c.op in _WRITES and c.start_us <= until and (c.end_us >= begun or c.unknown)]
        if len(others) <= RING:
            differing = next(call for call in answered if _epoch(call) != _epoch(first))
            text = f"one request id was answered with epochs {_epoch(first)} and {_epoch(differing)}"
            findings.found("retry-differs", trail.target, text, first, differing)


def _epoch(call: Call) -> int | None:
    return None if call.answer is None else call.answer.epoch
