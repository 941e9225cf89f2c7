"""Where a request goes, and where it ends, are never its sender's to say otherwise than by its path and its length."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Any

import pytest

from limpet import Limpet
from tests.integration.gateway.conftest import Running, Start
from tests.integration.gateway.test_bad_clients import raw
from tests.integration.gateway.upstream import Request, Upstream

HIDDEN = b"POST /admin/x HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
NEXT = b"GET /v1/models?next HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
ROUTES = ["/v1/chat/completions", "/v1/files"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("base", ["", "/base"])
async def test_nothing_of_a_target_becomes_the_address(gateway: Start, upstreams: Any, method: str, base: str) -> None:
    """The parser takes a target that begins with '*'; behind a host and port it would make those somebody's name and password."""
    up, other = await upstreams(2)
    gate = await gateway(up, upstreams=(up.url + base,))
    place = other.url.removeprefix("http://")
    for target in (
        f"*@{place}/v1/models",
        f"*:x@{place}/v1/models",
        "*",
        "*/v1/models",
        f"@{place}/",
        f":80@{place}/",
        "v1/models",
    ):
        got = await raw(gate, f"{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        assert got.startswith(b"HTTP/1.1 400"), target
    for target in (f"//{place}/v1/models", f"/@{place}/v1/models", f"/\\{place}/", f"http://{place}/v1/models"):
        await raw(gate, f"{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
    assert other.requests == []


async def test_no_target_is_an_error_of_ours(gateway: Start, upstreams: Any) -> None:
    """Nor with credentials of the client's own beside those that a target seemed to bring."""
    (up,) = await upstreams(1)
    gate = await gateway(up)
    for target in (b"*", b"*@x:1/", b"*.example/x"):
        head = b"OPTIONS " + target + b" HTTP/1.1\r\nhost: x\r\nauthorization: Bearer x\r\nconnection: close\r\n\r\n"
        assert (await raw(gate, head)).startswith(b"HTTP/1.1 400")


async def in_pieces(gate: Running, pieces: list[bytes]) -> bytes:
    """Everything that comes back for some packets."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    try:
        with contextlib.suppress(ConnectionResetError):  # it may have been refused before all was sent
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                for _ in range(4):  # so that the server, in this loop, reads each by itself
                    await asyncio.sleep(0)
        with contextlib.suppress(ConnectionError):  # closed with a part unread, which may cost the answer too
            return await asyncio.wait_for(reader.read(), 10)
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("offer", [b"h2c", b"foo", b"TLS/1.0, HTTP/2.0"])
@pytest.mark.parametrize("cut", ["one", "body apart", "bytes"])
async def test_an_offered_upgrade_hides_no_request(gateway: Start, upstreams: Any, path: str, offer: bytes, cut: str) -> None:
    """The body is a body (RFC 9110, section 7.8), and what comes after it is the next request."""
    (up,) = await upstreams(1)
    gate = await gateway(up)
    head = (
        b"POST %b HTTP/1.1\r\nhost: x\r\nx-limpet-key: k\r\nx-empty:\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: %b\r\n"
        b"http2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\ncontent-length: %d\r\n\r\n"
    )
    body = HIDDEN if path == "/v1/files" else b'{"messages":"' + HIDDEN.replace(b"\r\n", b"  ") + b"\r\n".hex().encode() + b'"}'
    body = body.replace(b"{}", b"[]")
    data = head % (path.encode(), offer, len(body))
    pieces = {
        "one": [data + body + NEXT],
        "body apart": [data, body, NEXT],
        "bytes": [bytes([each]) for each in data + body + NEXT],
    }
    got = await in_pieces(gate, pieces[cut])
    assert got.count(b"HTTP/1.1 200") == got.count(b"HTTP/1.1 ") == 2
    assert [each.target for each in up.requests] == [path, "/v1/models?next"]
    if path == "/v1/files":
        assert up.requests[0].body == body
    assert up.requests[0].headers["x-empty"] == ""
    assert "upgrade" not in up.requests[0].headers


@pytest.mark.parametrize("cut", ["one", "body apart"])
@pytest.mark.parametrize("path", ROUTES)
async def test_a_websocket_with_a_body_is_one_request(gateway: Start, upstreams: Any, path: str, cut: str) -> None:
    """It is refused, and its body is no other request."""
    (up,) = await upstreams(1)
    gate = await gateway(up)
    head = b"POST %b HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\ncontent-length: %d\r\n\r\n"
    head %= (path.encode(), len(HIDDEN))
    got = await in_pieces(gate, [head + HIDDEN + NEXT] if cut == "one" else [head, HIDDEN, NEXT])
    assert b"no_websocket" in got or (not got and cut != "one")
    assert {each.target for each in up.requests} <= {"/v1/models?next"}


@pytest.mark.parametrize("cut", ["one", "body apart"])
async def test_connect_ends_its_connection(gateway: Start, upstreams: Any, cut: str) -> None:
    """There is no tunnel, and nothing after its head is a request."""
    (up,) = await upstreams(1)
    gate = await gateway(up)
    head = b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(HIDDEN)
    got = await in_pieces(gate, [head + HIDDEN] if cut == "one" else [head, HIDDEN])
    assert got.startswith(b"HTTP/1.1 405") or (not got and cut != "one")
    assert got.count(b"HTTP/1.1 ") <= 1
    assert up.requests == []


async def never(request: Request, writer: asyncio.StreamWriter) -> None:
    """No answer, as long as the gateway stays."""
    await request.gone.wait()


def flying(gate: Running) -> float:
    """Requests that the gateway has in flight."""
    return float(gate.parts.app._shared.measures._flying._value.get())


@pytest.mark.parametrize(
    "ahead",
    [b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n", b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n" * 4000, b"POST /v1/x HTTP/1.1\r\ncon"],
    ids=["a request", "many", "a part of one"],
)
@pytest.mark.parametrize("path", ROUTES)
async def test_a_client_that_sent_ahead_is_seen_to_leave(
    gateway: Start, upstreams: Any, limpet: Limpet, wait_for: Any, path: str, ahead: bytes
) -> None:
    """Nothing more is read of it by then; its request ends, and its claim is free, all the same."""
    up: Upstream = (await upstreams(1))[0]
    up.behave = never
    gate = await gateway(up, claim_ttl_ms=60_000)
    body = b'{"messages":[]}'
    _, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nx-limpet-key: k\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    writer.write(head + body)
    await up.arrived(1)
    writer.write(ahead)
    for _ in range(50):
        await asyncio.sleep(0)
    assert flying(gate) >= 1
    writer.close()

    async def over() -> bool:
        found = await limpet.peek("k")
        return flying(gate) == 0 and (found is None or found.binding is None or found.binding.state != "claimed")

    await wait_for(over, 5, "the request to end")
    await asyncio.wait_for(up.requests[0].gone.wait(), 5)


async def test_a_client_that_leaves_in_a_body_that_nobody_takes(gateway: Start, upstreams: Any, wait_for: Any) -> None:
    """The upstream reads nothing, so we read no more; the end is seen all the same."""
    (up,) = await upstreams(1)
    gate = await gateway(up)
    hold = asyncio.Event()

    async def stuck(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hold.wait()
        writer.close()

    server = await asyncio.start_server(stuck, "127.0.0.1", 0, limit=1024)
    slow = await gateway(up, upstreams=(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}",), health_interval_s=0)
    _, writer = await asyncio.open_connection("127.0.0.1", slow.port)
    writer.write(b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n" + b"x" * 20_000_000)

    async def begun() -> bool:
        return flying(slow) == 1

    await wait_for(begun, 5, "the request to begin")
    # Reset: the end of its data would wait behind the data that nobody takes.
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()

    async def over() -> bool:
        return flying(slow) == 0

    await wait_for(over, 8, "the request to end")
    hold.set()
    server.close()
    assert gate.port
