"""The load generator: ``python -m limpet.bench.http_load`` with a Load as JSON on stdin, a Loaded as JSON on stdout.

Without ``rate`` each connection asks again as soon as it was answered (how much is possible). With ``rate`` requests are due
at fixed instants, whether earlier ones were answered or not, and their latency counts from the instant at which they
were due: what a caller meets, waiting included.
"""

from __future__ import annotations

import asyncio
import itertools
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from limpet.bench.model import percentile
from limpet.bench.processes import answer

__all__ = ["Load", "Loaded", "requests"]

STALL_S: Final = 20.0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """``%d`` in headers and body becomes the number of the request, modulo ``numbers``; from ``first`` on, and ever new,
    where that is 0. ``expects`` has to be in every answer."""

    url: str
    path: str
    body: str
    headers: dict[str, str] = {}
    numbers: int = 0
    first: int = 0
    connections: int = 64
    count: int = 10_000
    rate: float | None = None
    expects: str = ""


class Loaded(msgspec.Struct, frozen=True):
    """Latencies in microseconds."""

    per_second: float
    p50_us: float
    p99_us: float
    last: int


def requests(load: Load) -> Iterator[bytes]:
    """What is sent, one after the other."""

    def one(number: int) -> bytes:
        text = str(number)
        body = load.body.replace("%d", text).encode()
        head = f"POST {load.path} HTTP/1.1\r\nhost: bench\r\ncontent-length: {len(body)}\r\n"
        head += "".join(f"{name}: {value.replace('%d', text)}\r\n" for name, value in load.headers.items())
        return head.encode() + b"\r\n" + body

    if load.numbers:
        return itertools.cycle([one(number) for number in range(load.numbers)])
    return map(one, itertools.count(load.first))


def complete(data: bytes, expects: bytes) -> bool:
    """Whether an answer is whole. Raises ValueError for one that is not the wanted one."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = data[:end].lower()
    at = head.find(b"content-length:")
    said = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else None
    over = data.endswith(b"0\r\n\r\n") if said is None else len(data) >= end + 4 + said
    if over and (not data.startswith(b"HTTP/1.1 200") or expects not in data):
        raise ValueError(f"not the answer that the bench wants: {data[:600]!r}")
    return over


class _Asker(asyncio.Protocol):
    """One connection that asks again and again."""

    def __init__(self, todo: Iterator[bytes], expects: bytes, times: list[float]) -> None:
        self._todo, self._expects, self._times = todo, expects, times
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def ask(self) -> None:
        """The next one, or none are left."""
        request = next(self._todo, None)
        if request is None:
            self._transport.close()
            if not self.over.done():
                self.over.set_result(None)
            return
        self._began = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        data = self._data + data if self._data else data
        try:
            if not complete(data, self._expects):
                self._data = data
                return
        except ValueError as error:
            self._fail(error)
            return
        self._data = b""
        self._times.append(time.perf_counter() - self._began)
        self.ask()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionError("the server closed a connection of the bench"))

    def _fail(self, error: Exception) -> None:
        if not self.over.done():
            self.over.set_exception(error)


async def _closed(load: Load) -> Loaded:
    loop, times = asyncio.get_running_loop(), list[float]()
    todo = itertools.islice(requests(load), load.count)
    askers: list[_Asker] = []
    place = urlsplit(load.url)
    for _ in range(load.connections):
        asker = _Asker(todo, load.expects.encode(), times)
        await loop.create_connection(lambda asker=asker: asker, place.hostname or "", place.port or 80)  # type: ignore[misc]
        askers.append(asker)
    began = time.perf_counter()
    for asker in askers:
        asker.ask()
    await asyncio.gather(*(asker.over for asker in askers))
    return _loaded(load, times, time.perf_counter() - began)


def _paced(load: Load) -> Loaded:
    assert load.rate is not None
    place, expects = urlsplit(load.url), load.expects.encode()
    free: deque[socket.socket] = deque()
    for _ in range(load.connections):
        connection = socket.create_connection((place.hostname or "", place.port or 80))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        free.append(connection)
    busy: dict[socket.socket, tuple[float, bytes]] = {}
    todo, times, gap = requests(load), list[float](), 1 / load.rate
    began = time.perf_counter()
    sent = 0
    while len(times) < load.count:
        now = time.perf_counter()
        while sent < load.count and free and (due := began + sent * gap) <= now:
            connection = free.popleft()
            connection.sendall(next(todo))
            busy[connection] = (due, b"")
            sent += 1
        due = began + sent * gap if sent < load.count and free else now + STALL_S
        ready, _, _ = select.select(list(busy), (), (), max(due - time.perf_counter(), 0))
        if not ready and due > now + STALL_S / 2:
            raise TimeoutError("the server stopped answering")
        for connection in ready:
            at, data = busy[connection]
            data += connection.recv(1 << 16)
            if not complete(data, expects):
                busy[connection] = (at, data)
                continue
            times.append(time.perf_counter() - at)
            del busy[connection]
            free.append(connection)
    took = time.perf_counter() - began
    for connection in free:
        connection.close()
    return _loaded(load, times, took)


def _loaded(load: Load, times: list[float], took: float) -> Loaded:
    times.sort()
    p50, p99 = (percentile(times, part) * 1e6 for part in (0.5, 0.99))
    return Loaded(len(times) / took, p50, p99, load.first + load.count)


def main() -> None:
    """Reads the load, makes it, tells what came of it."""
    load = msgspec.json.decode(sys.stdin.buffer.read(), type=Load)
    if load.rate is None:
        import uvloop

        loaded = uvloop.run(_closed(load))
    else:
        loaded = _paced(load)
    answer(loaded)


if __name__ == "__main__":
    main()
