"""Drains that run in the background of the service (design, section 5: Workers).

A drain makes passes until the worker may stop, or for a bounded time. Nothing is kept about it but what shows in the store (the
worker is draining; what is bound to it), so after a restart, at this replica or another, any further POST goes on with it.
Progress travels as events, so every process knows of a drain that runs in another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from limpet.errors import LimpetError
from limpet.events import Event
from limpet.service.clients import Entry
from limpet.service.feed import Feeds, Heard, told
from limpet.service.logs import log_unexpected, logger

__all__ = ["Drain", "Drains"]

FOR_S: Final = 900.0
"""A drain that is not over by then (claims that are made again and again) stops; another POST continues it."""
PAUSE_S: Final = 0.25
MAX_PAUSE_S: Final = 2.0
"""Between two passes: what holds the drain back is claims in flight."""
QUIET_MS: Final = 10_000
"""A drain of another process that has not been heard of for so long is taken to have stopped."""
MAX_DRAINS: Final = 256


class Drain(msgspec.Struct, frozen=True):
    """The progress of a drain. ``running``: passes go on, here or in another process. ``moved``: bindings taken off so far;
    ``left``: claims in flight that the last pass met; ``done``: the share of the current pass; ``may_stop``: nothing is bound
    to the worker any more, and no replica proposes it. ``problem`` is the code of what ended it early."""

    worker: str
    running: bool
    moved: int
    left: int
    done: float
    may_stop: bool
    passes: int = 0
    problem: str | None = None


class Drains:
    """The drains of a process."""

    def __init__(self, feeds: Feeds, now: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self._feeds = feeds
        self._now = now
        self._monotonic = monotonic
        self._progress: dict[tuple[str, str], Drain] = {}
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def start(self, entry: Entry, worker: str) -> Drain:
        """Marks the worker and begins, or goes on with, taking its bindings off it. Raises UnknownWorker, StoreUnavailable."""
        name = (entry.namespace, worker)
        await entry.client.mark_draining(worker)
        if name not in self._tasks:
            self._feeds.of(entry).listeners.append(self._hear_for(name))
            self._forget_old()
            self._progress[name] = Drain(worker, True, 0, 0, 0.0, False)
            self._tasks[name] = asyncio.get_running_loop().create_task(self._drain(name, entry, worker))
        return self._progress[name]

    def find(self, entry: Entry, worker: str) -> Drain | None:
        """What is known of a worker's drain, wherever it runs; None if nothing is."""
        name = (entry.namespace, worker)
        own = self._progress.get(name)
        if name in self._tasks:
            return own
        heard = self._feeds.of(entry).drains.get(worker)
        if heard is None:
            return own
        theirs = self._theirs(worker, heard)
        return theirs if own is None or theirs.running or theirs.may_stop else own

    def _theirs(self, worker: str, heard: Heard) -> Drain:
        news = told(heard)
        over = bool(news.may_stop)
        recent = int(self._now().timestamp() * 1000) - heard.at_ms < QUIET_MS
        return Drain(worker, recent and not over, news.moved or 0, news.left or 0, news.done or 0.0, over)

    def stop(self, entry: Entry, worker: str) -> None:
        """It is undrained or removed: no further pass."""
        name = (entry.namespace, worker)
        self._progress.pop(name, None)
        self._feeds.of(entry).drains.pop(worker, None)
        if (task := self._tasks.get(name)) is not None:
            task.cancel()

    def _hear_for(self, name: tuple[str, str]) -> Callable[[Event], None]:
        """Another replica may undrain it in the middle of our pass."""

        def hear(event: Event) -> None:
            if event.kind == "worker" and event.worker == name[1] and event.reason != "drain" and name in self._tasks:
                self._progress.pop(name, None)
                self._tasks[name].cancel()

        return hear

    def _forget_old(self) -> None:
        over = [name for name in self._progress if name not in self._tasks]
        for name in over[: max(0, len(self._progress) - MAX_DRAINS)]:
            del self._progress[name]

    async def _drain(self, name: tuple[str, str], entry: Entry, worker: str) -> None:
        entry.active += 1  # so that its client is not closed under us
        try:
            problem = await self._passes(name, entry, worker)
        except LimpetError as error:
            problem = error.code
            logger.warning("drain interrupted", namespace=entry.namespace, worker=worker, code=error.code)
        except Exception as error:  # noqa: BLE001  (in the background: logged, and told to whoever looks)
            problem = "internal"
            log_unexpected("drain", error)
        finally:
            entry.active -= 1
            del self._tasks[name]
        if name in self._progress:
            self._progress[name] = msgspec.structs.replace(self._progress[name], running=False, problem=problem)

    async def _passes(self, name: tuple[str, str], entry: Entry, worker: str) -> str | None:
        until = self._monotonic() + FOR_S
        moved = passes = 0
        pause_s = PAUSE_S
        while True:
            last = None
            async for last in entry.client.drain(worker, resume=True, moved=moved):
                running = not last.may_stop
                self._progress[name] = Drain(worker, running, last.moved, last.left, last.done, last.may_stop, passes + 1)
            if last is None:
                return "not_draining"
            moved, passes = last.moved, passes + 1
            if last.may_stop:
                return None
            if self._monotonic() > until:
                return "timeout"
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, MAX_PAUSE_S)

    async def close(self) -> None:
        """Ends every drain; what is left shows in the store."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
