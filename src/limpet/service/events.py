"""``GET /v1/events``: Server-Sent Events of one namespace, with ids, and resumed by ``Last-Event-ID`` (design, section 7).

A reader has a place in the feed's ring and no queue of its own: it can neither hold up the feed nor cost memory. One that is
overtaken, or does not take what it is sent for ten seconds, is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from limpet.errors import InvalidRequest
from limpet.service.answers import need, query_of
from limpet.service.auth import Guard
from limpet.service.clients import Clients
from limpet.service.feed import Feed, Feeds, Heard, told
from limpet.service.problems import HttpError

__all__ = ["ABORT", "KINDS", "PATH", "Events", "TooManyReaders"]

PATH: Final = "/v1/events"
ABORT: Final = "limpet.abort"
"""Where a request's scope has a function that cuts its connection, under our server."""
KINDS: Final = ("advance", "bind", "rebind", "release", "suspend", "forget", "worker", "drain")
BEAT_S: Final = 15.0
"""A silence this long is broken with a comment, so that proxies do not cut the connection."""
PATIENCE_S: Final = 10.0
MAX_READERS: Final = 128
AT_ONCE: Final = 256
_encode: Final = msgspec.json.Encoder().encode
_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


class TooManyReaders(HttpError):
    """This process has as many readers of events as it may."""

    code = "too_many_readers"
    status = 503
    headers = ((b"retry-after", b"5"),)


class Events:
    """The route."""

    def __init__(self, guard: Guard, clients: Clients, feeds: Feeds) -> None:
        self._guard = guard
        self._clients = clients
        self._feeds = feeds
        self._readers = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One reader, until it goes. Raises LimpetError before anything is sent."""
        need(scope["method"], "GET")
        headers: dict[bytes, bytes] = dict(scope["headers"])
        entry = self._clients.enter(self._guard.enter(headers, "resolve", "admin"))
        kinds = _kinds(query_of(scope, "kind").get("kind"))
        if self._readers >= MAX_READERS:
            raise TooManyReaders(f"This process tells events to {MAX_READERS} readers already; ask another, or later.")
        last_id = headers.get(b"last-event-id", b"").decode("latin-1").strip()
        feed = self._feeds.of(entry)
        self._readers += 1
        feed.readers += 1
        entry.active += 1  # so that its client is not closed under us
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
                return
            writing = asyncio.ensure_future(_write(feed, last_id, kinds, send, scope.get(ABORT)))
            leaving = asyncio.ensure_future(_left(receive))
            try:
                await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (writing, leaving):
                    task.cancel()
                await asyncio.wait((writing, leaving))
            if not writing.cancelled() and (error := writing.exception()) is not None:
                raise error
        finally:
            self._readers -= 1
            feed.readers -= 1
            entry.active -= 1
            feed.use()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _kinds(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    chosen = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not chosen or not chosen <= frozenset(KINDS):
        raise InvalidRequest(f"kind must be one or more of {', '.join(KINDS)}, by commas.", field="kind")
    return chosen


def _begin(feed: Feed, last_id: str) -> tuple[int, bytes]:
    """Where to go on, and what to say first."""
    hello = f": feed {feed.nonce}\nretry: 2000\n\n".encode()
    if not last_id:
        # An id at once, so that whoever is cut off before the first event can resume too.
        return feed.newest, hello + f"id: {feed.nonce}-{feed.newest}\n\n".encode()
    nonce, _, number = last_id.rpartition("-")
    if nonce == feed.nonce and number.isascii() and number.isdigit() and len(number) < 16 and feed.knows(int(number)):
        return int(number), hello
    return feed.newest, hello + _reset(feed, feed.newest, "unknown_id")


def _reset(feed: Feed, number: int, reason: str) -> bytes:
    """The reader may have missed something: what it derived from events has to be read anew."""
    data = _encode({"kind": "reset", "reason": reason})
    return b"id: %s-%d\nevent: reset\ndata: %s\n\n" % (feed.nonce.encode(), number, data)


def _written(feed: Feed, heard: Heard) -> bytes:
    if heard.event.kind == "gap":
        return _reset(feed, heard.number, "subscription_lost")
    kind = heard.event.kind.encode()
    return b"id: %s-%d\nevent: %s\ndata: %s\n\n" % (feed.nonce.encode(), heard.number, kind, _encode(told(heard)))


async def _write(feed: Feed, last_id: str, kinds: frozenset[str] | None, send: Send, abort: Callable[[], None] | None) -> None:
    at, first = _begin(feed, last_id)

    async def put(data: bytes, more: bool = True) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            if abort is not None:
                abort()  # a graceful end would wait for a reader that does not read
            raise

    with contextlib.suppress(TimeoutError):
        await put(first)
        while not feed.over:
            if not await feed.wait(at, BEAT_S):
                await put(b": beat\n\n")
                continue
            if not feed.knows(at):
                break  # overtaken; when it comes again with its last id, it is told so
            news = feed.after(at)[:AT_ONCE]
            if not news:
                continue
            at = news[-1].number
            if data := b"".join(_written(feed, each) for each in news if kinds is None or each.event.kind in (*kinds, "gap")):
                await put(data)
        await put(b"", False)
