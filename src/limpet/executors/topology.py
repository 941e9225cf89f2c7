"""Where a key's primary is. One class per topology; the executor asks it for a lane and tells it what went wrong.

A topology owns its lanes. ``shared`` lanes carry the turns; ``durable`` ones carry the calls that end in a WAIT, which
counts its own connection's writes and blocks it (design, section 4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, Protocol

import redis.asyncio
from redis.asyncio.connection import ConnectionPool

from limpet.errors import InvalidRequest, StoreUnavailable
from limpet.executors.lane import Lane

__all__ = ["Kind", "Standalone", "Topology"]

Kind = Literal["shared", "durable"]
OnBatch = Callable[[int], None] | None


class Topology(Protocol):
    """What the executor asks of a topology."""

    def lane(self, key: str, kind: Kind) -> Lane | None:
        """The live lane to the primary that holds this key, or None if there is none right now."""

    async def connect(self, key: str, kind: Kind, timeout_s: float) -> Lane:
        """The same, connecting first where needed. Raises StoreUnavailable."""

    async def redirected(self, key: str, message: str, timeout_s: float) -> Lane | None:
        """The node refused the key (MOVED, ASK, READONLY ...): learns from it. A lane means: send it there, once."""

    def client(self) -> redis.asyncio.Redis:
        """A redis-py client for the rare commands and for pub/sub, on a node that can serve them; the caller closes it."""

    def primaries(self) -> list[str]:
        """One key (or any text that :meth:`lane` takes for one) per primary, to ask each something."""

    def lanes(self) -> list[Lane]:
        """All live lanes."""

    async def close(self) -> None:
        """Closes every lane."""


class Standalone:
    """One primary at a fixed address: ``redis://``, ``rediss://``, ``unix://``."""

    def __init__(self, url: str, on_batch: OnBatch = None) -> None:
        self._url = url
        self._on_batch = on_batch
        try:
            # RESP2: no push messages may arrive between replies on a lane.
            self._pool = ConnectionPool.from_url(url, protocol=2, client_name="limpet")
        except ValueError as error:
            raise InvalidRequest(f"The store's URL is not valid: {error}.", field="url") from None
        self._lanes: dict[Kind, Lane] = {}
        self._opening: dict[Kind, asyncio.Task[Lane]] = {}

    def lane(self, key: str, kind: Kind) -> Lane | None:
        """The one lane of that kind."""
        lane = self._lanes.get(kind)
        return None if lane is None or lane.lost else lane

    async def connect(self, key: str, kind: Kind, timeout_s: float) -> Lane:
        """Connects once for all who wait."""
        lane = self.lane(key, kind)
        if lane is not None:
            return lane
        task = self._opening.get(kind)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open(kind, timeout_s))
            self._opening[kind] = task
            task.add_done_callback(lambda done: self._opened(kind, done))
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(task)
        except TimeoutError:
            raise StoreUnavailable("The store did not take a connection within the deadline; check that it runs.") from None

    async def _open(self, kind: Kind, timeout_s: float) -> Lane:
        lane = await Lane.open(self._pool.make_connection, timeout_s=max(timeout_s, 1.0), on_batch=self._on_batch)
        self._lanes[kind] = lane
        return lane

    def _opened(self, kind: Kind, task: asyncio.Task[Lane]) -> None:
        self._opening.pop(kind, None)
        if not task.cancelled():
            task.exception()  # whoever waited has seen it; a caller that gave up must not leave a warning behind

    async def redirected(self, key: str, message: str, timeout_s: float) -> Lane | None:
        """A single primary that calls itself a replica: nothing to learn, the caller retries."""
        return None

    def client(self) -> redis.asyncio.Redis:
        """A plain client to the same server."""
        return redis.asyncio.Redis.from_url(self._url, client_name="limpet")

    def primaries(self) -> list[str]:
        """There is one."""
        return [""]

    def lanes(self) -> list[Lane]:
        """At most two."""
        return [lane for lane in self._lanes.values() if not lane.lost]

    async def close(self) -> None:
        """Closes every lane, also one that is being opened."""
        for task in list(self._opening.values()):
            task.cancel()
            await asyncio.wait([task])
        for lane in list(self._lanes.values()):
            await lane.close()
        self._lanes.clear()
