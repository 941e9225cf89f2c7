"""Counts the recorded answers and holds them against the guarantees. Nothing here knows what ought to come out but the rules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise

import msgspec

from limpet.demo.ledger import Ledger, Seen
from limpet.demo.protocol import TurnDone

__all__ = ["Side", "Tally", "count", "verdict"]

Group = tuple[str, int]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One column of the table. A group is one conversation: one key between two replacements."""

    binds: int
    binds_most: int
    split: int
    scopes: int
    scopes_most: int


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """``conversations``: how many groups were counted; ``left_out``: keys that were not (see ``Ledger.stalled``)."""

    turns: int
    conversations: int
    left_out: int
    new: int
    idle: int
    degraded: int
    limpet: Side
    alone: Side


def _groups(ledger: Ledger) -> dict[Group, list[Seen]]:
    groups: dict[Group, list[Seen]] = defaultdict(list)
    for seen in ledger.turns:
        if seen.key not in ledger.stalled:
            groups[seen.key, seen.chapter].append(seen)
    return groups


def _served(seens: Iterable[Seen]) -> list[TurnDone]:
    return [seen.answer for seen in seens if not seen.held]


def _side(binds: Sequence[int], workers: Sequence[set[str]], scopes: Sequence[set[str]]) -> Side:
    return Side(
        binds=sum(binds),
        binds_most=max(binds, default=0),
        split=sum(len(each) > 1 for each in workers),
        scopes=sum(len(each) for each in scopes),
        scopes_most=max((len(each) for each in scopes), default=0),
    )


def count(ledger: Ledger) -> Tally:
    """The numbers of the table."""
    groups = _groups(ledger)
    answers = [_served(group) for group in groups.values()]
    return Tally(
        turns=sum(len(group) for group in answers),
        conversations=len(groups),
        left_out=len(ledger.stalled),
        new=sum(each.how == "new" and each.key not in ledger.stalled for each in ledger.replaced),
        idle=sum(each.how == "idle" and each.key not in ledger.stalled for each in ledger.replaced),
        degraded=sum(answer.degraded for group in answers for answer in group),
        limpet=_side(
            [sum(answer.bound for answer in group) for group in answers],
            [{answer.worker for answer in group if answer.worker is not None} for group in answers],
            [{answer.scope for answer in group} for group in answers],
        ),
        alone=_side(
            [sum(answer.alone_picked for answer in group) for group in answers],
            [{answer.alone_worker for answer in group} for group in answers],
            [{answer.alone_scope for answer in group} for group in answers],
        ),
    )


def verdict(ledger: Ledger) -> list[str]:
    """What did not hold: one sentence each, beginning with the guarantee (design, section 3); empty if all did."""
    groups = _groups(ledger)
    kept = {group: _served(seens) for group, seens in groups.items()}
    origins = _origins(ledger)
    found: list[str] = []

    def fail(which: str, what: str, cases: Iterable[Group]) -> None:
        names = sorted({key for key, _ in cases})
        if names:
            found.append(f"{which}: {len(names)} of {len(groups)} conversations {what}, e.g. {names[0][:64]}.")

    if not groups:
        return ["Nothing was answered, so nothing was shown."]
    epochs = {group: {answer.epoch for answer in answers} for group, answers in kept.items()}
    scopes = {group: {answer.scope for answer in answers} for group, answers in kept.items()}
    workers = {group: {answer.worker for answer in answers} for group, answers in kept.items()}
    owners = Counter(scope for each in scopes.values() for scope in each)
    later = [(group, (group[0], group[1] - 1)) for group in kept if (group[0], group[1] - 1) in kept]
    told = {(each.key, each.chapter): each.epoch for each in ledger.replaced if each.epoch is not None}
    fail("G1", "had more than one epoch at a time, or none", (g for g, each in epochs.items() if not _one(each)))
    fail("G1", "had their beginning reported to more or less than one caller", (g for g in kept if origins[g] != 1))
    fail("G1", "went on in another epoch than /new was answered", (g for g in kept if g in told and epochs[g] != {told[g]}))
    fail("G1", "had more than one scope", (g for g, each in scopes.items() if not _one(each)))
    fail("G2", "had the scope of another conversation", (g for g, each in scopes.items() if any(owners[s] > 1 for s in each)))
    fail("G3", "did not go on to a larger epoch", (g for g, before in later if not _above(epochs[g], epochs[before])))
    fail("G3", "were claimed with a fence that did not grow", _fences_back(ledger, groups))
    fail("G4", "were not bound exactly once", (g for g, a in kept.items() if sum(each.bound for each in a) != 1))
    fail("G4", "were sent to more than one worker, or to none", (g for g, each in workers.items() if not _one(each)))
    handed = [(each.key, 0) for each in ledger.handovers]
    fail(
        "G4",
        "were not handed over with a larger fence after the kill",
        (
            g
            for g, each in zip(handed, ledger.handovers, strict=True)
            if each.fence is None or each.heir_fence is None or each.heir_fence <= each.fence
        ),
    )
    fail(
        "G5",
        "let a dead gateway's late confirm pass",
        (g for g, each in zip(handed, ledger.handovers, strict=True) if not each.late_refused),
    )
    fail("G7", "got a degraded answer, although the store was there", (g for g, a in kept.items() if any(e.degraded for e in a)))
    return found


def _one(values: AbstractSet[object]) -> bool:
    return len(values) == 1 and None not in values


def _origins(ledger: Ledger) -> dict[Group, int]:
    """How many callers were told that a conversation began with their call."""
    told: dict[Group, int] = defaultdict(int)
    for each in ledger.replaced:
        told[each.key, each.chapter] += each.epoch is not None
    for seen in ledger.turns:
        told[seen.key, seen.chapter] += seen.answer.created or seen.answer.reset is not None
    return told


def _above(later: set[int | None], earlier: set[int | None]) -> bool:
    return min((each or 0 for each in later), default=0) > max((each or 0 for each in earlier), default=0)


def _fences_back(ledger: Ledger, groups: dict[Group, list[Seen]]) -> list[Group]:
    """Conversations whose claims, in the order of their chapters, do not have growing fences."""
    first = {each.key: each.fence for each in ledger.handovers}
    fences: dict[str, list[int]] = {key: [fence] for key, fence in first.items() if fence is not None}
    for (key, _), seens in sorted(groups.items(), key=lambda item: item[0][1]):
        claims = {seen.answer.fence for seen in seens if seen.answer.fence is not None}
        fences.setdefault(key, []).extend(sorted(claims - {first.get(key)}))
    return [(key, 0) for key, each in fences.items() if any(a >= b for a, b in pairwise(each))]
