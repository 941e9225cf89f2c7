"""What the gateway adds to a request (``limpet bench gateway``).

The same requests are sent straight to an upstream, passed through by the gateway unstamped, and as turns of conversations.
Upstream and gateway are processes of their own, over an embedded store.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import uvloop

from limpet.embedded import EmbeddedStore

__all__ = ["Row", "run"]

ANSWER: Final = msgspec.json.encode(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "mock",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello " * 20}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }
)
BODY: Final = msgspec.json.encode(
    {"model": "mock", "messages": [{"role": "user", "content": "a question of some length, " * 40}], "temperature": 0.2}
)
_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)
CONVERSATIONS: Final = 200


class Row(msgspec.Struct, frozen=True):
    """One way at one concurrency; latencies in milliseconds."""

    way: str
    concurrency: int
    requests: int
    per_second: float
    p50_ms: float
    p99_ms: float


def run(requests: int = 4000, concurrencies: tuple[int, ...] = (1, 32)) -> list[Row]:
    """Measures. Each row is one way at one concurrency: ``direct``, ``pass-through``, ``turn``.

    Raises RuntimeError when a part does not start.
    """
    with EmbeddedStore.acquire(ephemeral=True) as store, _process("-m", "limpet.gateway.bench", "upstream") as upstream:
        environ = {
            "LIMPET_REDIS_URL": store.url,
            "LIMPET_PORT": "0",
            "LIMPET_UPSTREAMS": upstream,
            "LIMPET_PROFILE": "openai-chat",
        }
        command = "import sys; from limpet.cli import main; sys.exit(main(['gateway']))"
        with _process("-c", command, **environ) as gateway:
            return uvloop.run(_measure(upstream, gateway, requests, concurrencies))


@contextmanager
def _process(*arguments: str, **environ: str) -> Iterator[str]:
    """A process of ours that says ``listening on URL``; the URL."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
    with tempfile.TemporaryDirectory(prefix="limpet-bench-") as folder:
        process = subprocess.Popen(
            [sys.executable, *arguments], env=clean | environ, cwd=Path(folder), stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                _, found, rest = line.partition("listening on ")
                if found:
                    yield rest.split()[0].rstrip(";")
                    return
            raise RuntimeError(f"A part of the benchmark ended with {process.wait()} before it listened.")
        finally:
            process.terminate()
            process.wait(15)
            if process.stdout is not None:
                process.stdout.close()


async def _measure(upstream: str, gateway: str, requests: int, concurrencies: tuple[int, ...]) -> list[Row]:
    rows: list[Row] = []
    ways = {
        "direct": (f"{upstream}/v1/chat/completions", False),
        "pass-through": (f"{gateway}/v1/passed/through", False),
        "turn": (f"{gateway}/v1/chat/completions", True),
    }
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for concurrency in concurrencies:
            for way, (url, keyed) in ways.items():
                await _load(session, url, keyed, min(requests, 2 * CONVERSATIONS), concurrency)  # warm: bound, connected
                begun = time.perf_counter()
                times = await _load(session, url, keyed, requests, concurrency)
                took = time.perf_counter() - begun
                times.sort()
                p50, p99 = (times[int(len(times) * part)] * 1000 for part in (0.50, 0.99))
                rows.append(Row(way, concurrency, requests, round(requests / took), round(p50, 3), round(p99, 3)))
    return rows


async def _load(session: aiohttp.ClientSession, url: str, keyed: bool, requests: int, concurrency: int) -> list[float]:
    times: list[float] = []
    numbers = iter(range(requests))

    async def one() -> None:
        for number in numbers:
            headers = {"Content-Type": "application/json"}
            if keyed:
                headers["X-Limpet-Key"] = f"conversation {number % CONVERSATIONS}"
            begun = time.perf_counter()
            async with session.post(url, data=BODY, headers=headers) as answer:
                await answer.read()
                if answer.status != 200:
                    raise RuntimeError(f"The benchmark met status {answer.status}.")
            times.append(time.perf_counter() - begun)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(one())
    return times


class _Upstream(asyncio.Protocol):
    """Answers every request with the same completion, as fast as this language can."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._data) < end + 4 + length:
                return
            self._data = self._data[end + 4 + length :]
            self._transport.write(_HEAD + ANSWER)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Upstream, "127.0.0.1", 0)
    sys.stdout.write(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def _main(arguments: list[str]) -> None:
    if arguments == ["upstream"]:
        uvloop.run(_serve())
        return
    for row in run():
        sys.stdout.write(msgspec.json.encode(row).decode() + "\n")


if __name__ == "__main__":
    _main(sys.argv[1:])
