"""A turn leaves nothing for the garbage collector: one cycle in each is a pause of tens of milliseconds every few thousand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.gateway.conftest import Start
from tests.integration.gateway.upstream import STREAM_HEAD, Request, answer, sse
from tests.support.cycles import no_cycles

UpstreamsFixture = Any


async def _stream(_: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD + b"".join(sse('{"choices": []}', "[DONE]")) + b"0\r\n\r\n")


async def _refuse(_: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(422, b"{}"))


@pytest.mark.parametrize("behaviour", [None, _stream, _refuse], ids=["answer", "stream", "refusal"])
@pytest.mark.parametrize("profile", ["openai-chat", "dynamo"])
@pytest.mark.parametrize("memo_ttl_ms", [0, 1000])
async def test_turns(gateway: Start, upstreams: UpstreamsFixture, behaviour: Any, profile: str, memo_ttl_ms: int) -> None:
    """First turns, later ones, answers, streams, refusals."""
    (up,) = await upstreams()
    if behaviour is not None:
        up.behave = behaviour
    gate = await gateway(up, profile=profile, memo_ttl_ms=memo_ttl_ms)
    await gate.chat("warm")
    with no_cycles():
        for turn in range(12):
            assert (await gate.chat(f"k{turn % 3}")).status_code == (422 if behaviour is _refuse else 200)


async def test_requests_that_are_refused_or_pass(gateway: Start, upstreams: UpstreamsFixture) -> None:
    """What never becomes a turn."""
    (up,) = await upstreams()
    gate = await gateway(up)
    await gate.chat("warm")
    with no_cycles():
        for _ in range(3):
            assert (await gate.chat("k" * 300)).status_code == 400
            assert (await gate.chat("k", headers={"X-Limpet-Kind": "odd"})).status_code == 400
            assert (await gate.http.post("/v1/chat/completions", content=b"no", headers={"X-Limpet-Key": "k"})).status_code == 400
            assert (await gate.http.get("/v1/models")).status_code == 200
            assert (await gate.chat(None)).status_code == 200
