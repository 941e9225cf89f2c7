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


_NONE: Final = object()


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


class _Entry:
    """One call in the queue: its reply, when it has come, waits for the WAIT; never past the deadline."""

    __slots__ = ("asking", "command", "deadline", "future", "promise", "reply")

    def __init__(
        self, command: tuple[Any, ...], deadline: float, promise: Promise, asking: bool, future: asyncio.Future[Committed]
    ) -> None:
        self.command = command
        self.deadline = deadline
        self.promise = promise
        self.asking = asking
        self.future = future
        self.reply: Any = _NONE

    def answered(self, reply: asyncio.Future[Any]) -> None:
        """The script's reply, or why there is none."""
        if reply.cancelled():
            return
        error = reply.exception()
        if error is None:
            self.reply = reply.result()
        elif not self.future.done():
            self.future.set_exception(error)

    def waited(self, acknowledged: Any) -> None:
        """The WAIT's reply, None for none."""
        if not self.future.done():
            if self.reply is _NONE:
                self.future.set_exception(LaneLost())
            else:
                self.future.set_result(Committed(self.reply, self.promise.kept(acknowledged)))

    def expire(self) -> None:
        """The deadline: what is answered by now is told as not acknowledged."""
        if self.future.done():
            return
        if self.reply is _NONE:
            late = "The store did not answer within the deadline; retry with the same request id."
            self.future.set_exception(StoreUnavailable(late))
        else:
            self.future.set_result(Committed(self.reply, False))


class GroupCommit:
    """The queue in front of one durable lane."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._loop = asyncio.get_running_loop()
        self._queue: list[_Entry] = []
        self._committing: asyncio.Task[None] | None = None

    def submit(
        self, command: tuple[Any, ...], deadline: float, promise: Promise, asking: bool = False
    ) -> asyncio.Future[Committed]:
        """The future gets the reply and the verdict, or what :meth:`Lane.send` gives instead of a reply. ``asking``: see
        :meth:`Lane.send_asking`."""
        entry = _Entry(command, deadline, promise, asking, self._loop.create_future())
        self._queue.append(entry)
        # Its own deadline, whatever batch it is in: behind one that hangs, or beside a younger call whose WAIT may take longer.
        timer = self._loop.call_at(deadline, entry.expire)
        entry.future.add_done_callback(lambda _: timer.cancel())
        if self._committing is None:
            self._committing = self._loop.create_task(self._commit_all())
        return entry.future

    async def _commit_all(self) -> None:
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                await self._commit([entry for entry in batch if not entry.future.done()])
        finally:
            self._committing = None
            for entry in self._queue:
                if not entry.future.done():
                    entry.future.set_exception(LaneLost())

    async def _commit(self, batch: list[_Entry]) -> None:
        if not batch:
            return
        lane = self._lane
        for entry in batch:
            send = lane.send_asking if entry.asking else lane.send
            send(entry.command, entry.deadline).add_done_callback(entry.answered)
        promise = max((entry.promise for entry in batch), key=lambda each: each.replicas)
        latest = max(entry.deadline for entry in batch)
        timeout_ms = max(1, min(WAIT_MS, int((latest - self._loop.time()) * 1000)))
        try:
            acknowledged = await lane.send(promise.command(timeout_ms), latest)
        except (hiredis.ReplyError, LaneLost, StoreUnavailable):
            acknowledged = None
        for entry in batch:
            entry.waited(acknowledged)
