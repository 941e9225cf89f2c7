"""A worker is lost: the conversation moves once, everywhere, and the client does not notice."""

from __future__ import annotations

import asyncio
from typing import Any

from limpet import Limpet
from tests.integration.gateway.conftest import Start
from tests.integration.gateway.upstream import Request, answer


def by(ups: list[Any], url: str | None) -> Any:
    """The upstream of a URL."""
    return next(up for up in ups if up.url == url)


async def bound_worker(limpet: Limpet, key: str) -> str | None:
    """Where the key is bound."""
    state = await limpet.peek(key)
    assert state is not None
    return state.binding.worker if state.binding is not None else None


async def test_refused_connection_moves_the_conversation(gateway: Start, upstreams: Any, limpet: Limpet) -> None:
    """The bound upstream is gone: this turn is served by another, the binding says so, and the epoch is the same."""
    ups = await upstreams(2)
    gates = [await gateway(*ups, memo_ttl_ms=1000), await gateway(*ups)]
    first = await gates[0].chat("k")
    old = by(ups, await bound_worker(limpet, "k"))
    await old.stop()
    for gate in (*gates, *gates):
        got = await gate.chat("k")
        assert got.status_code == 200
        assert got.headers["x-limpet-epoch"] == first.headers["x-limpet-epoch"]
    new = by(ups, await bound_worker(limpet, "k"))
    assert new is not old
    assert len(new.requests) == 4


async def test_503_moves_and_retries_once(gateway: Start, upstreams: Any, limpet: Limpet) -> None:
    """502 and 503 are a lost worker; one retry, and what the second one says is the answer."""
    ups = await upstreams(3)
    gate = await gateway(*ups)
    await gate.chat("k")
    old = by(ups, await bound_worker(limpet, "k"))

    async def away(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(503, b'{"error":{"message":"loading"}}'))

    old.behave = away
    assert (await gate.chat("k")).status_code == 200
    assert await bound_worker(limpet, "k") != old.url
    for up in ups:
        up.behave, up.requests = away, []
    got = await gate.chat("k")
    assert (got.status_code, got.json()) == (503, {"error": {"message": "loading"}})
    assert sum(len(up.requests) for up in ups) == 2


async def test_the_only_upstream_keeps_its_conversations(gateway: Start, upstreams: Any, limpet: Limpet) -> None:
    """With nowhere to go the 503 goes to the client, once, and the binding stays."""
    (up,) = await upstreams()
    gate = await gateway(up)
    await gate.chat("k")

    async def away(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(503, b"{}"))

    up.behave = away
    assert (await gate.chat("k")).status_code == 503
    assert len(up.requests) == 2
    assert await bound_worker(limpet, "k") == up.url


async def test_all_away(gateway: Start, upstreams: Any, limpet: Limpet) -> None:
    """No upstream at all: 502, nothing bound; when one is back, it is bound."""
    ups = await upstreams(2)
    gate = await gateway(*ups)
    for up in ups:
        await up.stop()
    got = await gate.chat("k")
    assert (got.status_code, got.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert await bound_worker(limpet, "k") is None
    assert (await gate.http.get("/readyz")).status_code == 503
    await ups[0].start()
    assert (await gate.chat("k")).status_code == 200
    assert await bound_worker(limpet, "k") == ups[0].url


async def test_reset_before_the_answer_moves(gateway: Start, upstreams: Any, limpet: Limpet) -> None:
    """A fresh connection that is closed without an answer is a lost worker; the client gets the other one's answer."""
    ups = await upstreams(2)
    gate = await gateway(*ups)

    async def drop(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    chosen = None
    ups[0].behave = ups[1].behave = drop
    got = await gate.chat("k")
    assert (got.status_code, got.json()["code"]) == (502, "upstream_failed")
    assert await bound_worker(limpet, "k") is None
    chosen, other = sorted(ups, key=lambda up: up.requests == [])
    other.behave = other.serve
    assert chosen.requests
    got = await gate.chat("k")
    assert got.status_code == 200
    assert await bound_worker(limpet, "k") == other.url


async def test_stale_keep_alive_connection_moves_nothing(gateway: Start, upstreams: Any, limpet: Limpet) -> None:
    """An idle connection that the upstream closes just then is no lost worker: the same one is asked again."""
    ups = await upstreams(2)
    gate = await gateway(*ups)
    await gate.chat("k")
    up = by(ups, await bound_worker(limpet, "k"))
    count = 0

    async def once(request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        if count == 1:
            writer.transport.abort()
        else:
            await up.serve(request, writer)

    up.behave = once
    assert (await gate.chat("k")).status_code == 200
    assert await bound_worker(limpet, "k") == up.url
    assert count == 2


async def test_removed_upstream(gateway: Start, upstreams: Any, limpet: Limpet) -> None:
    """A gateway that no longer has the bound upstream in its configuration rebinds to one that it has."""
    ups = await upstreams(2)
    await (await gateway(ups[0])).chat("k")
    got = await (await gateway(ups[1])).chat("k")
    assert got.status_code == 200
    assert await bound_worker(limpet, "k") == ups[1].url


async def test_metrics_tell(gateway: Start, upstreams: Any) -> None:
    """Requests, retries, rebinds and the time to the first byte are counted, without a key in any label."""
    ups = await upstreams(2)
    gate = await gateway(*ups)
    await gate.chat("secret-key")
    served = next(up for up in ups if up.requests)
    await served.stop()
    await gate.chat("secret-key")
    text = (await gate.http.get("/metrics")).text
    assert 'limpet_gateway_requests_total{route="chat",status="2xx"} 2.0' in text
    assert 'limpet_gateway_retries_total{reason="unreachable"} 1.0' in text
    assert 'limpet_gateway_rebinds_total{reason="unreachable"} 1.0' in text
    assert 'limpet_gateway_upstream_seconds_count{route="chat"} 2.0' in text
    assert "limpet_gateway_in_flight 0.0" in text
    assert "secret-key" not in text
