"""A real HTTP/1.1 upstream of a test's own: OpenAI-compatible by default, and as ill-behaved as a test wants it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["Request", "Upstream", "completion", "sse"]


class Request:
    """What arrived: ``raw`` is all of it, head and body (chunks joined)."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self.head = head
        self.body = body
        lines = head.split(b"\r\n")
        self.method, self.target, _ = lines[0].decode().split(" ")
        self.pairs = [
            (n.decode().lower(), v.strip().decode()) for n, _, v in (line.partition(b":") for line in lines[1:] if line)
        ]
        self.gone = asyncio.Event()

    @property
    def raw(self) -> bytes:
        """All bytes."""
        return self.head + self.body

    @property
    def headers(self) -> dict[str, str]:
        """By lower-case name."""
        return dict(self.pairs)

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


Behaviour = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


def answer(status: int, body: bytes, content_type: str = "application/json", *extra: str) -> bytes:
    """A complete answer."""
    lines = [f"HTTP/1.1 {status} X", f"content-type: {content_type}", f"content-length: {len(body)}", *extra]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def completion(served_by: str, **more: Any) -> bytes:
    """A chat completion that says who served."""
    message = {"role": "assistant", "content": f"served by {served_by}"}
    fields = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "mock", **more}
    return json.dumps(fields | {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()


def sse(*data: str) -> list[bytes]:
    """Chunks of a chunked event stream."""
    return [_chunk(f"data: {each}\n\n".encode()) for each in data]


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Upstream:
    """One server. ``behave`` answers a request; ``requests`` are all that arrived, but for health checks: those are answered with
    the status ``health`` (None: never), and counted in ``checks``."""

    def __init__(self, name: str = "up") -> None:
        self.name = name
        self.requests: list[Request] = []
        self.behave: Behaviour = self.serve
        self._arrived = asyncio.Condition()
        self.checks = 0
        self.health: int | None = 200
        self.port = 0
        self.connected = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Without a trailing slash."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> Upstream:
        """Listen, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Refuse connections, and drop those there are."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def arrived(self, count: int) -> None:
        """Until so many requests have arrived."""
        async with self._arrived:
            await asyncio.wait_for(self._arrived.wait_for(lambda: len(self.requests) >= count), 10)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # it was accepted just before we stopped
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._connection(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected.set()
        try:
            while (request := await _read(reader)) is not None:
                if request.target == "/health":
                    self.checks += 1
                    if self.health is None:
                        await reader.read()  # until the other side gives up
                    else:
                        writer.write(answer(self.health, b""))
                        await writer.drain()
                    continue
                self.requests.append(request)
                async with self._arrived:
                    self._arrived.notify_all()
                watch = asyncio.ensure_future(_until_eof(reader, request))
                try:
                    await self.behave(request, writer)
                    await writer.drain()
                finally:
                    watch.cancel()
                    await asyncio.gather(watch, return_exceptions=True)
                if writer.is_closing():
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def serve(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """The default: a completion, a stream where asked for, or an echo of anything else."""
        if request.method == "POST" and request.target.endswith(("completions", "responses")):
            body = request.json
            if isinstance(body, dict) and body.get("stream"):
                writer.write(STREAM_HEAD)
                for chunk in sse(*(json.dumps({"id": "c", "n": n, "served_by": self.name}) for n in range(3)), "[DONE]"):
                    writer.write(chunk)
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
                return
            more = {"id": f"resp_{self.name}_{len(self.requests)}", "object": "response"} if "responses" in request.target else {}
            writer.write(answer(200, completion(self.name, **more)))
            return
        writer.write(answer(200, request.body, request.headers.get("content-type", "text/plain")))


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    lowered = head.lower()
    if b"transfer-encoding: chunked" in lowered:
        parts = []
        while size := int(await reader.readline(), 16):
            parts.append(await reader.readexactly(size))
            await reader.readline()
        await reader.readline()
        return Request(head, b"".join(parts))
    at = lowered.find(b"content-length:")
    length = int(lowered[at + 15 :].split(b"\r\n")[0]) if at >= 0 else 0
    return Request(head, await reader.readexactly(length))


async def _until_eof(reader: asyncio.StreamReader, request: Request) -> None:
    while not reader.at_eof():
        if reader._buffer:  # type: ignore[attr-defined]  # a pipelined request: not ours to eat
            return
        await reader._wait_for_data("upstream")  # type: ignore[attr-defined]
    request.gone.set()
