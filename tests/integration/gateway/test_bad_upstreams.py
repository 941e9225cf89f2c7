"""Upstreams that are slow, reset, send garbage, or close mid-stream: the right status, the claim given back, nothing leaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from limpet import Limpet
from limpet.gateway.events import MAX_EVENT
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


BROKEN = ("ASGI callable", "Exception in ASGI", "unexpected error")


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing is logged as an error of ours."""
    yield
    assert not [each.getMessage() for each in caplog.records if any(text in each.getMessage() for text in BROKEN)]


async def ask_twice(gate: Running, first: bytes) -> tuple[bytes, bytes]:
    """The head of the answer to a request, and that to a second one on the same connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    try:
        writer.write(first)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        return head.lower(), await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-limpet-key: k\r\ncontent-length: 2\r\n\r\n{}"
MODELS = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("more", [b"content-type: application/json", b"content-type: text/event-stream"])
@pytest.mark.parametrize("line", [b"x-a: a\x01b", b"x-a: \x0b", b"x-a: a\x7f", b"x-a: a\x1bb", b"set-cookie: \x1f=1"])
async def test_headers_with_control_characters(gateway: Start, upstreams: Any, limpet: Limpet, line: bytes, more: bytes) -> None:
    """What our server cannot send is 502 before anything is confirmed, on every route."""
    (up,) = await upstreams()

    async def odd(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n%s\r\n%s\r\ncontent-length: 10\r\n\r\ndata: {}\n\n" % (more, line))

    up.behave = odd
    gate = await gateway(up)
    for got in (await gate.chat("k"), await gate.chat(None), await gate.http.get("/v1/models")):
        assert (got.status_code, got.json()["code"]) == (502, "upstream_failed")
    assert not await is_bound(limpet)
    await no_leak(gate)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("request_", [CHAT, MODELS])
@pytest.mark.parametrize(
    "head", [b"304 X\r\ncontent-length: 100", b"304 X\r\netag: e\r\ncontent-length: 1", b"204 X\r\ncontent-length: 2"]
)
async def test_answers_that_have_no_body(gateway: Start, upstreams: Any, head: bytes, request_: bytes) -> None:
    """Whatever length they tell: passed on without it, and the client's connection is kept. A HEAD answer keeps its own."""
    (up,) = await upstreams()

    async def short(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 " + (b"200 X\r\ncontent-length: 100" if request.method == "HEAD" else head) + b"\r\n\r\n")

    up.behave = short
    gate = await gateway(up)
    got, second = await ask_twice(gate, request_)
    assert got.startswith(b"http/1.1 " + head[:3])
    assert b"content-length" not in got
    assert b"transfer-encoding" not in got
    assert (b"etag: e" in got) == (b"etag" in head)
    assert second.startswith(b"HTTP/1.1 200")
    got, second = await ask_twice(gate, MODELS.replace(b"GET", b"HEAD"))
    assert b"content-length: 100" in got
    assert second.startswith(b"HTTP/1.1 200")
    await no_leak(gate)


@pytest.mark.parametrize("head", [b"204 X\r\ncontent-length: 45", b"204 X", b"200 X\r\ncontent-length: 0"])
async def test_what_comes_after_an_answer_is_nobodys(gateway: Start, upstreams: Any, wait_for: Any, head: bytes) -> None:
    """A body where none can be, or a second answer: not taken for the answer to the next request, which may be another's."""
    (up,) = await upstreams()
    answered, late = asyncio.Event(), asyncio.Event()

    async def more(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 " + head + b"\r\n\r\n")
        up.behave = up.serve
        await answered.wait()
        writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 5\r\n\r\nowned")
        late.set()

    up.behave = more
    gate = await gateway(up)
    assert (await gate.http.get("/v1/models")).status_code == int(head[:3])
    answered.set()
    await late.wait()
    for _ in range(20):  # it is in our own loop: so many turns of it, and what was written has been read
        await asyncio.sleep(0)
    assert (await gate.http.post("/v1/files", content=b"mine")).content == b"mine"


async def test_a_204_that_announces_a_body(gateway: Start, upstreams: Any) -> None:
    """That body may come at any time, so that nothing else is asked on its connection."""
    (up,) = await upstreams()

    async def empty(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 204 X\r\ncontent-length: 5\r\n\r\n")
        await request.gone.wait()

    up.behave = empty
    gate = await gateway(up)
    assert (await gate.http.delete("/v1/files/1")).status_code == 204
    await asyncio.wait_for(up.requests[0].gone.wait(), 5)


DEEP = '{"error":' + "[" * 3000


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize("event", [DEEP, DEEP + "]" * 3000 + "}"])
async def test_first_events_that_cannot_be_read(gateway: Start, upstreams: Any, event: str, path: str) -> None:
    """They go to the client as they are."""
    (up,) = await upstreams()

    async def odd(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + b"".join(sse(event)) + b"0\r\n\r\n")

    up.behave = odd
    gate = await gateway(up)
    got = await gate.http.post(path, json={"stream": True}, headers={"X-Limpet-Key": "k"})
    assert (got.status_code, got.text) == (200, f"data: {event}\n\n")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("value", ["text/event-stream;charset*", ",;charset*"])
async def test_content_types_that_cannot_be_read(gateway: Start, upstreams: Any, value: str) -> None:
    """Nor is the type of an answer ours to judge."""
    (up,) = await upstreams()

    async def odd(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: 9\r\n\r\ndata: 1\n\n" % value.encode())

    up.behave = odd
    gate = await gateway(up)
    got = await gate.chat("k")
    assert (got.status_code, got.headers["content-type"], got.text) == (200, value, "data: 1\n\n")


@pytest.mark.parametrize("size", [MAX_EVENT - 100, 5 * MAX_EVENT])
async def test_an_event_of_any_size(gateway: Start, upstreams: Any, size: int) -> None:
    """It goes through, whole, and so does what follows it."""
    (up,) = await upstreams()
    events = ["x" * size, '{"n":1}', "y" * size, "[DONE]"]

    async def large(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for chunk in sse(*events):
            writer.write(chunk)
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    up.behave = large
    gate = await gateway(up)
    assert (await gate.chat("k", stream=True)).text == "".join(f"data: {each}\n\n" for each in events)


async def test_a_break_in_the_middle_of_an_endless_event(gateway: Start, upstreams: Any) -> None:
    """The error that ends the stream is an event of its own."""
    (up,) = await upstreams()

    async def endless(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + b"%x\r\ndata: " % (3 * MAX_EVENT) + b"x" * (2 * MAX_EVENT))
        await writer.drain()
        writer.close()

    up.behave = endless
    gate = await gateway(up)
    broken, error, rest = (await gate.chat("k", stream=True)).text.split("\n\n")
    assert set(broken.removeprefix("data: ")) == {"x"}
    assert (json.loads(error.removeprefix("data: "))["error"]["code"], rest) == ("upstream_failed", "")
