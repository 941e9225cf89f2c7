"""What a replica remembers of epochs: the largest, bounded, for as long as the record may live."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from limpet.memory import EpochMemory


class Ticks:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_nothing_seen_is_zero() -> None:
    """0 is below every epoch."""
    assert EpochMemory(10, Ticks()).recall("a") == 0


@given(st.lists(st.integers(1, 2**53 - 1), min_size=1))
def test_the_largest_counts(epochs: list[int]) -> None:
    """Replies may come in any order."""
    memory = EpochMemory(10, Ticks())
    for epoch in epochs:
        memory.saw("a", epoch)
    assert memory.recall("a") == max(epochs)
    assert memory.recall("b") == 0


def test_it_ends_with_the_retention() -> None:
    """After that long without activity the record may have expired, and a memory of it means nothing."""
    ticks = Ticks()
    memory = EpochMemory(10, ticks)
    memory.saw("a", 5)
    ticks.now = 9
    assert memory.recall("a") == 5
    memory.saw("a", 3)  # an activity, if of an older epoch
    ticks.now = 18
    assert memory.recall("a") == 5
    ticks.now = 19
    assert memory.recall("a") == 0
    assert len(memory) == 0


def test_it_is_bounded() -> None:
    """The oldest goes; an old acquaintance needs no room."""
    memory = EpochMemory(10, Ticks(), capacity=3)
    for digest in ("a", "b", "c"):
        memory.saw(digest, 1)
    memory.saw("b", 2)
    assert len(memory) == 3
    memory.saw("d", 1)
    assert len(memory) == 3
    assert [memory.recall(digest) for digest in "abcd"] == [0, 2, 1, 1]


def test_forgetting() -> None:
    """What was forgotten on purpose is not taken for a loss; twice is as good as once."""
    memory = EpochMemory(10, Ticks())
    memory.saw("a", 5)
    memory.forget("a")
    memory.forget("a")
    assert memory.recall("a") == 0
