"""Group commit: script calls and one ``WAIT`` for all of them, on a connection of their own (design, section 4).

``WAIT`` counts the writes of its own connection and blocks it, so the calls that the guarantees rest on travel apart from the
turns, and all that come while one WAIT is under way share the next.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal, NamedTuple

import hiredis

from limpet.errors import StoreUnavailable
from limpet.executors.lane import Lane, LaneLost

__all__ = ["Committed", "GroupCommit", "Promise"]

WAIT_MS: Final = 100
"""How long the acknowledgement of replicas is waited for, at most."""


class Promise(NamedTuple):
    """What counts as durable: so many replicas (``replica``), or the primary's own fsync (``aof``)."""

    mode: Literal["replica", "aof"]
    replicas: int

    def command(self, timeout_ms: int) -> tuple[str | int, ...]:
        """WAIT or WAITAOF."""
        if self.mode == "aof":
            return ("WAITAOF", 1, 0, timeout_ms)
        return ("WAIT", self.replicas, timeout_ms)

    def kept(self, reply: Any) -> bool:
        """Whether the reply keeps the promise; an error or a lost connection counts for nothing."""
        if self.mode == "aof":
            return isinstance(reply, list) and bool(reply) and reply[0] >= 1
        return isinstance(reply, int) and reply >= self.replicas


class Committed(NamedTuple):
    """A script's reply, and whether it was acknowledged as promised."""

    reply: Any
    durable: bool


_Queued = tuple[tuple[Any, ...], float, Promise, bool, asyncio.Future[Committed]]


class GroupCommit:
    """The queue in front of one durable lane."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._loop = asyncio.get_running_loop()
        self._queue: list[_Queued] = []
        self._committing: asyncio.Task[None] | None = None

    def submit(
        self, command: tuple[Any, ...], deadline: float, promise: Promise, asking: bool = False
    ) -> asyncio.Future[Committed]:
        """The future gets the reply and the verdict, or what :meth:`Lane.send` gives instead of a reply. ``asking``: see
        :meth:`Lane.send_asking`."""
        future: asyncio.Future[Committed] = self._loop.create_future()
        self._queue.append((command, deadline, promise, asking, future))
        if self._committing is None:
            self._committing = self._loop.create_task(self._commit_all())
        return future

    async def _commit_all(self) -> None:
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                await self._commit(batch)
        finally:
            self._committing = None
            for *_, future in self._queue:
                if not future.done():
                    future.set_exception(LaneLost())

    async def _commit(self, batch: list[_Queued]) -> None:
        now = self._loop.time()
        lane = self._lane
        replies = [
            lane.send_asking(command, deadline) if asking else lane.send(command, deadline)
            for command, deadline, _, asking, _ in batch
        ]
        promise = max((promise for _, _, promise, _, _ in batch), key=lambda each: each.replicas)
        latest = max(deadline for _, deadline, _, _, _ in batch)
        timeout_ms = max(1, min(WAIT_MS, int((latest - now) * 1000)))
        waited = self._lane.send(promise.command(timeout_ms), latest)
        results = await asyncio.gather(*replies, return_exceptions=True)
        try:
            acknowledged = await waited
        except (hiredis.ReplyError, LaneLost, StoreUnavailable):
            acknowledged = None
        for (_, _, wanted, _, future), result in zip(batch, results, strict=True):
            if future.done():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(Committed(result, wanted.kept(acknowledged)))
