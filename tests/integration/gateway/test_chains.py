"""Response chains: /v1/responses turns that are linked by previous_response_id alone are one conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from limpet import Limpet
from tests.integration.gateway.conftest import Start
from tests.integration.gateway.upstream import STREAM_HEAD, answer, sse


async def ask(gate: Any, previous: str | None = None, headers: dict[str, str] | None = None, **more: Any) -> Any:
    """One turn."""
    body = {"model": "m", "input": "hi", **({"previous_response_id": previous} if previous else {}), **more}
    return await gate.http.post("/v1/responses", json=body, headers=headers or {})


async def test_three_turns_are_one_conversation(gateway: Start, upstreams: Any) -> None:
    """Whichever gateway they reach: one scope, one upstream, one bind."""
    ups = await upstreams(3)
    gates = [await gateway(*ups, profile="openai-responses"), await gateway(*ups, profile="openai-responses")]
    previous, epochs, actions = None, set(), []
    for n in range(3):
        got = await ask(gates[n % 2], previous)
        previous = got.json()["id"]
        epochs.add(got.headers["x-limpet-epoch"])
        actions.append(got.headers["x-limpet-action"])
    assert len(epochs) == 1
    assert actions == ["bind", "continue", "continue"]
    used = [up for up in ups if up.requests]
    assert len(used) == 1
    assert len({request.json["prompt_cache_key"] for request in used[0].requests}) == 1


async def test_streamed_responses_are_linked(gateway: Start, upstreams: Any) -> None:
    """The id stands in response.created; the next turn may come as soon as the stream has ended."""
    (up,) = await upstreams()
    count = 0

    async def stream(_: Any, writer: Any) -> None:
        nonlocal count
        count += 1
        created = json.dumps({"type": "response.created", "response": {"id": f"resp_s{count}", "status": "in_progress"}})
        done = json.dumps({"type": "response.completed", "response": {"id": f"resp_s{count}"}})
        for chunk in (STREAM_HEAD, *sse(created, done), b"0\r\n\r\n"):
            writer.write(chunk)
            await writer.drain()

    up.behave = stream
    gate = await gateway(up, profile="openai-responses")
    first = await ask(gate, stream=True)
    second = await ask(gate, "resp_s1", stream=True)
    third = await ask(gate, "resp_s2", stream=True)
    assert len({each.headers["x-limpet-epoch"] for each in (first, second, third)}) == 1
    assert "accept-encoding" not in up.requests[0].headers  # what is to be read must not be compressed


async def test_chain_joins_a_keyed_conversation(gateway: Start, upstreams: Any, limpet: Limpet) -> None:
    """A response of a keyed turn leads back to that key; an explicit key wins over the chain."""
    (up,) = await upstreams()
    gate = await gateway(up, profile="openai-responses")
    first = await ask(gate, headers={"X-Limpet-Key": "tel:1"})
    assert await limpet.key_of_response(first.json()["id"]) == "tel:1"
    second = await ask(gate, first.json()["id"])
    assert second.headers["x-limpet-epoch"] == first.headers["x-limpet-epoch"]
    other = await ask(gate, first.json()["id"], headers={"X-Limpet-Key": "tel:2"})
    assert other.headers["x-limpet-epoch"] != first.headers["x-limpet-epoch"]
    assert not any(b"tel:" in request.raw for request in up.requests)


async def test_unknown_previous_response_keeps_its_followers_together(gateway: Start, upstreams: Any) -> None:
    """Nobody linked it (too old, or elsewhere): its followers still share one scope."""
    (up,) = await upstreams()
    gate = await gateway(up, profile="openai-responses")
    got = [await ask(gate, "resp_from_elsewhere_" + "x" * 400) for _ in range(2)]
    assert len({each.headers["x-limpet-epoch"] for each in got}) == 1
    assert up.requests[0].json["previous_response_id"].startswith("resp_from_elsewhere_")


async def test_unstored_responses_make_no_conversation(gateway: Start, upstreams: Any) -> None:
    """With store: false nothing can follow, so nothing is kept; separate first turns are separate conversations."""
    (up,) = await upstreams()
    gate = await gateway(up, profile="openai-responses")
    got = await ask(gate, store=False)
    assert "x-limpet-epoch" not in got.headers
    one, two = await ask(gate), await ask(gate)
    assert one.headers["x-limpet-epoch"] != two.headers["x-limpet-epoch"]


UNKNOWABLE = ["\\ud800", "resp_\\udfff", "x" * 300 + "\\udc00"]
"""As JSON writes it: half of a surrogate pair, which UTF-8 cannot carry."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", UNKNOWABLE)
async def test_a_response_id_that_nobody_can_know(gateway: Start, upstreams: Any, text: str, stream: bool) -> None:
    """The answer is as good as any; it is linked to nothing."""
    (up,) = await upstreams()
    body = f'{{"id":"{text}"}}'
    event = f'{{"response":{body}}}'

    async def odd(_: Any, writer: Any) -> None:
        whole = STREAM_HEAD + b"".join(sse(event)) + b"0\r\n\r\n" if stream else answer(200, body.encode())
        writer.write(whole)

    up.behave = odd
    gate = await gateway(up, profile="openai-responses")
    got = await ask(gate, headers={"X-Limpet-Key": "k"}, stream=stream)
    assert (got.status_code, got.headers["x-limpet-action"]) == (200, "bind")
    assert got.text == (f"data: {event}\n\n" if stream else body)
    assert (await ask(gate, headers={"X-Limpet-Key": "k"})).headers["x-limpet-action"] == "continue"


@pytest.mark.parametrize("text", UNKNOWABLE)
async def test_a_previous_response_that_nobody_can_know(gateway: Start, upstreams: Any, text: str) -> None:
    """It gives the request no key; what becomes of it is for the upstream to say. One with a key of its own is a turn."""
    (up,) = await upstreams()
    gate = await gateway(up, profile="openai-responses")
    body = b'{"input":"hi","previous_response_id":"%s"}' % text.encode()
    for headers in ({}, {"X-Limpet-Key": "k"}):
        got = await gate.http.post("/v1/responses", content=body, headers=headers)
        assert got.status_code == 200
        assert ("x-limpet-epoch" in got.headers) == bool(headers)
    assert b'"previous_response_id":"%s"' % text.encode() in up.requests[0].body
