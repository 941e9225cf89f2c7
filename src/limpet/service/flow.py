"""uvicorn's flow control, which also notices that a client has left while nothing is read of it.

Reading stops while a client has sent more than is wanted yet: another request before this one is answered (pipelining), or a body
that is taken more slowly than it comes. The end of its data is not read either, then, so a client that is gone would hold its
connection, its request and its claim for as long as the request takes.
"""

from __future__ import annotations

import asyncio
import select
from typing import Final

from uvicorn.protocols.http.flow_control import FlowControl

__all__ = ["GONE", "Watched"]

GONE: Final = "limpet.gone"
"""In the scope of a request: a future that is done once its connection is lost."""

LOOK_EVERY_S: Final = 1.0
_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
"""Where there is no POLLRDHUP (macOS), only a connection that is closed both ways is noticed."""


class Watched(FlowControl):
    """As uvicorn's; a client that hangs up while it is not read is cut off within a second."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(transport)
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def pause_reading(self) -> None:
        super().pause_reading()
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_EVERY_S, self._look)

    def resume_reading(self) -> None:
        super().resume_reading()
        self.stop()

    def stop(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._transport.is_closing():
            return
        if self._hung_up():
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(LOOK_EVERY_S, self._look)

    def _hung_up(self) -> bool:
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), _HUNG_UP)
        return bool(poll.poll(0))
