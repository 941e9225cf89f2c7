"""Ways to answer "which worker has this session; bind it if none has it", each as a careful engineer writes it today.

Every way does the same job: of the callers that meet an unbound session one dispatches the first request (``dispatch``, which
may take long or never return: a process that died), the others wait for it, and all go to the worker that it was bound to.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import redis.asyncio
from redis.exceptions import LockError

from limpet.bind import Bind
from limpet.coordinator import Limpet
from limpet.errors import StaleFence

__all__ = ["WAYS", "Answer", "Crash", "Dispatch", "Way"]

POLL_S: Final = 0.005
BIND_TTL_S: Final = 60
_RELEASE: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end"


class Crash(BaseException):
    """The caller died while it dispatched: no error but the end of a process, in which nothing is cleaned up."""


class Answer(NamedTuple):
    """``bound``: this caller dispatched the first request, and was not told that somebody else had taken over."""

    worker: str
    bound: bool


Dispatch = Callable[[str], Awaitable[None]]


class Way(Protocol):
    """One contender in one process."""

    async def turn(self, session: str, candidate: str, dispatch: Dispatch) -> Answer:
        """Where this session's turn goes."""


async def _known(client: redis.asyncio.Redis, name: str) -> str | None:
    """The worker, and its time slides."""
    found = await client.getex(name, ex=BIND_TTL_S)
    return found.decode() if isinstance(found, bytes) else found


class _Table:
    """A table per process: what a router replica does by itself. Unsafe with more than one."""

    def __init__(self) -> None:
        self._table: dict[str, asyncio.Future[str]] = {}

    async def turn(self, session: str, candidate: str, dispatch: Dispatch) -> Answer:
        """As asked for."""
        if (known := self._table.get(session)) is not None:
            return Answer(await asyncio.shield(known), False)
        mine = self._table[session] = asyncio.get_running_loop().create_future()
        try:
            await dispatch(candidate)
        except Crash:  # the table dies with its process
            del self._table[session]
            mine.cancel()
            raise
        mine.set_result(candidate)
        return Answer(candidate, True)


class _SetNx:
    """``SET NX`` decides. It is at once claim and binding: nobody waits for the first request, or notices that it never comes."""

    def __init__(self, client: redis.asyncio.Redis, ttl_s: float) -> None:
        self._client = client

    async def turn(self, session: str, candidate: str, dispatch: Dispatch) -> Answer:
        """As asked for."""
        name = f"session:{session}"
        while True:
            worker = await _known(self._client, name)
            if worker is not None:
                return Answer(worker, False)
            if await self._client.set(name, candidate, nx=True, ex=BIND_TTL_S):
                try:
                    await dispatch(candidate)
                except Exception:
                    await self._client.delete(name)
                    raise
                return Answer(candidate, True)


class _Lock:
    """redis-py's ``Lock`` around GET, the first request, and SET; a look without the lock first."""

    def __init__(self, client: redis.asyncio.Redis, ttl_s: float) -> None:
        self._client = client
        self._ttl_s = ttl_s

    async def turn(self, session: str, candidate: str, dispatch: Dispatch) -> Answer:
        """As asked for."""
        name = f"session:{session}"
        worker = await _known(self._client, name)
        if worker is not None:
            return Answer(worker, False)
        async with self._locked(session):
            worker = await _known(self._client, name)
            if worker is not None:
                return Answer(worker, False)
            await dispatch(candidate)
            await self._client.set(name, candidate, ex=BIND_TTL_S)
            return Answer(candidate, True)

    @contextlib.asynccontextmanager
    async def _locked(self, session: str) -> AsyncIterator[None]:
        lock = self._client.lock(f"lock:{session}", timeout=self._ttl_s, sleep=POLL_S)
        await lock.acquire()
        try:
            yield
        except Crash:
            raise
        except BaseException:
            await lock.release()
            raise
        with contextlib.suppress(LockError):  # it ran out meanwhile: what was done is done
            await lock.release()


