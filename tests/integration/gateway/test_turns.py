"""The life of a turn through the gateway: bound once, stamped, confirmed, continued, given back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from limpet import Limpet
from limpet.scope import declared, physical
from tests.integration.gateway.conftest import Start
from tests.integration.gateway.upstream import STREAM_HEAD, Request, answer, completion, sse

UpstreamsFixture = Any


async def test_first_turn_binds_and_later_turns_continue(gateway: Start, upstreams: UpstreamsFixture, limpet: Limpet) -> None:
    """The first turn binds its upstream, later ones return to it, the scope is on the wire, the operator is told."""
    ups = await upstreams(3)
    gate = await gateway(*ups)
    first = await gate.chat("telegram:dm:42")
    assert (first.status_code, first.headers["x-limpet-action"]) == (200, "bind")
    served = next(up for up in ups if up.requests)
    for _ in range(3):
        again = await gate.chat("telegram:dm:42")
        assert again.headers["x-limpet-action"] == "continue"
        assert again.headers["x-limpet-epoch"] == first.headers["x-limpet-epoch"]
    assert len(served.requests) == 4
    state = await limpet.peek("telegram:dm:42")
    assert state is not None
    assert state.binding is not None
    assert (state.binding.state, state.binding.worker) == ("bound", served.url)
    scope = declared("telegram:dm:42", state.epoch)
    assert {request.json["prompt_cache_key"] for request in served.requests} == {scope}


async def test_two_gateways_agree(gateway: Start, upstreams: UpstreamsFixture) -> None:
    """Concurrent first turns at two gateways: one bind, one upstream, for each of many conversations."""
    ups = await upstreams(3)
    gates = [await gateway(*ups), await gateway(*reversed(ups))]
    for n in range(30):
        got = await asyncio.gather(*(gate.chat(f"race:{n}") for gate in gates))
        assert sorted(each.headers["x-limpet-action"] for each in got) == ["bind", "continue"]
        assert len({each.json()["choices"][0]["message"]["content"] for each in got}) == 1


async def test_new_begins_a_conversation(gateway: Start, upstreams: UpstreamsFixture) -> None:
    """X-Limpet-New advances first: another epoch, another scope; its retry with the same Idempotency-Key does not."""
    (up,) = await upstreams()
    gate = await gateway(up)
    first = await gate.chat("k")
    fresh = await gate.chat("k", headers={"X-Limpet-New": "1", "Idempotency-Key": "try-1"})
    again = await gate.chat("k", headers={"X-Limpet-New": "1", "Idempotency-Key": "try-1"})
    epochs = [int(each.headers["x-limpet-epoch"]) for each in (first, fresh, again)]
    assert epochs[0] < epochs[1] == epochs[2]
    keys = [request.json["prompt_cache_key"] for request in up.requests]
    assert keys[0] != keys[1] == keys[2]


async def test_fork_keeps_its_own_scope(gateway: Start, upstreams: UpstreamsFixture, limpet: Limpet) -> None:
    """A fork has the physical scope of its session, and its parent's conversation is as it was."""
    (up,) = await upstreams()
    gate = await gateway(up)
    await gate.chat("parent")
    before = await limpet.peek("parent")
    await gate.chat("parent", headers={"X-Limpet-Kind": "fork", "X-Limpet-Session-ID": "branch-1"})
    after = await limpet.peek("parent")
    assert up.requests[1].json["prompt_cache_key"] == physical("branch-1")
    assert before is not None
    assert after is not None
    assert (before.epoch, before.binding and before.binding.fence) == (after.epoch, after.binding and after.binding.fence)


async def test_final_releases(gateway: Start, upstreams: UpstreamsFixture, limpet: Limpet) -> None:
    """After X-Limpet-Final nothing is bound; the epoch stays."""
    (up,) = await upstreams()
    gate = await gateway(up)
    first = await gate.chat("k")
    await gate.chat("k", headers={"X-Limpet-Final": "1"})
    state = await limpet.peek("k")
    assert state is not None
    assert state.binding is None
    assert str(state.epoch) == first.headers["x-limpet-epoch"]


