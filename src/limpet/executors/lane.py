"""One multiplexed connection to one node: all concurrent calls share it, written once and parsed once per loop tick.

redis-py connects (address, TLS, authentication, database, protocol); then this protocol takes its transport over, because
a command at a time through redis-py costs three to sixteen times as much (measured). Replies come in the order of
the commands, so a deque of futures is all the bookkeeping there is.

Not guaranteed: that a call whose lane was lost did not take effect. The executor retries it under the same request id.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, RedisError

from limpet.errors import StoreUnavailable
from limpet.executors.breaker import Breaker

__all__ = ["Check", "Connector", "Lane", "LaneLost", "ReplyError", "Unreachable", "unheeded"]

ReplyError = hiredis.ReplyError
Connector = Callable[[], AbstractConnection]
Check = Callable[[AbstractConnection], Awaitable[None]]

MAX_IN_FLIGHT: Final = 4096
"""Calls waiting for their reply on one lane; more wait for their turn, in order."""
SWEEP_S: Final = 0.01
"""How late a deadline may be noticed."""
STUCK_S: Final = 2.0
"""A lane whose oldest call has waited this long without an answer is given up and connected anew."""


class LaneLost(Exception):
    """The connection went away; whether the call took effect is unknown."""


class Unreachable(StoreUnavailable):
    """No connection just now: nothing was sent, and within the deadline it is tried again."""


class Lane(asyncio.Protocol):
    """A connection in use. Made by :meth:`open`; not usable again once lost."""

    def __init__(
        self,
        connection: AbstractConnection,
        on_batch: Callable[[int], None] | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.breaker = breaker or Breaker(self._loop.time)
        self._reader = hiredis.Reader()
        self._pending: deque[tuple[asyncio.Future[Any], float, float]] = deque()
        self._out: list[bytes] = []
        self._flush_scheduled = False
        self._sweep: asyncio.TimerHandle | None = None
        self._room: deque[asyncio.Future[None]] = deque()
        self._writable = True
        self._on_batch = on_batch
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self.lost = False
        # The stream objects of redis-py stay referenced: their finaliser would close the transport under us.
        writer = connection._writer  # redis-py has no public way to the transport
        assert writer is not None
        socket = writer.transport.get_extra_info("socket")
        if socket is None or writer.transport.is_closing():
            raise Unreachable("The store took the connection and closed it at once.")
        connection._reader = connection._writer = None  # it no longer owns the socket
        self._writer = writer
        self._transport: asyncio.WriteTransport = writer.transport
        self._transport.set_protocol(self)
        self._socket = -1 if writer.transport.get_extra_info("sslcontext") else socket.fileno()

    @classmethod
    async def open(
        cls,
        connector: Connector,
        *,
        timeout_s: float,
        on_batch: Callable[[int], None] | None = None,
        breaker: Breaker | None = None,
        check: Check | None = None,
    ) -> Lane:
        """Connects. ``check`` may look at the connection first, and refuse it.

        Raises Unreachable (cannot connect, too slow), or StoreUnavailable for what no retry mends (wrong credentials).
        """
        connection = connector()
        try:
            async with asyncio.timeout(timeout_s):
                await connection.connect()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
                if check is not None:
                    await check(connection)
            return cls(connection, on_batch, breaker)
        except TimeoutError:
            raise Unreachable(
                f"The store did not take a connection within {timeout_s:.3g} s; check that it runs, and that redis:// or "
                "rediss:// (TLS) is what it speaks."
            ) from None
        except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
            raise StoreUnavailable(
                f"The store refuses the credentials in its URL ({str(error).rstrip('.')}); mend user and password there."
            ) from error
        except (RedisError, OSError, RuntimeError) as error:  # uvloop's RuntimeError: written to a connection that was reset
            if isinstance(error.__context__, ssl.SSLCertVerificationError):
                raise StoreUnavailable(f"The store's certificate is not trusted ({error.__context__.verify_message}).") from error
            raise Unreachable(f"Cannot connect to the store ({error}); check its address and that it runs.") from error
        finally:
            if connection._writer is not None:  # not handed over: it failed, or we were cancelled
                await connection.disconnect(nowait=True)

    # -- sending -------------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Calls whose reply has not come yet."""
        return len(self._pending)

    def send(self, command: tuple[Any, ...], deadline: float) -> asyncio.Future[Any]:
        """Queues a command; the future gets its reply, ReplyError, LaneLost, or StoreUnavailable past the deadline
        (loop time). An idle lane writes at once; a busy one once per tick, for all that came in it."""
        return self.send_packed(hiredis.pack_command(command), deadline, self._loop.time())

    def send_packed(self, command: bytes, deadline: float, now: float) -> asyncio.Future[Any]:
        """:meth:`send` for a command that is packed already; ``now`` is the loop's time."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.lost:
            future.set_exception(LaneLost())
            return future
        idle = not self._pending
        self._pending.append((future, deadline, now))
        self._out.append(command)
        if self._sweep is None:
            self._sweep = self._loop.call_at(min(deadline, now + SWEEP_S) if idle else now + SWEEP_S, self._on_sweep)
        if idle and self._writable:
            self._flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        return future

    def send_asking(self, command: tuple[Any, ...], deadline: float) -> asyncio.Future[Any]:
        """The same behind an ASKING, with nothing in between: how a slot's next owner is asked while the slot moves."""
        self.send(("ASKING",), deadline).add_done_callback(unheeded)
        return self.send(command, deadline)

    async def room(self, deadline: float) -> None:
        """Waits, in order, until the lane may take one more call. Raises StoreUnavailable past the deadline."""
        while len(self._pending) >= MAX_IN_FLIGHT and not self.lost:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._room.append(turn)
            try:
                async with asyncio.timeout_at(deadline):
                    await turn
            except TimeoutError:
                raise StoreUnavailable("The store is slower than the calls that come in; none was sent. Retry later.") from None

    def full(self) -> bool:
        """Whether :meth:`room` would wait."""
        return len(self._pending) >= MAX_IN_FLIGHT

    def _flush(self) -> None:
        self._flush_scheduled = False
        if not self._out or not self._writable or self.lost:
            return
        batch, self._out = self._out, []
        if self._on_batch is not None:
            self._on_batch(len(batch))
        data = batch[0] if len(batch) == 1 else b"".join(batch)
        if self._socket >= 0 and not self._transport.is_closing() and not self._transport.get_write_buffer_size():
            # uvloop's transport writes at the end of the loop's turn; the store can begin now.
            try:
                sent = os.write(self._socket, data)
            except OSError:  # full, or broken: the transport waits, or meets the same fault and tells `connection_lost` of it
                sent = 0
            if sent == len(data):
                return
            data = data[sent:]
        self._transport.write(data)

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Hands each complete reply to its caller."""
        reader, pending = self._reader, self._pending
        reader.feed(data)
        try:
            reply = reader.gets()
            while reply is not False:
                future = pending.popleft()[0]
                if not future.done():
                    if isinstance(reply, ReplyError):
                        future.set_exception(reply)
                    else:
                        future.set_result(reply)
                reply = reader.gets()
        except (hiredis.ProtocolError, IndexError):
            self._transport.abort()  # not a RESP peer, or one reply too many: nothing on this connection can be trusted
            return
        while self._room and len(pending) < MAX_IN_FLIGHT:
            turn = self._room.popleft()
            if not turn.done():
                turn.set_result(None)
                break

    def pause_writing(self) -> None:
        """Back-pressure from the socket: commands stay queued here."""
        self._writable = False

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._writable = True
        self._flush()

    def eof_received(self) -> bool:
        """The server is done with us, and so are we."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Every call in flight learns that its fate is unknown."""
        self.lost = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._out.clear()
        while self._pending:
            future = self._pending.popleft()[0]
            if not future.done():
                future.set_exception(LaneLost())
        while self._room:
            turn = self._room.popleft()
            if not turn.done():
                turn.set_result(None)
        if not self._closed.done():
            self._closed.set_result(None)

    # -- deadlines -----------------------------------------------------------------------------------------------------

    def _on_sweep(self) -> None:
        self._sweep = None
        if not self._pending:
            return
        now = self._loop.time()
        for future, deadline, _ in self._pending:
            if deadline <= now and not future.done():
                future.set_exception(
                    StoreUnavailable("The store did not answer within the deadline; retry with the same request id.")
                )
        if now - self._pending[0][2] > STUCK_S:
            self._transport.abort()
            return
        self._sweep = self._loop.call_at(now + SWEEP_S, self._on_sweep)

    def close(self) -> Awaitable[None]:
        """Closes the connection; calls in flight get LaneLost. The awaitable is done once the socket is."""
        self.lost = True
        self._transport.abort()
        return self._closed


def unheeded(future: asyncio.Future[Any]) -> None:
    """Marks a reply that nobody awaits as looked at."""
    if not future.cancelled():
        future.exception()
