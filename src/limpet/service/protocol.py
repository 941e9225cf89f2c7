"""uvicorn's HTTP protocol with bounds on what a client may hold: bytes of the head, time, and connections.

Without them a client that sends a byte now and then (slowloris), or only connects, holds a connection for ever. The times cost a
normal request nothing: a timer runs only while a head or a body is incomplete after what has arrived.

And without three liberties of its parser. Trailers are dropped, since it would append them to the headers, past every proxy that
guards those (RFC 9110, section 6.5.1). Space after a value is no part of it (section 5.5), so that a key cannot get past who
compares by it. And a request that offers an upgrade is a request like any other, as nothing is upgraded here (section 7.8): the
parser would end it with its head, and take its body, which a proxy before us passed as one, for the next request.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar, Final, NamedTuple

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from limpet.service import problems
from limpet.service.events import ABORT
from limpet.service.flow import GONE, Watched
from limpet.settings import Settings

__all__ = ["MAX_HEAD_BYTES", "MIN_BODY_BYTES_PER_S", "Limits", "Protocol", "limited"]

MAX_HEAD_BYTES: Final = 64 * 1024
MIN_BODY_BYTES_PER_S: Final = 512
"""A body that comes slower than this over ``LIMPET_BODY_TIMEOUT_S`` is given up."""


def _closing(error: problems.HttpError) -> bytes:
    """A whole answer, for where there is no request to answer by the usual way."""
    body = problems.encode(problems.problem_of(error))
    head = b"HTTP/1.1 %d %b\r\n" % (error.status, HTTPStatus(error.status).phrase.encode())
    fields = ((b"content-type", problems.CONTENT_TYPE), (b"content-length", b"%d" % len(body)), *error.headers)
    return head + b"".join(b"%b: %b\r\n" % field for field in fields) + b"connection: close\r\n\r\n" + body


_BUSY: Final = _closing(problems.TooManyConnections("This process has as many connections as it may."))
_SLOW: Final = _closing(problems.TooSlow("The request came too slowly."))
_NO_TUNNEL: Final = _closing(problems.MethodNotAllowed("CONNECT is not taken: there is no tunnel here.", allow="GET, POST"))
_OFFER: Final = frozenset({b"upgrade", b"http2-settings"})


class Limits(NamedTuple):
    """Seconds for a head, seconds that a body's progress is measured over, and connections at once."""

    head_s: float
    body_s: float
    connections: int


class Protocol(HttpToolsProtocol):
    """One connection. Make a class with limits of its own by :func:`limited`."""

    limits: ClassVar[Limits]
    _head = 0
    _in_head = True
    _message = False
    _begun = 0
    _in_body = False
    _arrived = 0
    _piece = 0
    _paused = False
    _timer: asyncio.TimerHandle | None = None
    flow: Watched
    _gone: asyncio.Future[None]
    _running: Any = None
    _offering = False
    _offered: tuple[tuple[bytes, bytes], ...] = ()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Watched(transport, self.loop)
        self._gone = self.loop.create_future()
        if len(self.connections) > self.limits.connections:
            transport.write(_BUSY)
            transport.close()
            return
        self._time(self.limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._untime()
        self.flow.stop()
        if not self._gone.done():
            self._gone.set_result(None)
        running, self._running = self._running, None
        if running is not None and not running.response_complete:  # uvicorn tells the newest only, which may wait in its pipeline
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._piece, self._begun, inside = len(data), 0, self._message
        self._feed(data)
        if self.parser is None or self.transport.is_closing():
            return
        if self._in_body:
            if self._timer is None:
                self._time(self.limits.body_s)
        elif self._in_head or self._idle:
            # Also while nothing but empty lines came: they end uvicorn's own time for an idle connection.
            if self._timer is None:
                self._time(self.limits.head_s)
            if self._in_head:
                if not self._begun or (self._begun == 1 and not inside):  # else most of this was other requests (pipelining)
                    self._head += len(data)
                if self._head > MAX_HEAD_BYTES:
                    self.send_400_response("Request line and headers are too large.")

    def _feed(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        pieces = [data]
        while pieces:
            piece = pieces.pop(0)
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade as offer:
                if not self.transport.is_closing():
                    pieces[:0] = [self._without_offer(), piece[offer.args[0] :]]
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
                return

    def _without_offer(self) -> bytes:
        """The head that was just read, for a new parser, without its offer."""
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        self._offered = tuple(field for field in self.headers if field[0] == b"upgrade")
        for name, value in self.headers:
            if name == b"connection":
                value = b",".join(part for part in value.split(b",") if part.strip().lower() not in _OFFER)
            if name not in _OFFER:
                lines.append(b"%b: %b" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._offering = False
        self._begun -= 1
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_message_begin(self) -> None:
        self._head, self._in_head, self._message = 0, True, True
        self._begun += 1
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[typeddict-unknown-key]
        self.scope[GONE] = self._gone  # type: ignore[typeddict-unknown-key]

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            self._offering = True
            if self.parser.get_method() == b"CONNECT":
                self.transport.write(_NO_TUNNEL)
                self.transport.close()
            return
        if self._offered:  # for the application, which may have something to say about it
            self.headers.extend(self._offered)
            self._offered = ()
        self._untime()
        if self._head + self._piece > MAX_HEAD_BYTES and self._size() > MAX_HEAD_BYTES:
            raise ValueError("the head is too large")  # which the parser turns into its own error, and uvicorn into a 400
        self._in_head, self._in_body, self._arrived, self._paused = False, True, 0, False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._arrived += len(body)
        super().on_body(body)
        self._paused = self._paused or self.flow.read_paused

    def on_message_complete(self) -> None:
        if self._offering:
            return
        self._untime()
        self._in_body = self._message = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self.transport.write(_closing(problems.MalformedRequest(msg)))
        self.transport.close()

    def _size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _time(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._late)

    def _untime(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._in_body:
            if self._paused or self._arrived >= MIN_BODY_BYTES_PER_S * self.limits.body_s:
                # Enough came, or we did not take it: an upstream behind the gateway may be the slow one.
                self._arrived, self._paused = 0, self.flow.read_paused
                self._time(self.limits.body_s)
                return
        elif not self._idle:  # the answer before this head is still being made
            self._time(self.limits.head_s)
            return
        cycle: Any = self.cycle
        if self._in_body:
            told = not cycle.response_started
            cycle.disconnected = True
            cycle.message_event.set()
        else:  # of a client that only connected nobody waits for an answer
            told = self._in_head and self._head > 0
        if told:
            self.transport.write(_SLOW)
        self.transport.close()


def limited(protocol: type[Protocol], settings: Settings) -> type[Protocol]:
    """A protocol within the limits of the settings."""
    limits = Limits(settings.head_timeout_s, settings.body_timeout_s, settings.max_connections)
    return type(protocol.__name__, (protocol,), {"limits": limits})
