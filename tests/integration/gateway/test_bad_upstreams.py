"""Upstreams that are slow, reset, send garbage, or close mid-stream: the right status, the claim given back, nothing leaks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from limpet import Limpet
from tests.integration.gateway.conftest import Running, Start
from tests.integration.gateway.upstream import STREAM_HEAD, Request, completion, sse


async def is_bound(limpet: Limpet, key: str = "k") -> bool:
    """Whether anything holds the key."""
    state = await limpet.peek(key)
    return state is not None and state.binding is not None


async def no_leak(gate: Running) -> None:
    """Nothing is in flight, and no connection to the upstream stays open for it."""
    assert "limpet_gateway_in_flight 0.0" in (await gate.http.get("/metrics")).text


async def test_garbage(gateway: Start, upstreams: Any, limpet: Limpet) -> None:
    """What is no HTTP is 502."""
    (up,) = await upstreams()

    async def garbage(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x01 what? \r\n\r\n")
        writer.close()

    up.behave = garbage
    gate = await gateway(up)
    got = await gate.chat("k")
    assert (got.status_code, got.headers["content-type"]) == (502, "application/problem+json")
    assert got.json()["error"]["type"] == "server_error"
    assert not await is_bound(limpet)
    await no_leak(gate)


@pytest.mark.parametrize("status", [101, 600, 999])
async def test_a_status_that_ends_no_request(gateway: Start, upstreams: Any, limpet: Limpet, status: int) -> None:
    """Nobody asked for another protocol, and nothing is defined beyond 599: 502, and the claim given back."""
    (up,) = await upstreams()

    async def odd(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %d Odd\r\nconnection: upgrade\r\nupgrade: x\r\ncontent-length: 2\r\n\r\nok" % status)
        await writer.drain()

    up.behave = odd
    gate = await gateway(up)
    for got in (await gate.chat("k"), await gate.http.get("/v1/models")):
        assert (got.status_code, got.json()["code"]) == (502, "upstream_failed")
    assert not await is_bound(limpet)
    await no_leak(gate)


async def test_silence(gateway: Start, upstreams: Any, limpet: Limpet) -> None:
    """An upstream that says nothing within the read timeout is 504, and its connection is closed."""
    (up,) = await upstreams()

    async def silent(request: Request, _: asyncio.StreamWriter) -> None:
        await request.gone.wait()

    up.behave = silent
    gate = await gateway(up, read_timeout_s=0.2)
    got = await gate.chat("k")
    assert (got.status_code, got.json()["code"]) == (504, "upstream_timeout")
    assert not await is_bound(limpet)
    await asyncio.wait_for(up.requests[0].gone.wait(), 5)
    await no_leak(gate)


async def test_close_in_the_middle_of_a_stream(gateway: Start, upstreams: Any, limpet: Limpet) -> None:
    """The client gets every complete event, then an error event; half an event never reaches it."""
    (up,) = await upstreams()

    async def half(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + sse('{"n":1}')[0] + b'c\r\ndata: {"half\r\n')
        await writer.drain()
        writer.transport.abort()

    up.behave = half
    gate = await gateway(up)
    text = (await gate.chat("k", stream=True)).text
    first, second, rest = text.split("\n\n")
    assert (first, rest) == ('data: {"n":1}', "")
    assert second.startswith('data: {"error":{"message":')
    assert await is_bound(limpet)  # it was served: the worker is alive until proven lost
    await no_leak(gate)


async def test_responses_error_event_has_a_name(gateway: Start, upstreams: Any) -> None:
    """On /v1/responses the error event is one as that API has it."""
    (up,) = await upstreams()

    async def half(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + sse('{"type":"response.created","response":{"id":"r"}}')[0])
        await writer.drain()
        writer.transport.abort()

    up.behave = half
    gate = await gateway(up)
    got = await gate.http.post("/v1/responses", json={"input": "x", "stream": True}, headers={"X-Limpet-Key": "k"})
    event = json.loads(got.text.partition("event: error\ndata: ")[2])
    assert (event["type"], event["code"], event["error"]["type"]) == ("error", "upstream_failed", "server_error")


async def test_close_in_the_middle_of_a_body(gateway: Start, upstreams: Any) -> None:
    """A body that ends too early ends too early for the client too: it cannot be taken for complete."""
    (up,) = await upstreams()

    async def short(_: Request, writer: asyncio.StreamWriter) -> None:
        body = completion("up")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n" + body)
        await writer.drain()
        writer.transport.abort()

    up.behave = short
    gate = await gateway(up)
    with pytest.raises(httpx.RemoteProtocolError):
        await gate.chat("k")
    await no_leak(gate)


async def test_redirects_are_answers(gateway: Start, upstreams: Any) -> None:
    """A redirect is passed on, never followed: the gateway talks to its upstreams only."""
    (up,) = await upstreams()

    async def away(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 307 X\r\nlocation: http://127.0.0.1:1/x\r\ncontent-length: 0\r\n\r\n")

    up.behave = away
    gate = await gateway(up)
    got = await gate.chat("k")
    assert (got.status_code, got.headers["location"]) == (307, "http://127.0.0.1:1/x")
    assert len(up.requests) == 1


async def test_client_that_leaves_before_the_answer(gateway: Start, upstreams: Any, limpet: Limpet, wait_for: Any) -> None:
    """The upstream's request is cancelled and the claim given back."""
    (up,) = await upstreams()

    async def slow(request: Request, _: asyncio.StreamWriter) -> None:
        await request.gone.wait()

    up.behave = slow
    gate = await gateway(up)
    turn = asyncio.create_task(gate.chat("k"))
    await up.arrived(1)
    assert await is_bound(limpet)
    turn.cancel()
    await asyncio.wait_for(up.requests[0].gone.wait(), 5)

    async def given_back() -> bool:
        return not await is_bound(limpet)

    await wait_for(given_back, 5, "the claim to be given back")
    await no_leak(gate)


