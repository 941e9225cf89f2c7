"""The memo: what it keeps, for how long, and what drops it (design, section 5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from limpet.memo import Memo, MemoEntry
from limpet.policy import NONE, Policy
from limpet.results import Binding, Reset, Resolution

NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
PLAIN = Resolution("k", "s", 7, 1, "gwk_x", "declared")
BOUND = Resolution("k", "s", 7, 1, "gwk_x", "declared", binding=Binding("continue", "bound", "w1", expires_in_ms=300_000))


class Bench:
    """A memo with a clock, and what it asked to be written behind."""

    def __init__(self, ttl_s: float = 10, capacity: int = 100) -> None:
        self.touched: list[str] = []
        self.memo = Memo(ttl_s, self._touch, capacity)
        self.memo.came_up()
        self.now, self.wall = 0.0, NOON

    def _touch(self, key: str, entry: MemoEntry, bind_ttl_ms: int) -> None:
        self.touched.append(key)

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.wall += timedelta(seconds=seconds)

    def keep(self, resolution: Resolution | None = PLAIN, key: str = "k") -> None:
        token = self.memo.ask(f"d-{key}")
        self.memo.answer(key, f"d-{key}", token, resolution, self.now, self.wall)

    def get(self, key: str = "k", policy: Policy = NONE, bind: bool = False, seen: int = 0) -> Resolution | None:
        return self.memo.get(key, self.now, policy, bind, seen, lambda: self.wall)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_hit(bench: Bench) -> None:
    """The resolution as it was, and its activity asked to be written once until it is."""
    bench.keep()
    assert bench.get() is PLAIN
    assert bench.get() is PLAIN
    assert bench.touched == ["k"]
    bench.memo.touched("k")
    bench.get()
    assert bench.touched == ["k", "k"]


def test_it_ends_with_its_ttl(bench: Bench) -> None:
    """At the ttl it is gone."""
    bench.keep()
    bench.passes(9.99)
    assert bench.get() is PLAIN
    bench.passes(0.01)
    assert bench.get() is None
    assert len(bench.memo) == 0


def test_never_past_its_binding() -> None:
    """A binding that ends before the ttl ends the entry."""
    bench = Bench(ttl_s=60)
    bench.keep(bound_for(5_000))
    bench.passes(4.9)
    assert bench.get(bind=True) is not None
    bench.passes(0.1)
    assert bench.get(bind=True) is None


def bound_for(milliseconds: int) -> Resolution:
    return Resolution("k", "s", 7, 1, "x", "declared", binding=Binding("continue", "bound", "w1", expires_in_ms=milliseconds))


RESET = Resolution("k", "s", 7, 1, "x", "declared", reset=Reset("idle", 5, "y", True))


@pytest.mark.parametrize(
    "resolution",
    [
        None,
        RESET,
        Resolution("k", "s", 7, 1, "x", "declared", binding=Binding("bind", "claimed")),
        Resolution("k", "s", 7, 1, "x", "declared", binding=Binding("wait", "claimed")),
    ],
    ids=["failed", "reset", "bind", "wait"],
)
def test_what_is_not_kept(bench: Bench, resolution: Resolution | None) -> None:
    """Only `continue` and unbound answers without a reset are."""
    bench.keep(resolution)
    assert len(bench.memo) == 0


def test_a_turn_that_wants_more(bench: Bench) -> None:
    """A binding where the entry has none; an epoch above the entry's: the store is asked."""
    bench.keep()
    assert bench.get(bind=True) is None
    assert bench.get(seen=8) is None
    assert bench.get(seen=7) is PLAIN
    bench.keep(BOUND)
    assert bench.get(bind=True) is BOUND
    assert bench.get() is BOUND


def test_a_hit_never_hides_idle() -> None:
    """Once idle could be due, the store is asked."""
    bench = Bench(ttl_s=60)
    policy = Policy.parse({"idle_s": 5})
    bench.keep()
    bench.passes(4.9)
    assert bench.get(policy=policy) is not None
    bench.passes(0.1)
    assert bench.get(policy=policy) is None
    assert bench.get() is not None  # another turn without the policy


def test_a_hit_never_hides_a_new_day() -> None:
    """A daily boundary between the read and now: the store is asked."""
    bench = Bench(ttl_s=60)
    policy = Policy.parse({"daily": {"at": "12:01", "tz": "UTC"}})
    bench.passes(30)
    bench.keep()
    bench.passes(29)
    assert bench.get(policy=policy) is not None
    bench.passes(1)
    assert bench.get(policy=policy) is None


def test_an_event_drops(bench: Bench) -> None:
    """From any replica; others stay."""
    bench.keep()
    bench.keep(key="other")
    bench.memo.event("d-k")
    assert bench.get() is None
    assert bench.get("other") is not None
    bench.memo.event("d-unknown")


def test_an_event_that_races_the_reply(bench: Bench) -> None:
    """Between the question and the answer: the answer may be older than the event, so it is void. The next one is not."""
    token = bench.memo.ask("d-k")
    bench.memo.event("d-k")
    bench.memo.answer("k", "d-k", token, PLAIN, bench.now, bench.wall)
    assert bench.get() is None
    bench.keep()
    assert bench.get() is PLAIN


def test_two_questions_at_once(bench: Bench) -> None:
    """An event voids all that are on their way."""
    first, second = bench.memo.ask("d-k"), bench.memo.ask("d-k")
    bench.memo.event("d-k")
    for token in (first, second):
        bench.memo.answer("k", "d-k", token, PLAIN, bench.now, bench.wall)
        assert bench.get() is None
    bench.keep()
    assert bench.get() is PLAIN


def test_down(bench: Bench) -> None:
    """Without the subscription nothing is kept, nothing that was on its way either, until it is back."""
    bench.keep()
    token = bench.memo.ask("d-k")
    bench.memo.down()
    assert len(bench.memo) == 0
    bench.memo.answer("k", "d-k", token, PLAIN, bench.now, bench.wall)
    bench.keep()
    assert len(bench.memo) == 0
    token = bench.memo.ask("d-k")
    bench.memo.came_up()
    bench.keep(key="fresh")
    assert bench.get("fresh") is PLAIN
    assert token is not None


def test_down_and_up_in_one_flight(bench: Bench) -> None:
    """An answer asked for before the gap is void after it: an event may have been missed."""
    token = bench.memo.ask("d-k")
    bench.memo.down()
    bench.memo.came_up()
    bench.memo.answer("k", "d-k", token, PLAIN, bench.now, bench.wall)
    assert bench.get() is None


def test_it_is_bounded() -> None:
    """The oldest goes, with its digest; a key that is there needs no room."""
    bench = Bench(capacity=2)
    for key in ("a", "b", "b", "c"):
        bench.keep(key=key)
    assert len(bench.memo) == 2
    assert [bench.get(key) is not None for key in "abc"] == [False, True, True]
    internals: Any = bench.memo
    assert set(internals._by_digest) == {"d-b", "d-c"}
    assert not internals._flights
    assert not internals._void
