"""The client's end of one request: what was sent to it, and whether it is still there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive, Scope, Send

from limpet.errors import LimpetError
from limpet.gateway.problems import Headers, document, headers_for
from limpet.service.body import Disconnected
from limpet.service.flow import GONE
from limpet.service.problems import CONTENT_TYPE

__all__ = ["ClientSide"]


class ClientSide:
    """``status`` is what was sent, None before; ``gone`` that the client went away before the end of the answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.receive = receive
        self._send = send
        self._gone: asyncio.Future[None] = scope[GONE]
        self.status: int | None = None
        self.finished = False
        self.gone = False

    # -- out -----------------------------------------------------------------------------------------------------------

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send status and headers."""
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, data: bytes) -> None:
        """Send a piece of the body; waits while the client is slower than the upstream."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes = b"") -> None:
        """Send the last piece."""
        self.finished = True
        await self._send({"type": "http.response.body", "body": data})

    async def fail(self, error: LimpetError) -> None:
        """Answer with an error, if nothing was sent yet."""
        if self.status is not None or self.gone:
            return
        data = document(error)
        await self.start(
            error.status,
            [(b"content-type", CONTENT_TYPE), (b"content-length", b"%d" % len(data)), *_extra(error)],
        )
        await self.finish(data)

    # -- in ------------------------------------------------------------------------------------------------------------

    async def body(self) -> AsyncIterator[bytes]:
        """The request's body as it comes. Raises Disconnected."""
        while True:
            message = await self.receive()
            if message["type"] != "http.request":
                self.gone = True
                raise Disconnected
            if data := message.get("body", b""):
                yield data
            if not message.get("more_body", False):
                return

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """While inside, a client that goes away cancels what is inside; leaving then raises Disconnected."""
        me = asyncio.current_task()
        assert me is not None
        watched = True

        def left(_: asyncio.Future[None]) -> None:
            if watched and not self.finished:
                self.gone = True
                me.cancel()

        self._gone.add_done_callback(left)
        try:
            yield
        except asyncio.CancelledError:
            if not self.gone:
                raise
            me.uncancel()
            raise Disconnected from None
        else:
            if self.gone:  # cancelled between two awaits: the cancellation is still to come
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:
                    me.uncancel()
                raise Disconnected
        finally:
            watched = False
            self._gone.remove_done_callback(left)


def _extra(error: LimpetError) -> Headers:
    return headers_for(error)
