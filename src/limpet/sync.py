"""The blocking twin: the same methods, for hosts without an event loop.

One background thread runs the asyncio client, and all threads of the process share its multiplexed connection: calls made at
the same time by many threads leave in one write, and the renewals, the memo and the waits work as they do there.

Not after a fork: open one in each process (a client that was opened before a fork says so instead of hanging).
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from limpet import coordinator
from limpet.bind import Bind
from limpet.clock import Clock
from limpet.context import Published
from limpet.events import Event
from limpet.forks import pid
from limpet.instruments import Instruments
from limpet.maintenance import Drained
from limpet.results import Binding, Resolution
from limpet.turn import Turn as AsyncTurn

__all__ = ["Limpet", "Turn"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[coordinator.Limpet, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Limpet, P], R]:
    def call(self: Limpet, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._wait(method(self._client, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


class Limpet:
    """See :class:`limpet.coordinator.Limpet`, whose methods these are. Thread-safe."""

    def __init__(self, client: coordinator.Limpet) -> None:
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._lock = threading.Lock()

    @classmethod
    def connect(cls, url: str, *, clock: Clock | None = None, instruments: Instruments | None = None, **settings: Any) -> Limpet:
        """A client for the store at ``url``; see :class:`limpet.coordinator.Settings`. Connects on ``with`` or :meth:`open`."""
        return cls(coordinator.Limpet.connect(url, clock=clock, instruments=instruments, **settings))

    def _portal(self) -> asyncio.AbstractEventLoop:
        if self._loop is not None and self._pid == pid():
            return self._loop
        with self._lock:
            if self._loop is not None:
                if self._pid != pid():
                    raise RuntimeError("This client was opened before a fork; open one in each process.")
                return self._loop
            loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._serve, args=(loop,), name="limpet", daemon=True)
            self._thread.start()
            self._loop, self._pid = loop, pid()
            return loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    def _wait(self, coroutine: Coroutine[Any, Any, R]) -> R:
        try:
            loop = self._portal()
        except RuntimeError:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupt must not leave the call running
            raise

    def close(self) -> None:
        """Closes the connections and ends the thread. May be called twice."""
        with self._lock:
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is None or thread is None or self._pid != pid():
            return
        asyncio.run_coroutine_threadsafe(self._client.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def __enter__(self) -> Self:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def namespace(self) -> str:
        """The tenant this client speaks for."""
        return self._client.namespace

    open = _blocking(coordinator.Limpet.open)
    resolve = _blocking(coordinator.Limpet.resolve)
    advance = _blocking(coordinator.Limpet.advance)
    suspend = _blocking(coordinator.Limpet.suspend)
    forget = _blocking(coordinator.Limpet.forget)
    peek = _blocking(coordinator.Limpet.peek)
    epoch = _blocking(coordinator.Limpet.epoch)
    confirm = _blocking(coordinator.Limpet.confirm)
    abort = _blocking(coordinator.Limpet.abort)
    renew = _blocking(coordinator.Limpet.renew)
    release = _blocking(coordinator.Limpet.release)
    rebind = _blocking(coordinator.Limpet.rebind)
    link_response = _blocking(coordinator.Limpet.link_response)
    key_of_response = _blocking(coordinator.Limpet.key_of_response)
    register = _blocking(coordinator.Limpet.register)
    heartbeat = _blocking(coordinator.Limpet.heartbeat)
    workers = _blocking(coordinator.Limpet.workers)
    mark_draining = _blocking(coordinator.Limpet.mark_draining)
    undrain = _blocking(coordinator.Limpet.undrain)
    remove_worker = _blocking(coordinator.Limpet.remove_worker)
    read_record = _blocking(coordinator.Limpet.read_record)
    prune = _blocking(coordinator.Limpet.prune)
    bindings_by_worker = _blocking(coordinator.Limpet.bindings_by_worker)
    health = _blocking(coordinator.Limpet.health)

    def turn(
        self,
        key: str | None = None,
        *,
        session_id: str,
        bind: Bind | Mapping[str, object] | bool | None = True,
        **options: Any,
    ) -> Turn:
        """One turn as a context manager; see :meth:`limpet.coordinator.Limpet.turn`."""
        return Turn(self, self._client.turn(key, session_id=session_id, bind=bind, **options))

    def drain(self, worker: str, *, resume: bool = False, moved: int = 0) -> Iterator[Drained]:
        """See :meth:`limpet.coordinator.Limpet.drain`."""
        passing = self._client.drain(worker, resume=resume, moved=moved)
        while (progress := self._wait(_next(passing))) is not None:
            yield progress

    def events(self) -> Iterator[Event]:
        """Every event of the namespace from now on; ends when this reader lags too far behind, or the client closes."""
        stream = self._wait(_started(self._client))
        try:
            while True:
                event = self._wait(_next(stream))
                if event is None:
                    return
                yield event
        finally:
            if self._loop is not None:
                self._wait(stream.aclose())


class Turn:
    """The blocking form of :class:`limpet.turn.Turn`; publishes in the calling thread's context."""

    def __init__(self, client: Limpet, turn: AsyncTurn) -> None:
        self._client = client
        self._turn = turn
        turn.publishes = False
        self._publication: Published | None = None

    @property
    def resolution(self) -> Resolution:
        """What the turn resolved to."""
        return self._turn.resolution

    @property
    def binding(self) -> Binding | None:
        """The binding as last known."""
        return self._turn.binding

    @property
    def scope(self) -> str:
        """The affinity token for the wire."""
        return self._turn.scope

    @property
    def epoch(self) -> int | None:
        """The generation of the key."""
        return self._turn.epoch

    @property
    def session_id(self) -> str:
        """The caller's physical id."""
        return self._turn.session_id

    @property
    def lost(self) -> bool:
        """Whether another claim was found to hold the binding."""
        return self._turn.lost

    def served_by(self, worker: str, dp_rank: int | None = None) -> None:
        """Names the worker that really served."""
        self._turn.served_by(worker, dp_rank)

    def confirm(self, worker: str | None = None, dp_rank: int | None = None) -> Binding | None:
        """Confirms now instead of at the end."""
        return self._client._wait(self._turn.confirm(worker, dp_rank))

    def abort(self, reason: str = "aborted") -> None:
        """Gives the claim back."""
        self._client._wait(self._turn.abort(reason))

    def __enter__(self) -> Turn:
        self._client._wait(self._turn.__aenter__())
        self._publication = Published(self._turn.publishable)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._client._wait(self._turn.__aexit__(kind, error, trace))
        finally:
            if self._publication is not None:
                self._publication.end()


async def _started(client: coordinator.Limpet) -> AsyncGenerator[Event, None]:
    return client.events()


async def _next(stream: AsyncIterator[T]) -> T | None:
    return await anext(stream, None)  # StopAsyncIteration cannot cross a future
