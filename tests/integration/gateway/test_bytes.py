"""Bytes in are bytes out; what is stamped keeps its order and numbers; what is Limpet's own goes no further."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import httpx

from tests.integration.gateway.conftest import Start
from tests.integration.gateway.upstream import STREAM_HEAD, Request, answer, completion


async def test_unstamped_bodies_pass_bit_for_bit(gateway: Start, upstreams: Any) -> None:
    """Any path, any type, any bytes: what the upstream gets is what the client sent, and the other way round."""
    (up,) = await upstreams()
    gate = await gateway(up)
    blob = os.urandom(3_000_000)
    got = await gate.http.post("/v1/audio/transcriptions", content=blob, headers={"Content-Type": "application/octet-stream"})
    assert got.content == blob
    assert up.requests[0].body == blob
    spaced = b'{ "model" : "m",\n "messages":[ ] , "n": 1.0 }'
    await gate.http.post("/v1/chat/completions", content=spaced)
    assert up.requests[1].body == spaced
    await gate.http.post(
        "/v1/chat/completions", content=spaced.replace(b"}", b',"prompt_cache_key":"mine"}'), headers={"X-Limpet-Key": "k"}
    )
    assert up.requests[2].body == spaced.replace(b"}", b',"prompt_cache_key":"mine"}')


async def test_stamped_bodies_keep_order_and_numbers(gateway: Start, upstreams: Any) -> None:
    """Integers beyond 64 bits, exponents, trailing zeros, half emojis: every foreign value keeps its text."""
    (up,) = await upstreams()
    gate = await gateway(up)
    body = (
        b'{"z":123456789012345678901234567890,"a":1.0,"e":1e400,"t":0.10,"s":"\\ud83d","messages":[{"n":18446744073709551617}]}'
    )
    await gate.http.post("/v1/chat/completions", content=body, headers={"X-Limpet-Key": "k"})
    sent = up.requests[0].body
    assert sent.startswith(body[:-1] + b',"prompt_cache_key":"gwk_')


async def test_compressed_answers_pass(gateway: Start, upstreams: Any) -> None:
    """The gateway decompresses nothing."""
    (up,) = await upstreams()
    squeezed = b"\x1f\x8b\x08\x00" + os.urandom(500)

    async def packed(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(200, squeezed, "application/json", "content-encoding: gzip"))

    up.behave = packed
    gate = await gateway(up)
    async with gate.http.stream("POST", "/v1/chat/completions", json={"messages": []}, headers={"X-Limpet-Key": "k"}) as got:
        assert b"".join([part async for part in got.aiter_raw()]) == squeezed
    assert up.requests[0].headers["accept-encoding"] == gate.http.headers["accept-encoding"]


async def test_event_streams_pass_bit_for_bit(gateway: Start, upstreams: Any) -> None:
    """Comments, CRLF, names, split code points: the stream's bytes are the same, however it was cut."""
    (up,) = await upstreams()
    stream = (
        b': ping\r\n\r\nevent: x\r\ndata: {"a":\r\ndata: 1}\r\n\r\n\n\ndata: \xe2\x82\xac\n\nretry: 5\n\ndata: [DONE]\n\ntail'
    )

    async def cut(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for at in range(len(stream)):
            writer.write(b"1\r\n%c\r\n" % stream[at])
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    up.behave = cut
    gate = await gateway(up)
    assert (await gate.chat("k", stream=True)).content == stream


async def test_hop_by_hop_headers(gateway: Start, upstreams: Any) -> None:
    """Connection's own headers, and those it names, end here, both ways; the rest passes, traceparent unchanged."""
    (up,) = await upstreams()

    async def chatty(_: Request, writer: asyncio.StreamWriter) -> None:
        extra = (
            "connection: x-hop",
            "x-hop: 1",
            "keep-alive: timeout=5",
            "x-limpet-secret: 1",
            "x-request-id: r1",
            "set-cookie: a=1",
        )
        writer.write(answer(200, completion("up"), "application/json", *extra, "set-cookie: b=2"))

    up.behave = chatty
    gate = await gateway(up)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    sent = {
        "Connection": "keep-alive, X-Mine",
        "X-Mine": "1",
        "TE": "trailers",
        "Upgrade": "h2c",
        "traceparent": trace,
        "Expect": "",
    }
    got = await gate.chat("k", headers={**sent, "Proxy-Authorization": "x", "User-Agent": "me/1", "Authorization": "Bearer up"})
    seen = up.requests[0].headers
    assert not {"x-mine", "te", "upgrade", "proxy-authorization", "expect", "x-limpet-key", "keep-alive"} & seen.keys()
    assert (seen["traceparent"], seen["user-agent"], seen["authorization"]) == (trace, "me/1", "Bearer up")
    assert seen["host"] == f"127.0.0.1:{up.port}"
    assert not {"x-hop", "keep-alive", "x-limpet-secret"} & {name.lower() for name in got.headers}
    assert got.headers["x-request-id"] == "r1"
    assert got.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert len(got.headers.get_list("date")) == 1


async def test_raw_keys_never_leave(gateway: Start, upstreams: Any) -> None:
    """Everything that reaches the upstream is searched for the key: on stamped routes and on those passed through."""
    (up,) = await upstreams()
    gate = await gateway(up)
    key = "whatsapp:+4915112345678"
    carriers = [
        "X-Limpet-Key",
        "X-Session-ID",
        "X-Session-Affinity",
        "X-SMG-Routing-Key",
        "x-claude-code-session-id",
        "session-id",
    ]
    for name in carriers:
        both = {name: key, "X-Correlation-ID": key, "X-Limpet-Parent-Key": key}
        await gate.chat(None, headers=both)
        await gate.chat(None, headers=both, stream=True)
        await gate.http.post("/v1/responses", json={"input": "x"}, headers=both)
        await gate.http.get("/v1/models", headers=both)
        await gate.http.post("/v1/embeddings", json={"input": "x"}, headers=both)
    for name in ("session_id", "prompt_cache_key"):
        await gate.chat(None, **{name: key})
    assert len(up.requests) == 5 * len(carriers) + 2
    assert not any(key.encode() in request.raw or b"4915112345678" in request.raw for request in up.requests)


async def test_session_header_that_supplied_the_key_becomes_the_scope(gateway: Start, upstreams: Any) -> None:
    """A client that sends X-Dynamo-Session-ID itself, as AIPerf does, still gets the scope on the wire."""
    (up,) = await upstreams()
    gate = await gateway(up, profile="dynamo")
    await gate.chat(None, headers={"X-Dynamo-Session-ID": "s1", "X-Correlation-ID": "s1", "X-Session-Affinity": "s1"})
    seen = up.requests[0].headers
    assert seen["x-dynamo-session-id"].startswith("gwk_")
    assert not {"x-correlation-id", "x-session-affinity"} & seen.keys()


async def test_base_paths_and_credentials(gateway: Start, upstreams: Any, limpet: Any) -> None:
    """An upstream with a base path gets /v1 once; its credentials are sent, and are part of no name."""
    (up,) = await upstreams()
    url = up.url.replace("http://", "http://me:s%20ecret@") + "/api/v1/"
    gate = await gateway(profile="openai-chat", upstreams=(url,))
    assert (await gate.chat("k")).status_code == 200
    await gate.http.get("/v1/models?x=%2Fa&x=b")
    assert [request.target for request in up.requests] == ["/api/v1/chat/completions", "/api/v1/models?x=%2Fa&x=b"]
    assert up.requests[0].headers["authorization"] == "Basic bWU6cyBlY3JldA=="
    state = await limpet.peek("k")
    assert state.binding.worker == up.url + "/api/v1"
    await gate.chat("k", headers={"Authorization": "Bearer own"})
    assert up.requests[2].headers["authorization"] == "Bearer own"


async def test_large_bodies_stream_through(gateway: Start, upstreams: Any) -> None:
    """A body that nobody stamps is not held: the upstream has its beginning before the client has sent its end."""
    (up,) = await upstreams()
    begun = False
    gate = await gateway(up)

    async def chunks() -> Any:
        nonlocal begun
        yield b"x" * 100_000
        await asyncio.wait_for(up.connected.wait(), 10)
        begun = True
        yield b"y" * 100_000

    got = await gate.http.post("/v1/files", content=chunks())
    assert begun
    assert got.content == b"x" * 100_000 + b"y" * 100_000


async def test_pass_through_skips_dead_upstreams(gateway: Start, upstreams: Any) -> None:
    """A dead upstream is passed over for unstamped requests too."""
    ups = await upstreams(3)
    gate = await gateway(*ups)
    await ups[0].stop()
    await ups[2].stop()
    assert [(await gate.http.get("/v1/models")).status_code for _ in range(6)] == [200] * 6
    assert (await gate.http.head("/v1/models")).status_code == 200
    await ups[1].stop()
    got = await gate.http.get("/v1/models")
    assert (got.status_code, got.json()["code"]) == (502, "upstream_unreachable")


async def test_own_routes(gateway: Start, upstreams: Any) -> None:
    """Probes and metrics are answered by the gateway itself."""
    (up,) = await upstreams()
    gate = await gateway(up)
    for path in ("/livez", "/readyz", "/metrics"):
        assert (await gate.http.get(path)).status_code == 200
    assert up.requests == []
    assert (await gate.http.get("/v1/debug/samples")).status_code == 403
    async with httpx.AsyncClient() as other:
        assert (await other.get(gate.url + "/")).status_code == 200  # the upstream's own root
    assert len(up.requests) == 1
