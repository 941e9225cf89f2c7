"""One server process: uvicorn (uvloop, httptools) on a socket that is already bound."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from limpet.service.build import Built, build
from limpet.service.logs import logger
from limpet.service.protocol import limited
from limpet.service.short_way import ShortWay
from limpet.service.tls import make_context, renew
from limpet.settings import Settings, SettingsInvalid

__all__ = ["REFUSED", "configure", "serve"]

REFUSED: Final = 78
"""Exit code of a worker that a restart would not help (the store disagrees): EX_CONFIG."""
KEEP_ALIVE_S: Final = 75


class _Server(uvicorn.Server):
    """uvicorn's server with our signals (it would kill the process again at the end, before the store is released)."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[Callable[[], None]], None], settings: Settings) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._settings = settings

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            if self.config.ssl is not None:
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._renew)
            # What start-up made lives as long as we do: without it a full collection takes tens of milliseconds less.
            gc.collect()
            gc.freeze()
            # A request makes next to no cycles: looking for them after every 700 objects only costs the tail.
            gc.set_threshold(50_000, 20, 20)
            self._on_started(self._stop)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A stream of events goes on for ever; everything else in flight is waited for.
        getattr(self.config.app, "end_readers", lambda: None)()
        await super().shutdown(sockets)

    def _renew(self) -> None:
        """SIGHUP: the certificate was renewed. A faulty one changes nothing."""
        assert self.config.ssl is not None
        try:
            renew(self.config.ssl, self._settings)
        except SettingsInvalid as error:
            logger.error("certificate not renewed", reason=str(error))
        else:
            logger.info("certificate renewed")

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
    """How uvicorn serves an application of ours. Raises SettingsInvalid for TLS files that cannot be used."""
    context = make_context(settings)
    return uvicorn.Config(
        app,
        ssl_context_factory=None if context is None else lambda _, __: context,
        loop="uvloop",
        http=limited(ShortWay, settings),
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
        _Server(configure(parts.app, settings), on_started, settings).run([listener])
    except SystemExit:
        if parts.pages.refusal is None:
            raise
    if parts.pages.refusal is not None:
        logger.error("refused to start", code=parts.pages.refusal.code, reason=str(parts.pages.refusal))
        return REFUSED
    return 0
