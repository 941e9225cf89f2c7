"""Rules about what is told of a record over time: nothing goes back (G1, G5, and what ``durable`` promises)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from limpet.chaos.history import Answer, Call
from limpet.chaos.index import Index, Trail
from limpet.chaos.verdict import Findings

__all__ = ["clients_never_go_back", "ended_stays_ended", "nothing_goes_back", "nothing_vanishes"]

_BINDING = frozenset({"confirm", "abort", "release", "renew", "rebind"})
Tick = Callable[[Call], int | None]


class _Best:
    """The largest tick told so far, per calm gap and among the durable answers."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._durable: tuple[int, Call] | None = None
        self._calm: dict[int, tuple[int, Call]] = {}
        self._any: tuple[int, Call] | None = None

    def told(self, tick: int, call: Call) -> None:
        if call.durable and (self._durable is None or tick > self._durable[0]):
            self._durable = (tick, call)
        gap = self._index.gap(call)
        if gap is not None and (gap not in self._calm or tick > self._calm[gap][0]):
            self._calm[gap] = (tick, call)
        if self._any is None or tick > self._any[0]:
            self._any = (tick, call)

    def binding_on(self, call: Call) -> list[tuple[int, Call]]:
        """What must still stand for this call."""
        gap = self._index.gap(call)
        calm = None if gap is None else self._calm.get(gap)
        found = [self._durable if gap is not None or call.durable else None, calm]
        return [each for each in found if each is not None]

    def above(self, tick: int) -> bool:
        """Whether anything larger was told, be it excused or not."""
        return self._any is not None and self._any[0] > tick


def _sweep(trail: Trail, told: Tick, index: Index) -> Iterator[tuple[Call, _Best]]:
    """Every call in the order of starts, with what had been told when it began."""
    ended = sorted(trail.calls, key=lambda call: call.end_us)
    best, position = _Best(index), 0
    for call in sorted(trail.calls, key=lambda each: each.start_us):
        while position < len(ended) and ended[position].end_us < call.start_us:
            tick = told(ended[position])
            if tick is not None:
                best.told(tick, ended[position])
            position += 1
        yield call, best


def _epoch(call: Call) -> int | None:
    return None if call.known is None else call.known.epoch


def _fence(call: Call) -> int | None:
    return None if call.known is None else call.known.fence


def _tick(call: Call) -> int | None:
    return max((tick for tick in (_epoch(call), _fence(call)) if tick is not None), default=None)


def nothing_goes_back(index: Index, trail: Trail, findings: Findings) -> None:
    """G1 and G5: who asks later is not told an older epoch or fence, and no binding call is carried out with a fence older
    than what was told of the record. Repeats are told old results rightly."""
    tracks: tuple[tuple[str, Tick, Tick], ...] = (
        ("epoch", _epoch, _epoch),
        ("fence", _fence, _fence),
        ("fence", _tick, _accepted_fence),
    )
    for what, told, asked in tracks:
        for call, best in _sweep(trail, told, index):
            tick = asked(call)
            if tick is None or index.retry(call):
                continue
            against = [(top, teller) for top, teller in best.binding_on(call) if top > tick]
            if asked is _accepted_fence:
                for top, teller in against[:1]:
                    text = f"{call.op} with fence {tick} was carried out after {top} had been told"
                    findings.found("stale-accepted", trail.target, text, teller, call)
            elif against and not (what == "fence" and call.op in _BINDING and call.outcome != "stale_fence"):
                top, teller = against[0]
                text = f"{what} {tick} was told after {top} had been"
                findings.found("undone" if teller.durable else "went-back", trail.target, text, teller, call)
            elif not against and best.above(tick):
                findings.excuse(f"{what}s lost or read from a deposed primary")


def _accepted_fence(call: Call) -> int | None:
    return call.fence if call.op in _BINDING and call.accepted is not None else None


def clients_never_go_back(index: Index, trail: Trail, findings: Findings) -> None:
    """Section 4, whatever was lost: a turn is never given an epoch below one that its client was given before, or that its caller
    says it has seen; nor is an advance."""
    if trail.forgotten:
        return
    tops: dict[str, tuple[int, Call]] = {}
    ended = sorted((c for c in trail.calls if c.op in ("resolve", "advance")), key=lambda call: call.end_us)
    position = 0
    for call in trail.calls:
        while position < len(ended) and ended[position].end_us < call.start_us:
            before, epoch = ended[position], _epoch(ended[position])
            if epoch is not None and epoch > tops.get(before.client, (0, before))[0]:
                tops[before.client] = (epoch, before)
            position += 1
        answer = call.accepted
        if call.op not in ("resolve", "advance") or answer is None or answer.epoch is None or index.retry(call):
            continue
        stated = call.seen_epoch if call.op == "resolve" else call.expected_epoch
        if stated is not None and answer.epoch < stated:
            text = f"epoch {answer.epoch} was given to a caller that had seen {stated}"
            findings.found("client-back", trail.target, text, call)
        top, teller = tops.get(call.client, (0, call))
        if call.op == "resolve" and answer.epoch < top:
            text = f"epoch {answer.epoch} was given to a client that had been given {top}"
            findings.found("client-back", trail.target, text, teller, call)


def nothing_vanishes(index: Index, trail: Trail, findings: Findings) -> None:
    """A record that was told of is still there, unless somebody may have forgotten it."""
    if trail.forgotten or trail.target[0] == "sess":
        return
    for call, best in _sweep(trail, _epoch, index):
        gone = call.accepted is not None and not index.retry(call) and _says_gone(call, call.accepted)
        if not gone:
            continue
        against = best.binding_on(call)
        if against:
            top, teller = against[0]
            text = f"there is no record, after epoch {top} had been told"
            findings.found("undone" if teller.durable else "went-back", trail.target, text, teller, call)
        elif best.above(0):
            findings.excuse("records lost")


def _says_gone(call: Call, answer: Answer) -> bool:
    if call.op == "peek":
        return answer.epoch is None
    return call.op == "resolve" and answer.created and answer.reset is None


def ended_stays_ended(index: Index, trail: Trail, findings: Findings) -> None:
    """G5: what was aborted, released or rebound cannot be confirmed, renewed or rebound with that fence any more."""
    ends: dict[int, list[Call]] = {}
    for call in trail.calls:
        if call.op in ("abort", "release", "rebind") and call.accepted is not None and call.fence is not None:
            ends.setdefault(call.fence, []).append(call)
    for call in trail.calls:
        if call.op not in ("confirm", "renew", "rebind") or call.accepted is None or call.fence is None or index.retry(call):
            continue
        for end in ends.get(call.fence, ()):
            if end.end_us < call.start_us and index.covers(end, call):
                text = f"{call.op} with fence {call.fence} was carried out after its {end.op}"
                findings.found("stale-accepted", trail.target, text, end, call)
                break
