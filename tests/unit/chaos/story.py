"""Writes histories by hand: a call a millisecond, one after another, unless a test says otherwise."""

from __future__ import annotations

import itertools
from typing import Any

from limpet import scope as scopes
from limpet.chaos.checker import check
from limpet.chaos.history import Answer, Call, Fault, History, Op, Stall
from limpet.chaos.verdict import Verdict

MS = 1000


class Story:
    """Adds calls; ``at`` sets start and end in milliseconds where the order matters."""

    def __init__(self) -> None:
        self.history = History()
        self.now = 1000
        self._count = itertools.count()

    def wait(self, ms: int) -> Story:
        self.now += ms
        return self

    def call(
        self, op: Op, answer: Answer | None, *, at: tuple[int, int] | None = None, client: str = "a", **details: Any
    ) -> Call:
        start, end = at or (self.now, self.now + 1)
        self.now = max(self.now, end) + 1
        made = Call(
            client=client,
            process=details.pop("process", "p"),
            seq=next(self._count),
            op=op,
            start_us=start * MS,
            end_us=end * MS,
            allowed_ms=details.pop("allowed_ms", 250 + details.get("wait_ms", 0)),
            answer=answer,
            **details,
        )
        self.history.add(made)
        return made

    def turn(self, epoch: int, *, key: str = "k", told: dict[str, Any] | None = None, **details: Any) -> Call:
        """A declared turn. ``told``: more of its answer."""
        scope = scopes.declared(key, epoch)
        answer = Answer(**{"epoch": epoch, "scope": scope, "source": "declared", **(told or {})})
        return self.call("resolve", answer, key=key, session_id="s", **details)

    def first(self, epoch: int, **details: Any) -> Call:
        """The turn that made the record."""
        return self.turn(epoch, told={"created": True, "ordinal": 1, **details.pop("told", {})}, **details)

    def claim(self, epoch: int, fence: int, *, ttl: int = 1000, told: dict[str, Any] | None = None, **details: Any) -> Call:
        """A turn that was told to bind."""
        more = {"action": "bind", "state": "claimed", "fence": fence, **(told or {})}
        return self.turn(epoch, told=more, **{"bind": True, "claim_ttl_ms": ttl, "ttl_ms": 2000, **details})

    def degraded(self, *, key: str = "k", told: dict[str, Any] | None = None, **details: Any) -> Call:
        scope = scopes.physical("s")
        answer = Answer(**{"scope": scope, "source": "physical", "degraded": True, **(told or {})})
        return self.call("resolve", answer, key=key, session_id="s", **details)

    def advance(
        self, epoch: int, previous: int | None, *, key: str = "k", told: dict[str, Any] | None = None, **details: Any
    ) -> Call:
        scope = scopes.declared(key, epoch)
        answer = Answer(**{"epoch": epoch, "scope": scope, "previous_epoch": previous, "applied": True, **(told or {})})
        return self.call("advance", answer, key=key, **details)

    def peek(self, epoch: int | None, *, key: str = "k", told: dict[str, Any] | None = None, **details: Any) -> Call:
        scope = None if epoch is None else scopes.declared(key, epoch)
        return self.call("peek", Answer(**{"epoch": epoch, "scope": scope, **(told or {})}), key=key, **details)

    def binding(self, op: Op, fence: int, state: str = "bound", *, now: int | None = None, **details: Any) -> Call:
        """A binding call that was carried out; ``now``: the fence that holds then, if another."""
        told = Answer(state=state, fence=fence if now is None else now, durable=details.pop("durable", None))
        return self.call(op, told, fence=fence, **{"key": "k", "ttl_ms": 2000, **details})

    def stale(self, op: Op, fence: int, holds: int | None, **details: Any) -> Call:
        told = None if holds is None else Answer(state="claimed", fence=holds)
        return self.call(op, told, fence=fence, outcome="stale_fence", **{"key": "k", "ttl_ms": 2000, **details})

    def lost(self, op: Op, **details: Any) -> Call:
        """A call that nobody knows the fate of."""
        return self.call(op, None, outcome="store_unavailable", **{"key": "k", **details})

    def fork(self, *, session: str = "fork", told: dict[str, Any] | None = None, **details: Any) -> Call:
        answer = Answer(**{"scope": scopes.physical(session), "source": "physical", **(told or {})})
        return self.call("resolve", answer, **{"key": "k", "session_id": session, "kind": "fork", **details})

    def fault(self, ms: int = 10, *, lossy: bool = True, clock: bool = False) -> Story:
        """Takes its time, alone."""
        start = self.now
        self.now += ms
        self.history.add(
            Fault(
                name="f", node="n", start_us=start * MS, over_us=self.now * MS, healed_us=self.now * MS, lossy=lossy, clock=clock
            )
        )
        self.now += 1
        return self

    def stall(self, start: int, end: int) -> Story:
        self.history.add(Stall(process="p", start_us=start * MS, end_us=end * MS))
        return self

    @property
    def verdict(self) -> Verdict:
        return check(self.history)

    def found(self) -> set[str]:
        """The rules that were broken."""
        return set(self.verdict.totals)