class _Redlock(_Lock):
    """The published algorithm over three servers: a majority of ``SET NX PX`` within the validity, else give back and retry."""

    def __init__(self, clients: Sequence[redis.asyncio.Redis], ttl_s: float) -> None:
        super().__init__(clients[0], ttl_s)
        self._clients = clients
        self._releases = [client.register_script(_RELEASE) for client in clients]

    @contextlib.asynccontextmanager
    async def _locked(self, session: str) -> AsyncIterator[None]:
        name, token = f"lock:{session}", secrets.token_hex(16)
        while not await self._acquired(name, token):
            await self._give_back(name, token)
            await asyncio.sleep(POLL_S * (1 + secrets.randbelow(1000) / 1000))
        try:
            yield
        except Crash:
            raise
        except BaseException:
            await self._give_back(name, token)
            raise
        await self._give_back(name, token)

    async def _acquired(self, name: str, token: str) -> bool:
        began = time.monotonic()
        ttl_ms = int(self._ttl_s * 1000)
        got = await asyncio.gather(
            *(client.set(name, token, nx=True, px=ttl_ms) for client in self._clients), return_exceptions=True
        )
        valid_s = self._ttl_s - (time.monotonic() - began) - self._ttl_s * 0.01 - 0.002  # the paper's drift
        return sum(each is True for each in got) > len(self._clients) // 2 and valid_s > 0

    async def _give_back(self, name: str, token: str) -> None:
        await asyncio.gather(*(release(keys=[name], args=[token]) for release in self._releases), return_exceptions=True)


class _Limpet:
    """A claim, the first request, a confirm."""

    def __init__(self, client: Limpet, ttl_s: float) -> None:
        self._client = client
        self._ttl_ms = int(ttl_s * 1000)

    async def turn(self, session: str, candidate: str, dispatch: Dispatch) -> Answer:
        """As asked for."""
        bind = Bind(worker=candidate, claim_ttl_ms=self._ttl_ms, wait_ms=10_000)
        while True:
            binding = (await self._client.resolve(session, session_id=session, bind=bind)).binding
            if binding is None or binding.worker is None:
                raise RuntimeError("The store did not answer within the deadline, so this says nothing about it.")
            if binding.action != "bind" or binding.fence is None:
                return Answer(binding.worker, False)
            await dispatch(binding.worker)
            try:
                await self._client.confirm(session, fence=binding.fence)
                return Answer(binding.worker, True)
            except StaleFence:
                continue  # somebody took over while we were slow: follow


@contextlib.asynccontextmanager
async def _table(urls: Sequence[str], ttl_s: float) -> AsyncIterator[Way]:
    yield _Table()


@contextlib.asynccontextmanager
async def _plain(make: Callable[[Any, float], Way], urls: Sequence[str], ttl_s: float) -> AsyncIterator[Way]:
    async with redis.asyncio.Redis.from_url(urls[0], max_connections=1024) as client:
        yield make(client, ttl_s)


@contextlib.asynccontextmanager
async def _redlock(urls: Sequence[str], ttl_s: float) -> AsyncIterator[Way]:
    async with contextlib.AsyncExitStack() as stack:
        clients = [redis.asyncio.Redis.from_url(url, max_connections=1024) for url in urls]
        for client in clients:
            await stack.enter_async_context(client)
        yield _Redlock(clients, ttl_s)


@contextlib.asynccontextmanager
async def _limpet(urls: Sequence[str], ttl_s: float) -> AsyncIterator[Way]:
    async with Limpet.connect(urls[0], deadline_ms=10_000, durability="none") as client:
        yield _Limpet(client, ttl_s)


Open = Callable[[Sequence[str], float], contextlib.AbstractAsyncContextManager[Way]]
WAYS: Final[dict[str, Open]] = {
    "limpet": _limpet,
    "redis-py Lock, GET/SET": lambda urls, ttl_s: _plain(_Lock, urls, ttl_s),
    "SET NX, GET": lambda urls, ttl_s: _plain(_SetNx, urls, ttl_s),
    "Redlock over 3, GET/SET": _redlock,
    "a dict per process": _table,
}
"""Name -> what opens it: (store URLs, seconds that a claim or lock lives)."""
