"""What a process keeps is bounded, and at the bound a new entry costs about what it cost before: the oldest is found at once.

A dict's oldest entry lies behind the gaps that those before it left, which made a first turn cost a hundred times as much here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from limpet import quick
from limpet.commands import Commands
from limpet.keys import digest
from limpet.memo import Memo
from limpet.memory import EpochMemory
from limpet.results import Resolution

CAPACITY = 16_384
WALL = datetime(2026, 12, 1, tzinfo=UTC)


def memory() -> tuple[Callable[[int], None], Callable[[], int]]:
    kept = EpochMemory(3600, time.monotonic, CAPACITY)
    return lambda number: kept.saw(f"{number}", 1), lambda: len(kept)


def memo() -> tuple[Callable[[int], None], Callable[[], int]]:
    kept = Memo(60, lambda *_: None, CAPACITY)
    kept.came_up()
    resolution = Resolution("k", "s", 1, 1, "scope", "declared")

    def put(number: int) -> None:
        name = f"{number}"
        kept.answer(name, name, kept.ask(name), resolution, 0.0, WALL)

    return put, lambda: len(kept)


def quick_path() -> tuple[Callable[[int], None], Callable[[], int]]:
    commands = Commands(namespace="n")
    kept = quick.QuickPath(commands)
    target = commands.declared("k")
    assert quick.CAPACITY == CAPACITY
    return lambda number: [kept.learn(f"{number}", target)].clear(), lambda: len(kept._known)


def took(put: Callable[[int], None], first: int) -> float:
    began = time.process_time()
    for number in range(first, first + CAPACITY // 2):
        put(number)
    return time.process_time() - began


@pytest.mark.parametrize("make", [memory, memo, quick_path])
def test_the_bound_costs_nothing(make: Callable[[], tuple[Callable[[int], None], Callable[[], int]]]) -> None:
    """Ten times the cost, of the whole of a call, is far from what a search takes, and far from noise."""
    put, size = make()
    below = min(took(put, 0), took(put, CAPACITY // 2))
    assert size() == CAPACITY
    beyond = [took(put, (2 + each) * CAPACITY // 2) for each in range(6)]
    assert size() == CAPACITY
    assert sorted(beyond)[3] < 10 * below


def test_the_oldest_goes() -> None:
    """First in, first out."""
    kept = EpochMemory(3600, time.monotonic, 2)
    for number, name in enumerate(("a", "b", "c")):
        kept.saw(digest(name), number + 1)
    assert [kept.recall(digest(name)) for name in ("a", "b", "c")] == [0, 2, 3]
