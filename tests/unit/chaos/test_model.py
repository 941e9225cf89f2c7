"""Histories drawn from a plain model that keeps every promise: the checker has nothing to say about any of them.

The model is one record that is changed at one instant of each call. Calls overlap as they like, answers get lost, effects come
late, replicas lag, failovers lose what was not durable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from .story import MS, Story

CLIENTS = "abc"


@dataclass(frozen=True)
class State:
    """A record; instants and ttls in milliseconds."""

    epoch: int = 0
    ordinal: int = 0
    fence: int = 0
    bound: int = 0  # 0 not, 1 claimed, 2 bound
    until: int = 0


class Model:
    """The primary's state, what the replica has, and what each client remembers (and since when)."""

    def __init__(self) -> None:
        self.story = Story()
        self.state = State()
        self.replica = State()
        self.memory: list[tuple[int, str, int]] = []
        self.fences: list[int] = [1]
        self.epochs: list[int] = [1]
        self.now = 1000

    def step(self, what: str, client: str, gap: int, before: int, after: int, fate: str, choice: int) -> None:
        """One call whose effect is at ``now``; ``fate``: ok, durable, lost, late (its effect comes after its end)."""
        self.now += gap
        if what == "failover":
            self._failover(before, after, lag=fate == "lost")
            return
        start, end = self.now - before, self.now + after
        if fate == "late":
            start, end = start - 120, self.now - 1
        known = fate in ("ok", "durable")
        details: dict[str, Any] = {"at": (start, end), "client": client}
        told: dict[str, Any] = {"durable": True if fate == "durable" else False if fate == "ok" else None}
        getattr(self, what)(details, told, known, choice)
        if fate == "durable":
            self.replica = self.state

    def _tick(self) -> int:
        return self.now * MS

    def _remembered(self, client: str, start: int) -> int:
        return max((epoch for end, who, epoch in self.memory if who == client and end < start), default=0)

    def _learn(self, details: dict[str, Any], known: bool) -> None:
        self.epochs.append(self.state.epoch)
        if known:
            self.memory.append((details["at"][1], details["client"], self.state.epoch))

    def _failover(self, before: int, after: int, lag: bool) -> None:
        if not lag:
            self.replica = self.state
        self.state = self.replica
        self.story.now = self.now - before
        self.story.fault(before + after)
        self.now += after + 1

    def _replace(self, told: dict[str, Any], reset: str | None, seen: int) -> None:
        old = self.state
        self.state = State(self._tick(), old.ordinal + 1 if old.epoch else 1)
        told["ordinal"] = self.state.ordinal
        told["previous_epoch"] = seen or old.epoch or None
        if reset is not None:
            told["reset"] = reset

    def turn(self, details: dict[str, Any], told: dict[str, Any], known: bool, choice: int) -> None:
        seen = self._remembered(details["client"], details["at"][0])
        if seen > self.state.epoch:
            told["created"] = not self.state.epoch
            self._replace(told, "rollback", seen)
        elif not self.state.epoch:
            told["created"] = True
            self._replace(told, None, 0)
        elif choice % 5 == 0:
            self._replace(told, "idle", 0)
        told["ordinal"] = self.state.ordinal
        if choice % 2:
            self._bind(details, told, choice)
        elif self.state.bound and self.now <= self.state.until:
            told |= {"action": "continue" if self.state.bound == 2 else "wait", "fence": self.state.fence}
        if known:
            self.story.turn(self.state.epoch, told=told, **details)
        else:
            self.story.degraded(**details)
        self._learn(details, known)

    def _bind(self, details: dict[str, Any], told: dict[str, Any], choice: int) -> None:
        ttl = (100, 300, 1000)[choice % 3]
        details |= {"bind": True, "claim_ttl_ms": ttl, "ttl_ms": 1000}
        if self.state.bound and self.now <= self.state.until:
            told |= {"action": "continue" if self.state.bound == 2 else "wait", "fence": self.state.fence}
            return
        commit = choice % 7 == 0
        details["commit"] = commit
        self.state = replace(self.state, fence=self._tick(), bound=2 if commit else 1, until=self.now + (1000 if commit else ttl))
        self.fences.append(self.state.fence)
        told |= {"action": "bind", "state": "bound" if commit else "claimed", "fence": self.state.fence}

    def advance(self, details: dict[str, Any], told: dict[str, Any], known: bool, choice: int) -> None:
        expected = self.epochs[-1 - choice % len(self.epochs)] if choice % 2 else None
        if expected is not None:
            details["expected_epoch"] = expected
        if expected is not None and expected < self.state.epoch:
            told |= {"applied": False, "ordinal": self.state.ordinal}
            previous = None
        else:
            self._replace(told, None, expected or 0 if (expected or 0) > self.state.epoch else 0)
            previous = told.pop("previous_epoch")
        if known:
            self.story.advance(self.state.epoch, previous, told=told, **details)
        else:
            self.story.lost("advance", **details)
        self._learn(details, known)

    def peek(self, details: dict[str, Any], told: dict[str, Any], known: bool, choice: int) -> None:
        if known:
            self.story.peek(self.state.epoch or None, **details)

    def follow(self, details: dict[str, Any], told: dict[str, Any], known: bool, choice: int) -> None:
        """confirm, renew, abort, release or rebind, with some fence that was issued."""
        fence, ttl = self.fences[-1 - choice % min(3, len(self.fences))], (1000, 2000)[choice % 2]
        op = ("confirm", "renew", "abort", "release", "rebind")[choice % 5]
        details |= {"ttl_ms": ttl, "claim_ttl_ms": 300}
        state = self.state
        if not (state.bound and state.fence == fence):
            if known:
                self.story.stale(op, fence, state.fence if state.bound and self.now <= state.until else None, **details)
            else:
                self.story.lost(op, fence=fence, **details)
            return
        if op == "confirm":
            self.state = replace(state, bound=2, until=max(state.until if state.bound == 2 else 0, self.now + ttl))
        elif op == "renew":
            self.state = replace(state, until=max(state.until, self.now + ttl))
        elif op == "rebind":
            self.state = replace(state, fence=self._tick(), bound=1, until=self.now + 300)
            self.fences.append(self.state.fence)
        else:
            self.state = replace(state, bound=0)
        word = ("unbound", "claimed", "bound")[self.state.bound]
        if known:
            durable = told["durable"] if op in ("confirm", "rebind") else None
            self.story.binding(op, fence, word, now=self.state.fence, durable=durable, **details)
        else:
            self.story.lost(op, fence=fence, **details)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("turn", "turn", "turn", "advance", "follow", "follow", "peek", "failover")),
        st.sampled_from(CLIENTS),
        st.integers(1, 120),
        st.integers(0, 100),
        st.integers(0, 100),
        st.sampled_from(("ok", "durable", "ok", "lost", "late")),
        st.integers(0, 209),
    ),
    max_size=40,
)


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_the_model_is_sound(steps: list[tuple[str, str, int, int, int, str, int]]) -> None:
    """No false alarm on anything that a correct store may answer."""
    model = Model()
    for step in steps:
        model.step(*step)
    verdict = model.story.verdict
    assert verdict.sound, verdict.violations
