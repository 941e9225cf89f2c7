"""The events of one namespace as this process hears them: the last few thousand with ids, and the last few of each record.

Ids are ``<nonce>-<n>``: the nonce belongs to this feed of this process, since pub/sub gives every replica its own order. So an id
of another replica, or of before a restart, is not known here, and its reader is told (``reset``) that it may have missed some.
A feed starts when somebody first asks and ends when nobody has for ten minutes: without readers, events cost nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from limpet.events import Event
from limpet.service.clients import Entry
from limpet.service.logs import log_unexpected

__all__ = ["Feed", "Feeds", "Heard", "Told", "told"]

WINDOW: Final = 4096
"""Events that a reader may lag behind, or miss while it is away."""
RECORDS: Final = 4096
PER_RECORD: Final = 16
IDLE_S: Final = 600.0
MAX_FEEDS: Final = 64


class Heard(NamedTuple):
    """An event, its number in the feed, and when it was heard (Unix milliseconds)."""

    number: int
    at_ms: int
    event: Event


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event as it is told over HTTP. ``digest`` stands for the key, which is never told. ``moved``, ``left``, ``done`` (the
    share of the current pass) and ``may_stop`` come with the kind ``drain``."""

    kind: str
    at_ms: int
    domain: str | None = None
    digest: str | None = None
    epoch: int | None = None
    fence: int | None = None
    worker: str | None = None
    reason: str | None = None
    moved: int | None = None
    left: int | None = None
    done: float | None = None
    may_stop: bool | None = None


def told(heard: Heard) -> Told:
    """The public form."""
    event = heard.event
    if event.kind == "drain":
        over = event.reason == "may_stop"
        try:
            done = 1.0 if over else float(event.reason)
        except ValueError:
            done = 0.0
        return Told("drain", heard.at_ms, worker=event.worker, moved=event.epoch, left=event.fence, done=done, may_stop=over)
    if event.kind == "worker":
        return Told("worker", heard.at_ms, worker=event.worker, reason=event.reason)
    return Told(
        event.kind,
        heard.at_ms,
        event.domain,
        event.digest,
        event.epoch or None,
        event.fence or None,
        event.worker or None,
        event.reason or None,
    )


class Feed:
    """One namespace's events.

    Args:
        entry: the namespace's client.
        now: the wall time.
        monotonic: seconds, never going back.
    """

    def __init__(self, entry: Entry, now: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self.nonce = secrets.token_hex(4)
        self.newest = 0
        self.readers = 0
        self.over = False
        self.drains: dict[str, Heard] = {}
        self.listeners: list[Callable[[Event], None]] = []
        self._entry = entry
        self._now = now
        self._monotonic = monotonic
        self._used_at = monotonic()
        self._ring: deque[Heard] = deque(maxlen=WINDOW)
        self._records: OrderedDict[str, deque[Heard]] = OrderedDict()
        self._news = asyncio.Event()
        self.since_ms = self._now_ms()
        self._task = asyncio.get_running_loop().create_task(self._listen())

    def _now_ms(self) -> int:
        return int(self._now().timestamp() * 1000)

    def use(self) -> Feed:
        """Somebody still wants it."""
        self._used_at = self._monotonic()
        return self

    @property
    def idle_s(self) -> float:
        """How long nobody has wanted it."""
        return 0.0 if self.readers else self._monotonic() - self._used_at

    def history(self, digest: str) -> list[Heard]:
        """What this feed has heard of one record, the newest last; bounded."""
        return list(self._records.get(digest, ()))

    def knows(self, number: int) -> bool:
        """Whether everything after an event's number is still there."""
        oldest = self._ring[0].number if self._ring else self.newest + 1
        return oldest - 1 <= number <= self.newest

    def after(self, number: int) -> list[Heard]:
        """What came after a number that is known."""
        skip = len(self._ring) - (self.newest - number)
        return list(islice(self._ring, skip, None))

    async def wait(self, number: int, timeout_s: float) -> bool:
        """Until there is more than ``number``, or the feed is over; False when the time is."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.newest <= number and not self.over:
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    async def _listen(self) -> None:
        try:
            # It ends when this process lags behind by a thousand events, or the client closes. Then this feed is over too: its
            # readers come again, to another one, and learn there that they may have missed something.
            async with contextlib.aclosing(self._entry.client.events()) as events:
                async for event in events:
                    self._hear(event)
        except Exception as error:  # noqa: BLE001  (a feed is news; it is logged, and the next reader starts another)
            log_unexpected("feed", error)
        finally:
            self.over = True
            self._wake()

    def _hear(self, event: Event) -> None:
        self.newest += 1
        heard = Heard(self.newest, self._now_ms(), event)
        self._ring.append(heard)
        if event.kind == "drain":
            self.drains[event.worker] = heard
            if len(self.drains) > RECORDS:
                del self.drains[next(iter(self.drains))]
        elif event.digest:
            name = f"{event.domain}:{event.digest}"
            known = self._records.get(name)
            if known is None:
                known = self._records[name] = deque(maxlen=PER_RECORD)
                if len(self._records) > RECORDS:
                    self._records.popitem(last=False)
            known.append(heard)
            self._records.move_to_end(name)
        for listener in self.listeners:
            listener(event)
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def close(self) -> None:
        """Ends it, and its readers with it."""
        self.over = True
        self._task.cancel()
        await asyncio.wait([self._task])


class Feeds:
    """The feeds of a process, by namespace."""

    def __init__(self, now: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self._now = now
        self._monotonic = monotonic
        self._feeds: OrderedDict[str, Feed] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._ending = False

    def of(self, entry: Entry) -> Feed:
        """The feed of a namespace, started if there is none."""
        feed = self._feeds.get(entry.namespace)
        if feed is None or feed.over:
            self._sweep()
            feed = self._feeds[entry.namespace] = Feed(entry, self._now, self._monotonic)
            feed.over = self._ending
        self._feeds.move_to_end(entry.namespace)
        return feed.use()

    def _sweep(self) -> None:
        for namespace, feed in list(self._feeds.items()):
            if feed.over or feed.idle_s > IDLE_S or len(self._feeds) >= MAX_FEEDS:
                self._end(self._feeds.pop(namespace))

    def sweep_idle(self) -> None:
        """Ends what nobody wants any more."""
        for namespace, feed in list(self._feeds.items()):
            if feed.idle_s > IDLE_S:
                self._end(self._feeds.pop(namespace))

    def _end(self, feed: Feed) -> None:
        task = asyncio.create_task(feed.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def end_readers(self) -> None:
        """The process is about to stop: readers are told to go, and none comes any more."""
        self._ending = True
        for feed in self._feeds.values():
            feed.over = True
            feed._wake()

    async def close(self) -> None:
        """Ends all."""
        for feed in self._feeds.values():
            self._end(feed)
        self._feeds.clear()
        await asyncio.gather(*self._closing, return_exceptions=True)