async def test_stream_is_not_buffered_and_is_confirmed_early(gateway: Start, upstreams: UpstreamsFixture, limpet: Limpet) -> None:
    """The first event arrives, and the binding is confirmed, while the upstream has not sent the second."""
    (up,) = await upstreams()
    go = asyncio.Event()

    async def slow(_: Request, writer: asyncio.StreamWriter) -> None:
        one, two = sse('{"n":1}', "[DONE]")
        writer.write(STREAM_HEAD + one)
        await go.wait()
        writer.write(two + b"0\r\n\r\n")

    up.behave = slow
    gate = await gateway(up)
    body = {"model": "m", "messages": [], "stream": True}
    async with gate.http.stream("POST", "/v1/chat/completions", json=body, headers={"X-Limpet-Key": "k"}) as got:
        parts = got.aiter_raw()
        assert await anext(parts) == b'data: {"n":1}\n\n'
        state = await limpet.peek("k")
        while state is None or state.binding is None or state.binding.state != "bound":
            state = await limpet.peek("k")
        go.set()
        assert b"".join([part async for part in parts]) == b"data: [DONE]\n\n"


async def test_claim_is_renewed_while_the_first_token_is_slow(
    gateway: Start, upstreams: UpstreamsFixture, limpet: Limpet
) -> None:
    """A first token that takes three claim ttls costs no claim: nobody else is told to bind meanwhile."""
    (up,) = await upstreams()
    go = asyncio.Event()

    async def slow(_: Request, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(answer(200, completion("slow")))

    up.behave = slow
    gate = await gateway(up, claim_ttl_ms=300)
    turn = asyncio.create_task(gate.chat("k"))
    await up.arrived(1)
    for _ in range(10):
        other = await limpet.resolve("k", session_id="x", bind={"claim_ttl_ms": 300})
        assert other.binding is not None
        assert other.binding.action == "wait"
        await asyncio.sleep(0.1)
    go.set()
    assert (await turn).status_code == 200
    state = await limpet.peek("k")
    assert state is not None
    assert state.binding is not None
    assert state.binding.state == "bound"


async def test_refused_first_turn_is_given_back(gateway: Start, upstreams: UpstreamsFixture, limpet: Limpet) -> None:
    """A first turn that the upstream refuses binds nothing; the next turn binds."""
    (up,) = await upstreams()

    async def refuse(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(429, b'{"error":{"message":"slow down"}}', "application/json", "retry-after: 7"))

    gate = await gateway(up)
    up.behave = refuse
    got = await gate.chat("k")
    assert (got.status_code, got.headers["retry-after"]) == (429, "7")
    state = await limpet.peek("k")
    assert state is not None
    assert state.binding is None
    up.behave = up.serve
    assert (await gate.chat("k")).headers["x-limpet-action"] == "bind"


async def test_stream_that_opens_with_an_error_binds_nothing(gateway: Start, upstreams: UpstreamsFixture, limpet: Limpet) -> None:
    """200 and then an error event is no good answer."""
    (up,) = await upstreams()

    async def fail(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + sse('{"error":{"message":"no"}}')[0] + b"0\r\n\r\n")

    up.behave = fail
    gate = await gateway(up)
    assert (await gate.chat("k", stream=True)).text == 'data: {"error":{"message":"no"}}\n\n'
    state = await limpet.peek("k")
    assert state is not None
    assert state.binding is None


async def test_store_away_still_serves(gateway: Start, upstreams: UpstreamsFixture, fresh_server: Any) -> None:
    """Without the store turns go out under the physical scope, marked degraded; /new fails instead of pretending."""
    (up,) = await upstreams()
    store = fresh_server()
    gate = await gateway(up, redis_url=store.url)
    await gate.chat("warm")
    store.kill9()
    got = await gate.chat("k")
    assert (got.status_code, got.headers["x-limpet-action"]) == (200, "degraded")
    assert up.requests[-1].json["prompt_cache_key"] == physical("k")
    new = await gate.chat("k", headers={"X-Limpet-New": "1"})
    assert (new.status_code, new.json()["code"]) == (503, "store_unavailable")
    ready = await gate.http.get("/readyz")
    assert (ready.status_code, ready.json()["store"]) == (200, "store_unavailable")


async def test_headers_can_be_turned_off(gateway: Start, upstreams: UpstreamsFixture) -> None:
    """The operator's headers are off by configuration, and no answer ever names a worker."""
    (up,) = await upstreams()
    gate = await gateway(up, gateway_headers=False)
    got = await gate.chat("k")
    assert not any(name.startswith("x-limpet") for name in got.headers)
    assert str(up.port) not in str(got.headers)


async def test_cache_bust(gateway: Start, upstreams: UpstreamsFixture) -> None:
    """The option marks the first user turn with the scope's marker, once, the same on every turn."""
    (up,) = await upstreams()
    gate = await gateway(up, cache_bust="first_turn_prefix")
    await gate.chat("k")
    marked = up.requests[0].json["messages"][0]["content"]
    assert marked.startswith("[rid:")
    assert marked.endswith("\n\nhello")
    await gate.chat("k", marked)
    assert up.requests[1].json["messages"][0]["content"] == marked


async def test_cache_bust_leaves_forks_alone(gateway: Start, upstreams: UpstreamsFixture) -> None:
    """A fork inherits its parent's marked history."""
    (up,) = await upstreams()
    gate = await gateway(up, cache_bust="first_turn_prefix")
    await gate.chat("k", headers={"X-Limpet-Kind": "fork", "X-Limpet-Session-ID": "b"})
    assert up.requests[0].json["messages"][0]["content"] == "hello"


@pytest.mark.parametrize("name", ["X-Hermes-Session-Key", "X-Session-ID", "X-Dynamo-Session-ID", "session_id"])
async def test_known_headers_supply_the_key(gateway: Start, upstreams: UpstreamsFixture, limpet: Limpet, name: str) -> None:
    """Hosts' own headers are read, and none that holds the key goes upstream."""
    (up,) = await upstreams()
    gate = await gateway(up)
    await gate.chat(None, headers={name: "+33612345678", "X-Correlation-ID": "+33612345678"})
    assert await limpet.peek("+33612345678") is not None
    assert b"33612345678" not in up.requests[0].raw


async def test_correlation_id_is_no_key(gateway: Start, upstreams: UpstreamsFixture, limpet: Limpet) -> None:
    """Many proxies set it per request, so by default nothing is stamped for it; it is passed on."""
    (up,) = await upstreams()
    gate = await gateway(up)
    got = await gate.chat(None, headers={"X-Correlation-ID": "c1"})
    assert got.status_code == 200
    assert await limpet.peek("c1") is None
    assert up.requests[0].headers["x-correlation-id"] == "c1"
    assert "prompt_cache_key" not in up.requests[0].json


async def test_key_in_the_body_is_replaced(gateway: Start, upstreams: UpstreamsFixture, limpet: Limpet) -> None:
    """A body's prompt_cache_key that supplied the key becomes the scope: an explicit value would stay."""
    (up,) = await upstreams()
    gate = await gateway(up)
    await gate.chat(None, prompt_cache_key="user-7")
    assert up.requests[0].json["prompt_cache_key"].startswith("gwk_")
    await gate.chat("k", prompt_cache_key="mine")
    assert up.requests[1].json["prompt_cache_key"] == "mine"


async def test_sampling(gateway: Start, upstreams: UpstreamsFixture) -> None:
    """The first turns of a session are sampled without secrets and keys, and shown to an admin's token only."""
    import hashlib

    (up,) = await upstreams()
    tokens = json.dumps(
        [
            {"sha256": hashlib.sha256(b"user-of-it").hexdigest()},
            {"sha256": hashlib.sha256(b"boss").hexdigest(), "rights": ["resolve", "admin"]},
        ]
    )
    gate = await gateway(up, tokens=json.loads(tokens), debug_samples=1, debug_chars=400)
    user, boss = {"X-Limpet-Token": "user-of-it"}, {"X-Limpet-Token": "boss"}
    assert (await gate.chat("tel:42")).status_code == 401
    secret = "my key is sk-abcdefghijklmnop1234, call tel:42"
    for _ in range(2):
        assert (await gate.chat("tel:42", secret, headers={**user, "Authorization": "Bearer upstream"})).status_code == 200
    assert up.requests[0].headers["authorization"] == "Bearer upstream"
    assert "x-limpet-token" not in up.requests[0].headers
    assert (await gate.http.get("/v1/debug/samples", headers=user)).status_code == 403
    got = (await gate.http.get("/v1/debug/samples", headers=boss)).json()["samples"]
    assert len(got) == 1
    assert (got[0]["action"], got[0]["scope"][:4]) == ("bind", "gwk_")
    assert "[redacted]" in got[0]["body"]
    assert "sk-abc" not in str(got)
    assert "tel:42" not in str(got)
