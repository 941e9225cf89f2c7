"""Bad input from clients, much of it byte by byte: refused with the right status, and nothing reaches the upstream."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.gateway.conftest import Running, Start

BODY = b'{"model":"m","messages":[]}'


async def raw(gate: Running, data: bytes) -> bytes:
    """Everything that comes back for some bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    writer.write(data)
    await writer.drain()
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def post(*headers: bytes, body: bytes = BODY, path: bytes = b"/v1/chat/completions") -> bytes:
    """A request head and body."""
    return b"POST " + path + b" HTTP/1.1\r\nhost: x\r\n" + b"".join(each + b"\r\n" for each in headers) + b"\r\n" + body


SMUGGLED = [
    pytest.param(post(b"content-length: 5", b"content-length: 27"), id="two lengths"),
    pytest.param(post(b"content-length: 27", b"transfer-encoding: chunked", body=b"0\r\n\r\n"), id="length and chunked"),
    pytest.param(post(b"transfer-encoding: chunked", b"content-length: 5", body=b"0\r\n\r\n"), id="chunked and length"),
    pytest.param(post(b"transfer-encoding: chunked, identity", body=b"0\r\n\r\n"), id="chunked not last"),
    pytest.param(post(b"transfer-encoding: xchunked", body=BODY), id="unknown coding"),
    pytest.param(post(b"content-length: +27"), id="signed length"),
    pytest.param(post(b"content-length: 0x1b"), id="hex length"),
    pytest.param(post(b"content-length: 27, 27"), id="list of lengths"),
    pytest.param(post(b"content-length : 27"), id="space before colon"),
    pytest.param(post(b"x-limpet-key: a\r\n folded", b"content-length: 27"), id="folded header"),
    pytest.param(post(b"x-limpet-key: a\rb", b"content-length: 27"), id="bare CR in a value"),
    pytest.param(post(b"x-limpet-key: a\x00b", b"content-length: 27"), id="NUL in a value"),
    pytest.param(post(b"x limpet: a", b"content-length: 27"), id="space in a name"),
    pytest.param(post(b"transfer-encoding: chunked", body=b"zz\r\n{}\r\n0\r\n\r\n"), id="bad chunk size"),
]


@pytest.mark.parametrize("data", SMUGGLED)
async def test_smuggling_is_refused(gateway: Start, upstreams: Any, data: bytes) -> None:
    """Whatever two servers could read in two ways is refused, and the connection closed."""
    (up,) = await upstreams()
    gate = await gateway(up)
    hidden = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-limpet-key: hidden\r\ncontent-length: 2\r\n\r\n{}"
    got = await raw(gate, data + hidden)
    assert got == b"" or got.startswith(b"HTTP/1.1 400"), got[:200]
    assert got.count(b"HTTP/1.1 ") <= 1
    assert up.requests == []


async def test_pipelined_requests_stay_apart(gateway: Start, upstreams: Any) -> None:
    """Two requests in one write are two, each with its own key."""
    (up,) = await upstreams()
    gate = await gateway(up)
    one = post(b"x-limpet-key: a", b"content-length: 27")
    got = await raw(gate, one + post(b"x-limpet-key: b", b"content-length: 27", b"connection: close"))
    assert got.count(b"HTTP/1.1 200") == 2
    assert len({request.json["prompt_cache_key"] for request in up.requests}) == 2


async def test_body_that_is_no_json(gateway: Start, upstreams: Any) -> None:
    """Where a stamp is needed: 400, nothing sent. Without a key there is nothing to stamp: the upstream decides."""
    (up,) = await upstreams()
    gate = await gateway(up)
    for body in (b"{", b"[]", b"\xff\xfe", b'{"a":1}x', b"", b"[" * 100_000):
        got = await gate.http.post("/v1/chat/completions", content=body, headers={"X-Limpet-Key": "k"})
        assert got.status_code == 400, body[:20]
        assert got.json()["error"]["type"] == "invalid_request_error"
    assert up.requests == []

    async def judge(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 422 X\r\ncontent-length: 0\r\n\r\n")

    up.behave = judge
    assert (await gate.http.post("/v1/chat/completions", content=b"{")).status_code == 422


async def test_key_rules(gateway: Start, upstreams: Any) -> None:
    """A key beyond 256 bytes, with control characters, or given twice differently is 400, never cut or guessed."""
    (up,) = await upstreams()
    gate = await gateway(up)
    assert (await gate.chat("x" * 256)).status_code == 200
    up.requests.clear()
    assert (await gate.chat("x" * 257)).status_code == 400
    assert (await gate.chat(None, session_id="a\r\nb")).status_code == 400
    assert (await gate.chat(None, session_id="a\u0085b")).status_code == 400
    assert (await gate.chat(None, prompt_cache_key="é" * 129)).status_code == 400
    twice = await raw(gate, post(b"x-session-id: a", b"x-session-id: b", b"content-length: 27", b"connection: close"))
    assert twice.startswith(b"HTTP/1.1 400")
    latin = await raw(gate, post(b"x-session-id: \xe9", b"content-length: 27", b"connection: close"))
    assert latin.startswith(b"HTTP/1.1 400")
    assert up.requests == []


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Limpet-New": "maybe"},
        {"X-Limpet-Kind": "spoon"},
        {"X-Limpet-Kind": "fork", "X-Limpet-New": "1"},
        {"X-Limpet-Session-ID": "x" * 257},
        {"X-Limpet-Final": "2"},
    ],
)
async def test_control_rules(gateway: Start, upstreams: Any, headers: dict[str, str]) -> None:
    """A control header that makes no sense is an error, not a guess."""
    (up,) = await upstreams()
    gate = await gateway(up)
    assert (await gate.chat("k", headers=headers)).status_code == 400
    assert up.requests == []


