"""A replica's view of the workers: what it counts, what it believes, and when it looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from limpet.errors import StoreUnavailable
from limpet.events import Event
from limpet.registry import Registry
from limpet.workers import Snapshot, Worker
from tests.support.servers import wait_until_async


def worker(name: str, state: Any = "live", capacity: float = 1.0) -> Worker:
    return Worker(name, "p", "", capacity, "1", {}, 0, state, 0, 0)


class Store:
    """What a registry reads and counts."""

    def __init__(self) -> None:
        self.workers = {name: worker(name) for name in ("a", "b")}
        self.counts: dict[str, int] = {}
        self.reads = self.censuses = 0
        self.during: Callable[[], None] = lambda: None
        self.away = False
        self.now = 0.0
        self.took = 0.0

    async def read(self) -> Snapshot:
        self.reads += 1
        if self.away:
            raise StoreUnavailable("away")
        return Snapshot(1000 + self.reads, dict(self.workers))

    async def count(self) -> dict[str, int]:
        self.censuses += 1
        found = dict(self.counts)
        self.during()
        self.now += self.took
        return found


@pytest.fixture
async def store() -> Store:
    return Store()


@pytest.fixture
async def view(store: Store) -> Any:
    made = Registry(store.read, store.count, lambda: store.now)
    yield made
    await made.close()


async def until(condition: Callable[[], object]) -> None:
    async def holds() -> object:
        return condition()

    await wait_until_async(holds, 5, "the view")


async def test_it_counts_its_own_at_once(view: Registry, store: Store) -> None:
    """A burst of proposals sees itself; what came to nothing is taken back."""
    assert view.propose("p", "d") is None  # no view yet
    assert await view.ready(5)
    names = [view.propose("p", f"{n}") for n in range(10)]
    assert view.load("a") + view.load("b") == 10
    assert max(view.load("a"), view.load("b")) <= 6  # 1.05 of the mean, rounded up
    assert view.propose("p", "d", exclude=["a", "b"]) is None
    assert view.propose("nobody", "d") is None
    assert names[0] is not None
    view.unbound(names[0])
    view.bound("a")
    assert view.load("a") + view.load("b") == 10


async def test_the_store_corrects(view: Registry, store: Store) -> None:
    """What is counted replaces what was believed; binds made meanwhile stay counted until the next time."""
    assert await view.ready(5)
    for n in range(10):
        view.propose("p", f"{n}")
    store.counts = {"a": 3}
    store.during = lambda: view.bound("b")
    store.now += 60
    view._wake.set()
    await until(lambda: view.load("a") == 3)
    assert view.load("b") == 1


async def test_an_event_makes_it_look(view: Registry, store: Store) -> None:
    """A worker's change is seen at once, not within the second; other events are none of its business."""
    assert await view.ready(5)
    store.workers["a"] = worker("a", "draining")
    view.on_event(Event("bind", "conv", "d", 1, 1, "a", ""))
    assert not view._wake.is_set()
    view.on_event(Event("worker", "work", "", 0, 1, "a", "drain"))
    await until(lambda: view.snapshot is not None and view.snapshot.workers["a"].state == "draining")
    assert {view.propose("p", f"{n}") for n in range(5)} == {"b"}


async def test_counting_is_bounded(view: Registry, store: Store) -> None:
    """A census that takes long is made less often: at most a fiftieth of the time."""
    store.took = 0.2
    assert await view.ready(5)
    for _ in range(3):
        reads = store.reads
        store.now += 2.0
        view._wake.set()
        await until(lambda reads=reads: store.reads > reads)  # type: ignore[misc]
    assert store.censuses == 1
    store.now += 10
    view._wake.set()
    await until(lambda: store.censuses == 2)


async def test_a_store_that_is_away(view: Registry, store: Store) -> None:
    """The last view stays; without any there is none, within the time."""
    store.away = True
    assert not await view.ready(0.05)
    store.away = False
    view._wake.set()
    assert await view.ready(5)
    kept = view.snapshot
    store.away = True
    reads = store.reads
    view._wake.set()
    await until(lambda: store.reads > reads)
    await asyncio.sleep(0)
    assert view.snapshot is kept