async def test_client_that_leaves_in_the_middle_of_a_stream(gateway: Start, upstreams: Any, limpet: Limpet) -> None:
    """The upstream's stream is cancelled; the binding stays, since a worker served."""
    (up,) = await upstreams()

    async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        while not request.gone.is_set():
            writer.write(sse('{"n":1}')[0])
            await writer.drain()
            await asyncio.sleep(0.01)

    up.behave = endless
    gate = await gateway(up)
    body = {"messages": [], "stream": True}
    async with gate.http.stream("POST", "/v1/chat/completions", json=body, headers={"X-Limpet-Key": "k"}) as got:
        await anext(got.aiter_raw())
    await asyncio.wait_for(up.requests[0].gone.wait(), 5)
    assert await is_bound(limpet)
    text = (await gate.http.get("/metrics")).text
    assert 'limpet_gateway_aborted_streams_total{side="client"} 1.0' in text


async def test_back_pressure(gateway: Start, upstreams: Any) -> None:
    """A client that does not read stops the upstream: the gateway does not collect what is in between."""
    (up,) = await upstreams()
    sent = 0
    event = sse("x" * 16_000)[0]

    async def flood(_: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(STREAM_HEAD)
        for _ in range(4000):  # 64 MB
            writer.write(event)
            await writer.drain()
            sent += len(event)
        writer.write(b"0\r\n\r\n")

    up.behave = flood
    gate = await gateway(up)
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port, limit=1024)
    body = b'{"stream":true}'
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-limpet-key: k\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    )
    await reader.readuntil(b"\r\n\r\n")
    before = -1
    while sent != before:  # until the upstream is stuck
        before = sent
        await asyncio.sleep(0.3)
    assert 0 < sent < 24_000_000
    writer.close()


async def test_passed_through_answers_break_openly(gateway: Start, upstreams: Any) -> None:
    """What nobody stamps and breaks in the middle ends short at the client too; before its first byte it is 502."""
    (up,) = await upstreams()

    async def short(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" + b"x" * 1000)
        await writer.drain()
        writer.transport.abort()

    async def none(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    gate = await gateway(up)
    up.behave = short
    with pytest.raises(httpx.RemoteProtocolError):
        await gate.http.get("/v1/files/1")
    up.behave = none
    assert (await gate.http.get("/v1/files/1")).status_code == 502
    await no_leak(gate)


async def test_client_that_leaves_in_the_middle_of_its_own_body(gateway: Start, upstreams: Any, wait_for: Any) -> None:
    """Half an upload is no upload: the upstream sees it end early, and nothing is left over."""
    (up,) = await upstreams()
    gate = await gateway(up)
    for path in (b"/v1/files", b"/v1/chat/completions"):
        _, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        writer.write(b"POST " + path + b" HTTP/1.1\r\nhost: x\r\nx-limpet-key: k\r\ncontent-length: 100000\r\n\r\n{")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    assert (await gate.http.get("/livez")).status_code == 200

    async def idle() -> bool:
        return "limpet_gateway_in_flight 0.0" in (await gate.http.get("/metrics")).text

    await wait_for(idle, 5, "both requests to be over")
    assert up.requests == []
