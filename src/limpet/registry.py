"""A replica's view of the workers: refreshed at least once a second, and counting its own binds in between.

The record in the store decides; the view only proposes (design, section 5: Workers). Counts come from the store's own index
and are read anew, never only incremented, so that expiry, crashes and failovers correct themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import structlog

from limpet.errors import LimpetError
from limpet.events import Event
from limpet.opinion import Opinion
from limpet.placement import choose
from limpet.workers import Snapshot

__all__ = ["Registry"]

log = structlog.get_logger("limpet.registry")

REFRESH_S: Final = 0.8
COUNT_SHARE: Final = 0.02
"""The part of the time that counting bindings may take; with many bindings it is done less often than once a second."""
MAX_COUNT_EVERY_S: Final = 30.0


class Registry:
    """The view.

    Args:
        read: reads the registry.
        count: counts live bindings per worker.
        monotonic: seconds, never going back.
        opinion: this process's own, or None.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Snapshot]],
        count: Callable[[], Awaitable[dict[str, int]]],
        monotonic: Callable[[], float],
        opinion: Opinion | None = None,
    ) -> None:
        self._opinion = opinion
        self._read = read
        self._count = count
        self._monotonic = monotonic
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._loaded = asyncio.Event()
        self._loads: Counter[str] = Counter()
        self._counted_at = 0.0
        self._count_every_s = REFRESH_S
        self.snapshot: Snapshot | None = None

    def start(self) -> None:
        """Keeps the view fresh, in the background."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_fresh())

    async def ready(self, timeout_s: float) -> bool:
        """Whether there is a view at all, waiting for the first."""
        self.start()
        if self.snapshot is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._loaded.wait()
        return self.snapshot is not None

    def on_event(self, event: Event) -> None:
        """A worker changed: look again at once. What others bind meanwhile shows in the next count."""
        if event.kind == "worker":
            self._wake.set()

    def propose(self, pool: str, digest: str, exclude: Collection[str] = ()) -> str | None:
        """A worker of the pool for a new binding, or None. Counted as bound at once, so that a burst of proposals sees itself;
        :meth:`unbound` takes it back if the store decides otherwise."""
        if self.snapshot is None:
            return None
        fit = capacities = self.snapshot.pools.get(pool, {})
        if (opinion := self._opinion) is not None:
            fit = {name: capacity for name, capacity in capacities.items() if name not in exclude and opinion.fit(name)}
        worker = choose(digest, fit or capacities, self._loads, exclude)
        if worker is not None:
            self._loads[worker] += 1
        return worker

    def bound(self, worker: str) -> None:
        """We bound one to it just now, without a proposal."""
        self._loads[worker] += 1

    def unbound(self, worker: str) -> None:
        """A proposal that did not become a binding."""
        self._loads[worker] -= 1

    def load(self, worker: str) -> int:
        """Live bindings of a worker, as far as this view knows."""
        return self._loads[worker]

    async def _keep_fresh(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._refresh()
            except LimpetError as error:
                log.warning("registry_unread", error=error.code)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_S):
                    await self._wake.wait()

    async def _refresh(self) -> None:
        start = self._monotonic()
        if start - self._counted_at >= self._count_every_s or self.snapshot is None:
            before = Counter(self._loads)
            counted = await self._count()
            took = self._monotonic() - start
            self._count_every_s = min(MAX_COUNT_EVERY_S, max(REFRESH_S, took / COUNT_SHARE))
            self._counted_at = start
            # Binds that were made while the counting was under way may be in it or not: they stay counted until the next one.
            during = Counter({worker: self._loads[worker] - before[worker] for worker in self._loads})
            self._loads = Counter(counted) + during
        snapshot = await self._read()
        self.snapshot = snapshot if self._opinion is None else self._opinion.amend(snapshot)
        self._loaded.set()

    async def close(self) -> None:
        """Stops refreshing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
