"""uvicorn's HTTP protocol with bounds on what a client may hold: bytes of the head, time, and connections.

Without them a client that sends a byte now and then (slowloris), or only connects, holds a connection for ever. The times cost a
normal request nothing: a timer runs only while a head or a body is incomplete after what has arrived.

And without two liberties of its parser: trailers are dropped, since it would append them to the headers, past every proxy that
guards those (RFC 9110, section 6.5.1); and space after a value is no part of it (section 5.5), so that a key cannot get past who
compares by it.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar, Final, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from limpet.service import problems
from limpet.service.events import ABORT
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

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.write(_BUSY)
            transport.close()
            return
        self._time(self.limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._untime()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._piece, self._begun, inside = len(data), 0, self._message
        super().data_received(data)
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

    def on_message_begin(self) -> None:
        self._head, self._in_head, self._message = 0, True, True
        self._begun += 1
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[typeddict-unknown-key]

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
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
        self._untime()
        self._in_body = self._message = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self.transport.write(_closing(problems.MalformedRequest(msg)))
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """An upgrade is not taken, as RFC 9110 (section 7.8) has it; there is nothing to install."""

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
