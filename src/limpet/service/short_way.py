"""The short way of the hottest request, past the parser and ASGI (what may take it: :mod:`limpet.service.shortcut`)."""

from __future__ import annotations

from collections.abc import Awaitable
from http import HTTPStatus
from typing import Final

from limpet.errors import LimpetError
from limpet.results import Resolution
from limpet.service import problems
from limpet.service.clients import Entry
from limpet.service.logs import log_unexpected
from limpet.service.protocol import Protocol
from limpet.service.shortcut import MAX_HEAD_BYTES as SHORT_HEAD_BYTES
from limpet.service.shortcut import START, Plan, Shortcut

__all__ = ["ShortWay"]

MAX_HELD_BYTES: Final = 64 * 1024
"""What a client may send ahead while it waits for an answer; then reading stops."""


class ShortWay(Protocol):
    """The protocol within limits, and the short way.

    A request takes the short way only when it came whole, alone and between two others, so the parser never sees it and does not
    have to. What arrives while its answer is out waits in ``_held``.
    """

    _busy = False
    _last = False
    _held = b""
    _stamp: object = None
    _common = b""
    _idle_since = 0.0

    @property
    def _shortcut(self) -> Shortcut | None:
        return getattr(self.config.app, "shortcut", None)

    # -- the transport's -----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._busy:
            self._held += data
            if len(self._held) > MAX_HELD_BYTES:
                self.flow.pause_reading()
            return
        if not self._message and data.startswith(START) and self._short(data):
            return
        super().data_received(data)

    def shutdown(self) -> None:
        if self._busy:
            self._last = True
        else:
            super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if self._busy or left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(max(left, 1), self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    # -- the short way -------------------------------------------------------------------------------------------------

    def _short(self, data: bytes) -> bool:
        shortcut = self._shortcut
        cycle = self.cycle
        if shortcut is None or (cycle is not None and not cycle.response_complete) or self.flow.write_paused:
            return False
        end = data.find(b"\r\n\r\n", 0, SHORT_HEAD_BYTES) + 4
        if end < 4 or self.transport.is_closing():
            return False
        plan = shortcut.plan(data[:end])
        if plan is None or len(data) - end != plan.length:
            return False
        self._busy = True
        if shortcut.start(plan, data[end:], self._answer, self._later):
            self._untime()
            return True
        self._busy = False
        return False

    def _answer(self, content_type: bytes, body: bytes, status: bytes = b"200 OK", more: bytes = b"") -> None:
        """Writes an answer, and goes on with what has come meanwhile."""
        self._busy = False
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        common = self.server_state.default_headers
        if common is not self._stamp:  # uvicorn makes a new list when the date changes
            self._stamp = common
            self._common = b"".join(b"%b: %b\r\n" % field for field in common)
        self.transport.write(
            b"HTTP/1.1 %b\r\n%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b\r\n%b"
            % (status, self._common, content_type, len(body), more, b"connection: close\r\n" if self._last else b"", body)
        )
        if self._last:
            self.transport.close()
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        if self._held:
            held, self._held = self._held, b""
            self.flow.resume_reading()
            self.data_received(held)

    def _later(self, entry: Entry, found: Awaitable[Resolution], plan: Plan) -> None:
        task = self.loop.create_task(self._finish(entry, found, plan))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _finish(self, entry: Entry, found: Awaitable[Resolution], plan: Plan) -> None:
        try:
            resolution = await found
        except LimpetError as error:
            self._refuse(error)
        except Exception as error:  # noqa: BLE001  (the last line of defence: logged, and answered with 500)
            log_unexpected("POST hot route", error)
            self._refuse(problems.unexpected())
        else:
            self._answer(plan.answer.header, plan.answer.encode(resolution))
        finally:
            entry.active -= 1

    def _refuse(self, error: LimpetError) -> None:
        more = b"".join(b"%b: %b\r\n" % field for field in problems.headers_of(error))
        body = problems.encode(problems.problem_of(error))
        self._answer(problems.CONTENT_TYPE, body, f"{error.status} {HTTPStatus(error.status).phrase}".encode(), more)