async def test_control_needs_a_conversation(gateway: Start, upstreams: Any) -> None:
    """New, Kind and Final without a key or a session id are about nothing."""
    (up,) = await upstreams()
    gate = await gateway(up)
    for headers in ({"X-Limpet-New": "1"}, {"X-Limpet-Kind": "tool"}, {"X-Limpet-Final": "1"}):
        assert (await gate.chat(None, headers=headers)).status_code == 400
    assert up.requests == []


async def test_limits(gateway: Start, upstreams: Any) -> None:
    """A body beyond the limit is 413 where it would have to be held, said or sent; a head beyond 64 KiB is refused."""
    (up,) = await upstreams()
    gate = await gateway(up, max_body_bytes=2048)
    big = b'{"messages":[],"pad":"' + b"x" * 4096 + b'"}'
    headers = {"X-Limpet-Key": "k"}
    assert (await gate.http.post("/v1/chat/completions", content=big, headers=headers)).status_code == 413

    async def chunks() -> Any:
        for at in range(0, len(big), 512):
            yield big[at : at + 512]

    assert (await gate.http.post("/v1/chat/completions", content=chunks(), headers=headers)).status_code == 413
    assert up.requests == []
    assert (await gate.http.post("/v1/files", content=big, headers=headers)).status_code == 200
    for size, statuses in ((70_000, (b"400", b"431")), (1_000_000, (b"400",))):
        got = await raw(gate, post(b"x-pad: " + b"x" * size, b"content-length: 27", b"connection: close"))
        assert got == b"" or got[9:12] in statuses
    assert len(up.requests) == 1


async def test_compressed_body(gateway: Start, upstreams: Any) -> None:
    """A compressed body cannot be stamped: 415."""
    (up,) = await upstreams()
    gate = await gateway(up)
    got = await gate.http.post("/v1/chat/completions", content=b"x", headers={"X-Limpet-Key": "k", "Content-Encoding": "gzip"})
    assert got.status_code == 415
    assert up.requests == []


async def test_dot_segments_and_methods(gateway: Start, upstreams: Any) -> None:
    """A path that an upstream may read as another one, and methods that are no business of a gateway, are refused."""
    (up,) = await upstreams()
    gate = await gateway(up)
    for path in (b"/v1/../admin", b"/v1/%2e%2E/admin", b"/./x"):
        got = await raw(gate, b"GET " + path + b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 400"), path
    got = await raw(gate, b"TRACE / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 405")
    assert up.requests == []


ALIKE = [
    b"//v1/chat/completions", b"/v1//chat/completions", b"/v1/chat/completions/", b"/v1/chat/completions//?a=1",
    b"/V1/Chat/Completions", b"/v1/chat/completion%73", b"/v1/chat%2Fcompletions", b"/%76%31/chat/completions",
]  # fmt: skip


@pytest.mark.parametrize("path", ALIKE)
async def test_no_turn_passes_unstamped(gateway: Start, upstreams: Any, path: bytes) -> None:
    """However a path is spelled that an upstream may take for a turn's: it goes there as it is, and stamped."""
    (up,) = await upstreams()
    gate = await gateway(up)
    await raw(gate, post(b"x-limpet-key: k", b"content-length: 27", b"connection: close", path=path))
    (request,) = up.requests
    assert request.json["prompt_cache_key"]
    assert "x-limpet-key" not in request.headers


async def test_no_websockets(gateway: Start, upstreams: Any) -> None:
    """A handshake is refused with what to do; nothing reaches the upstream, which would answer another protocol."""
    (up,) = await upstreams()
    gate = await gateway(up)
    shake = b"upgrade: WebSocket\r\nsec-websocket-key: eHh4eHh4eHh4eHh4eHh4eA==\r\nsec-websocket-version: 13\r\n"
    got = await raw(gate, b"GET /v1/realtime HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\n" + shake + b"\r\n")
    assert got.startswith(b"HTTP/1.1 501")
    assert b'"code":"no_websocket"' in got
    assert up.requests == []


@pytest.mark.parametrize("split", [False, True])
async def test_trailers_go_no_further(gateway: Start, upstreams: Any, split: bool) -> None:
    """A proxy in front guards headers, not trailers: they are never taken for headers, here or upstream."""
    (up,) = await upstreams()
    gate = await gateway(up)
    head = post(b"x-limpet-key: k", b"transfer-encoding: chunked", b"connection: close", body=b"1b\r\n" + BODY + b"\r\n")
    tail = b"0\r\nx-limpet-new: 1\r\nx-worker-instance-id: 7\r\nauthorization: Bearer stolen\r\n\r\n"
    assert (await raw(gate, head + tail)).startswith(b"HTTP/1.1 200")
    if split:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        writer.write(head)
        await writer.drain()
        await gate.http.get("/livez")  # the head has been read by then
        writer.write(tail)
        assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 200")
        writer.close()
    for request in up.requests:
        assert not {"x-worker-instance-id", "authorization", "x-limpet-new"} & set(request.headers)


async def test_space_after_a_value_is_no_part_of_it(gateway: Start, upstreams: Any) -> None:
    """A copy of the key with a space behind it is the key, and stays here."""
    (up,) = await upstreams()
    gate = await gateway(up)
    sent = post(b"x-limpet-key: +4915112345678 ", b"x-copy: +4915112345678 \t", b"content-length: 27", b"connection: close")
    assert (await raw(gate, sent)).startswith(b"HTTP/1.1 200")
    assert b"4915112345678" not in up.requests[0].raw
