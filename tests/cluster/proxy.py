"""A TCP proxy that can lose what a network loses: replies, or everything; and point elsewhere, as a DNS name does."""

from __future__ import annotations

import asyncio
import contextlib


class Proxy:
    """Forwards to ``target``. :meth:`lose_reply` cuts a connection after the request has been served, before its reply."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.lost = 0
        """Replies lost so far."""
        self._server: asyncio.Server | None = None
        self._marker = b""
        self._times = 0
        self._cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    def lose_reply(self, marker: bytes, times: int = 1) -> None:
        """The next ``times`` requests that hold ``marker`` are served, and their replies lost with the connection."""
        self._marker, self._times = marker, times

    def cut(self) -> None:
        """Nothing gets through any more."""
        self._cut = True
        self.drop()

    def mend(self) -> None:
        """All gets through again."""
        self._cut = False

    def point(self, target: int) -> None:
        """From now on this address means another server."""
        self.target = target
        self.drop()

    def drop(self) -> None:
        """Ends every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            if self._cut:
                return
            with contextlib.suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
                self._writers.add(far_writer)
                try:
                    await self._relay(reader, writer, far_reader, far_writer)
                finally:
                    self._writers.discard(far_writer)
                    far_writer.close()
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _relay(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        losing = False

        async def there() -> None:
            nonlocal losing
            while data := await reader.read(65536):
                if self._times and self._marker in data:
                    self._times -= 1
                    losing = True
                far_writer.write(data)
                await far_writer.drain()

        async def back() -> None:
            while data := await far_reader.read(65536):
                if losing:
                    self.lost += 1
                    return
                writer.write(data)
                await writer.drain()

        tasks = [asyncio.ensure_future(there()), asyncio.ensure_future(back())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
