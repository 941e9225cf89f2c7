"""What replicas tell one another, and the hub that hands it out inside a process.

The scripts publish on ``limpet:{<ns>}:events``. Pub/sub is at most once: whoever relies on it also has a bound of its own (the
memo its ttl, a wait the claim's deadline), and learns when the subscription was down and came back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec
import structlog
from redis.exceptions import RedisError

from limpet.errors import LimpetError
from limpet.executors.node import NodeClient
from limpet.keys import Domain

__all__ = ["Event", "EventHub", "Watch"]

log = structlog.get_logger("limpet.events")

QUIET_S: Final = 1.0
"""A subscription this quiet is asked for a sign of life."""
DEAD_S: Final = 3.0
"""Without any sign of life for this long it is given up: a server that stopped, or was cut off, closes no connection."""
QUEUE: Final = 1024
"""Events that a slow reader may lag behind before it is dropped."""


class Event(msgspec.Struct, frozen=True, array_like=True):
    """``kind``: advance, suspend, forget, bind, rebind, release; ``worker`` for a worker's change (``reason`` says which);
    ``drain`` for the progress of a drain (``epoch`` bindings moved, ``fence`` left, ``reason`` the share done, or may_stop);
    ``gap`` to the readers of a stream when the subscription was down, so that events may be missing. ``digest`` stands for the
    key."""

    kind: str
    domain: str
    digest: str
    epoch: int
    fence: int
    worker: str
    reason: str


_GAP: Final = Event("gap", "", "", 0, 0, "", "")
_decode: Final = msgspec.msgpack.Decoder(Event).decode


class Watch:
    """Wakes when something happened to one record, or when the subscription came (back) up."""

    __slots__ = ("_event", "_hub", "_name")

    def __init__(self, hub: EventHub, name: tuple[str, str]) -> None:
        self._hub, self._name, self._event = hub, name, asyncio.Event()

    def __enter__(self) -> Watch:
        self._hub.watches.setdefault(self._name, set()).add(self)
        return self

    def __exit__(self, *exc: object) -> None:
        group = self._hub.watches.get(self._name)
        if group is not None:
            group.discard(self)
            if not group:
                del self._hub.watches[self._name]

    def wake(self) -> None:
        """Something happened."""
        self._event.set()

    def clear(self) -> None:
        """From now on only what is new wakes."""
        self._event.clear()

    async def wait(self, timeout_s: float) -> bool:
        """True when woken, False when the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
                return True
        return False


class EventHub:
    """One subscription of the process, shared by the memo, the waits and the readers of events.

    Args:
        channel: the namespace's channel.
        client: makes a redis-py client on a node that serves pub/sub; called anew for each connection.
    """

    def __init__(self, channel: str, client: Callable[[], Awaitable[NodeClient]]) -> None:
        self._channel = channel
        self._client = client
        self._task: asyncio.Task[None] | None = None
        self._first = asyncio.Event()
        self.up = False
        self.watches: dict[tuple[str, str], set[Watch]] = {}
        self.listeners: list[Callable[[Event], None]] = []
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[], None]] = []
        self._queues: set[asyncio.Queue[Event | None]] = set()

    def start(self) -> None:
        """Subscribes, in the background; does nothing if that is under way."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_subscribed())

    async def wait_up(self, timeout_s: float) -> bool:
        """Whether the subscription has been up at least once, waiting for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._first.wait()
        return self.up

    def watch(self, domain: Domain, digest: str) -> Watch:
        """A watch on one record; a context manager."""
        return Watch(self, (domain, digest))

    async def stream(self) -> AsyncGenerator[Event, None]:
        """Every event from now on. A reader that lags too far behind is dropped: its iteration ends."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue(QUEUE + 1)
        self._queues.add(queue)
        self.start()
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self._queues.discard(queue)

    def emit(self, event: Event) -> None:
        """Hands an event to everybody in this process."""
        for listener in self.listeners:
            listener(event)
        for watch in self.watches.get((event.domain, event.digest), ()):
            watch.wake()
        self._queue(event)

    def _queue(self, event: Event) -> None:
        for queue in list(self._queues):
            if queue.qsize() >= QUEUE:
                self._queues.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    async def _keep_subscribed(self) -> None:
        failures = 0
        while True:
            try:
                await self._subscribed()
                failures = 0
            except (RedisError, OSError, LimpetError, TimeoutError) as error:
                failures += 1
                log.warning("subscription_lost", error=type(error).__name__, attempt=failures)
            finally:
                if self.up:
                    self.up = False
                    for tell in self.on_down:
                        tell()
            await asyncio.sleep(min(2.0, 0.05 * 2 ** min(failures, 6)) * (0.5 + random.random()))

    async def _subscribed(self) -> None:
        client = await self._client()
        monotonic = asyncio.get_running_loop().time
        try:
            async with client.pubsub(ignore_subscribe_messages=False) as pubsub:
                async with asyncio.timeout(DEAD_S):
                    await pubsub.subscribe(self._channel)
                heard = monotonic()
                while not client.moved:
                    message = await pubsub.get_message(timeout=QUIET_S)
                    if message is not None:
                        heard = monotonic()
                        if message["type"] == "subscribe":
                            self._came_up()
                        elif message["type"] == "message":
                            self._received(message["data"])
                    elif monotonic() - heard > DEAD_S:
                        raise TimeoutError("the server of the subscription gives no sign of life")
                    else:
                        await pubsub.ping()
        finally:
            await client.aclose()

    def _came_up(self) -> None:
        self.up = True
        if self._first.is_set():
            self._queue(_GAP)
        self._first.set()
        for tell in self.on_up:
            tell()
        for group in list(self.watches.values()):
            for watch in list(group):
                watch.wake()

    def _received(self, payload: bytes) -> None:
        try:
            event = _decode(payload)
        except msgspec.MsgspecError:
            log.warning("event_not_understood", size=len(payload))  # a newer replica's, or not ours
            return
        self.emit(event)

    async def close(self) -> None:
        """Unsubscribes, ends every stream, and wakes whoever watches."""
        if self._task is not None:
            # Again until it ends: redis-py takes a cancellation that meets a timeout of its own for that timeout.
            while not self._task.done():
                self._task.cancel()
                await asyncio.wait([self._task], timeout=0.1)
            self._task = None
        for group in list(self.watches.values()):
            for watch in list(group):
                watch.wake()
        for queue in list(self._queues):
            self._queues.discard(queue)
            while queue.qsize() > QUEUE:
                queue.get_nowait()
            queue.put_nowait(None)
