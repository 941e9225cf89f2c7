"""What the checker says."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from limpet.chaos.history import Call, Target

__all__ = ["RULES", "Findings", "Verdict", "Violation"]

RULES: Final = {
    "issued-twice": "G3: no (key, epoch) for two conversations, no fence for two claims",
    "not-larger": "G3: what is issued later is larger",
    "from-nowhere": "G2, G6: every epoch and fence was issued by a call that may do so",
    "replaced-twice": "G1: one epoch is replaced once",
    "went-back": "G1: what was read of a record is not older than what was read before",
    "client-back": "section 4: a client that remembers an epoch is never given an older one",
    "undone": "section 4: what was answered durable: true stays",
    "two-claimers": "G4: bind is told to one of two live claimers",
    "bound-twice": "G4: an epoch that is bound is not told bind",
    "stale-accepted": "G5: an old fence changes nothing",
    "rebound-twice": "G5: a rebind is a compare-and-set on its fence",
    "not-compared": "section 5: an advance with expected_epoch is a compare-and-set",
    "retry-differs": "section 5: a retry returns the first result",
    "scope": "section 2: a scope is that of its key and epoch, or of its session id",
    "degraded": "G7: a degraded answer has the physical scope and nothing else",
    "fork": "G6: forks have their own physical scope",
    "late": "G7: every call ends within its deadline",
    "error": "no call fails in a way of its own",
}
MAX_EACH: Final = 20


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One proof that a guarantee did not hold. ``calls`` are the few that prove it."""

    rule: str
    target: str
    message: str
    calls: tuple[Call, ...]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """``violations`` holds at most 20 of each rule, ``totals`` counts them all. ``excused`` counts what only a fault explains:
    allowed by G4's qualification, and told to the caller by ``durable``."""

    violations: tuple[Violation, ...]
    totals: dict[str, int]
    excused: dict[str, int]

    @property
    def sound(self) -> bool:
        """Nothing was violated."""
        return not self.totals


class Findings:
    """Collects what the rules find."""

    def __init__(self) -> None:
        self._violations: list[Violation] = []
        self._totals: Counter[str] = Counter()
        self._excused: Counter[str] = Counter()

    def found(self, rule: str, target: Target | None, message: str, *calls: Call) -> None:
        """A violation of one of RULES."""
        assert rule in RULES
        self._totals[rule] += 1
        if self._totals[rule] <= MAX_EACH:
            name = "" if target is None else f"{target[0]}:{target[1]}"
            self._violations.append(Violation(rule=rule, target=name, message=message, calls=calls))

    def excuse(self, what: str) -> None:
        """Something that a fault allows."""
        self._excused[what] += 1

    def verdict(self) -> Verdict:
        """All of it."""
        return Verdict(violations=tuple(self._violations), totals=dict(self._totals), excused=dict(self._excused))
