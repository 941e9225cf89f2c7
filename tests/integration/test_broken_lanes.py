"""A connection that breaks under a write: the caller meets the store's fault, or none, but never the socket's own error."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
import threading

import pytest

from limpet import Limpet, StoreUnavailable
from limpet.executors import lane

FAULTS = [errno.EPIPE, errno.ECONNRESET, errno.EAGAIN, errno.ENOBUFS, errno.EBADF]


@pytest.mark.parametrize("number", FAULTS, ids=errno.errorcode.get)
async def test_a_failed_write_is_left_to_the_transport(store_url: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the socket says: the transport writes again, and if that fails too, says so to its protocol."""
    failed = 0

    def fails(fd: int, data: bytes) -> int:
        nonlocal failed
        failed += 1
        raise OSError(number, os.strerror(number))

    async with Limpet.connect(store_url, namespace="broken") as client:
        first = await client.advance("k", "new")
        monkeypatch.setattr(lane.os, "write", fails)
        second = await client.advance("k", "new")
        assert failed
        assert (first.ordinal, second.ordinal) == (1, 2)


@pytest.mark.parametrize("part", [0, 1, 17])
async def test_a_write_that_is_cut_short_goes_on_where_it_stopped(
    store_url: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full socket buffer takes only the first bytes."""
    write, cut = os.write, 0

    def short(fd: int, data: bytes) -> int:
        nonlocal cut
        cut += 1
        return write(fd, data[:part]) if part else 0

    async with Limpet.connect(store_url, namespace="broken") as client:
        first = await client.advance("k", "new")
        monkeypatch.setattr(lane.os, "write", short)
        second = await client.advance("k", "new")
        assert cut
        assert (first.ordinal, second.ordinal) == (1, 2)


@pytest.mark.default_deadline
async def test_a_store_that_hangs_up_between_two_calls(fresh_server, wait_for) -> None:
    """The loop has not been told yet when the next calls are written: the first is lost, the kernel refuses the second."""
    server = fresh_server()
    async with Limpet.connect(server.url) as client:
        await client.resolve("k", session_id="s")
        for _ in range(2):
            server.kill9()
            for _ in range(3):
                turn = await client.resolve("k", session_id="s")
                assert turn.degraded
                with pytest.raises(StoreUnavailable):
                    await client.advance("k", "new")
            server.start()

            async def back() -> bool:
                return not (await client.resolve("k", session_id="s")).degraded

            await wait_for(back, 5, "the client to recover by itself")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("after", [0, 1, 40, 200], ids=lambda size: f"{size}-bytes")
def test_a_peer_that_takes_connections_and_resets_them(loop: str, after: int) -> None:
    """A proxy with nothing behind it, say: at once, or in the middle of the greeting. It is a store that is away."""
    runner = asyncio.run if loop == "asyncio" else pytest.importorskip("uvloop").run
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer, contextlib.suppress(OSError):
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    if after:
                        peer.recv(after)

        thread = threading.Thread(target=serve)
        thread.start()

        async def ask() -> list[bool]:
            async with contextlib.AsyncExitStack() as stack:
                client = Limpet.connect(f"redis://127.0.0.1:{server.getsockname()[1]}", deadline_ms=30)
                stack.push_async_callback(client.close)
                return [(await client.resolve("k", session_id="s", bind=True)).degraded for _ in range(20)]

        try:
            assert all(runner(ask()))
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)
