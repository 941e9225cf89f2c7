"""Rendezvous hashing with bounded load."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from limpet.keys import digest
from limpet.placement import choose

WORKERS = {f"w{n}": 1.0 for n in range(8)}


def test_nobody_to_choose() -> None:
    """No workers, or all excluded."""
    assert choose("d", {}, {}) is None
    assert choose("d", {"a": 1.0}, {}, exclude=["a"]) is None


def test_the_same_conversation_the_same_worker() -> None:
    """As long as nobody is over its share."""
    loads = dict.fromkeys(WORKERS, 10)
    assert len({choose(digest("k"), WORKERS, loads) for _ in range(5)}) == 1


@given(st.text(min_size=1, max_size=20), st.integers(0, 7))
def test_losing_one_moves_only_its_own(key: str, lost: int) -> None:
    """Whoever was not on the lost worker stays."""
    loads = dict.fromkeys(WORKERS, 100)
    before = choose(digest(key), WORKERS, loads)
    rest = {name: capacity for name, capacity in WORKERS.items() if name != f"w{lost}"}
    after = choose(digest(key), rest, loads)
    assert after == before or before == f"w{lost}"


def test_a_full_worker_is_passed_over() -> None:
    """Bounded load: nobody gets more than about 1.05 of its share while others have room."""
    loads: Counter[str] = Counter()
    for n in range(4000):
        worker = choose(digest(f"k{n}"), WORKERS, loads)
        assert worker is not None
        loads[worker] += 1
    assert max(loads.values()) <= 1.06 * 4000 / 8


def test_capacity_weighs() -> None:
    """In proportion."""
    capacities = {"big": 3.0, "small": 1.0}
    loads: Counter[str] = Counter()
    for n in range(2000):
        loads[choose(digest(f"k{n}"), capacities, loads) or ""] += 1
    assert 2.6 <= loads["big"] / loads["small"] <= 3.4


def test_when_all_are_full_the_emptiest_takes_it() -> None:
    """By load over capacity. Only stale counts can make everybody look full."""
    assert choose("d", {"a": 1.0, "b": 1.0}, {"a": 3, "b": 1}) == "b"
