"""The routes beside the hot ones that need the store: workers, events, history, stats, and what runs behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.types import ASGIApp, Scope

from limpet.clock import Clock
from limpet.metrics import Metrics
from limpet.service import events, history, stats, workers
from limpet.service.auth import Guard
from limpet.service.clients import Clients
from limpet.service.counts import Counts
from limpet.service.drains import Drains
from limpet.service.feed import Feeds
from limpet.service.janitor import Janitor

__all__ = ["Beyond"]


class Beyond:
    """Finds the routes, and runs the rest."""

    def __init__(self, guard: Guard, clients: Clients, metrics: Metrics, clock: Clock) -> None:
        self._feeds = Feeds(clock.now, clock.monotonic)
        self._drains = Drains(self._feeds, clock.now, clock.monotonic)
        self._janitor = Janitor(clients, also=self._feeds.sweep_idle)
        self._workers = workers.Workers(guard, clients, Counts(clock.monotonic), self._drains)
        self._histories = history.Histories(guard, clients, self._feeds)
        self._exact: dict[str, ASGIApp] = {
            events.PATH: events.Events(guard, clients, self._feeds),
            stats.PATH: stats.Stats(guard, metrics, clock),
        }

    def find(self, scope: Scope) -> ASGIApp | None:
        """The application of a route, or None."""
        raw: bytes = scope["raw_path"]
        if raw == workers.PATH or raw.startswith(workers.PATH + b"/"):
            return self._workers
        if raw.startswith(history.PATH):
            return self._histories
        return self._exact.get(scope["path"])

    def end_readers(self) -> None:
        """The process is about to stop."""
        self._feeds.end_readers()

    def running(self) -> AbstractAsyncContextManager[None]:
        """The background, while the service runs."""
        return self._running()

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        self._janitor.start()
        try:
            yield
        finally:
            await self._janitor.close()
            await self._drains.close()
            await self._feeds.close()
