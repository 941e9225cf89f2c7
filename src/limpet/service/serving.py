"""One server process: uvicorn (uvloop, httptools) on a socket that is already bound."""

from __future__ import annotations

import gc
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from limpet.service.build import Built, build
from limpet.service.events import ABORT
from limpet.service.logs import logger
from limpet.settings import Settings

__all__ = ["REFUSED", "configure", "serve"]

REFUSED: Final = 78
"""Exit code of a worker that a restart would not help (the store disagrees): EX_CONFIG."""
MAX_HEAD_BYTES: Final = 64 * 1024
KEEP_ALIVE_S: Final = 75


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol with a bound on request line and headers, and without two liberties of its parser.

    Trailers are dropped: it would append them to the headers, past every proxy that guards those (RFC 9110, section 6.5.1). Space
    after a value is no part of it (section 5.5): a key must not get past those who compare by it.
    """

    _head = 0
    _in_head = True

    def on_message_begin(self) -> None:
        self._head, self._in_head = 0, True
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[typeddict-unknown-key]

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and self.parser is not None:
            self._head += len(data)
            if self._head > MAX_HEAD_BYTES:
                self.send_400_response("Request line and headers are too large.")


class _Server(uvicorn.Server):
    """uvicorn's server with our signals (it would kill the process again at the end, before the store is released)."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            # What start-up made lives as long as we do: without it a full collection takes tens of milliseconds less.
            gc.collect()
            gc.freeze()
            self._on_started(self._stop)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A stream of events goes on for ever; everything else in flight is waited for.
        getattr(self.config.app, "end_readers", lambda: None)()
        await super().shutdown(sockets)

    def _stop(self) -> None:
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before: dict[int, Any] = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def configure(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """How uvicorn serves an application of ours."""
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        workers=1,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.shutdown_grace_s,
    )


def serve(
    settings: Settings,
    listener: socket.socket,
    on_started: Callable[[Callable[[], None]], None],
    make: Callable[[Settings], Built] = build,
) -> int:
    """Serve until SIGTERM or SIGINT, then finish what is in flight.

    Args:
        settings: with a ``redis_url``.
        listener: bound, listening.
        on_started: called in the loop once requests are served, with a function that begins a graceful stop.
        make: what is served; the service by default, or the gateway.

    Returns:
        0, or :data:`REFUSED` when the store disagrees with the settings.
    """
    parts = make(settings)
    try:
        _Server(configure(parts.app, settings), on_started).run([listener])
    except SystemExit:
        if parts.pages.refusal is None:
            raise
    if parts.pages.refusal is not None:
        logger.error("refused to start", code=parts.pages.refusal.code, reason=str(parts.pages.refusal))
        return REFUSED
    return 0
