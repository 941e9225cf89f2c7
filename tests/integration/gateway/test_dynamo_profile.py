"""The Dynamo profile against a frontend that behaves as Dynamo 1.6.1 does (measured with rigs/dynamo)."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from limpet import Limpet
from tests.integration.gateway.conftest import Start
from tests.integration.gateway.upstream import STREAM_HEAD, Request, Upstream, answer, completion

WORKERS = [18361883193468837076, 7361887936724486587, 6155311433146560996]
"""Beyond 2^63 and 2^53."""


class Frontend(Upstream):
    """A Dynamo frontend: its own table of sessions, workers chosen at random, pins honoured, or 400."""

    def __init__(self, name: str, alive: list[int]) -> None:
        super().__init__(name)
        self.alive = alive
        self.table: dict[str, int] = {}
        self.behave = self.frontend

    async def frontend(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Serve, as the frontend would."""
        session = request.headers.get("x-dynamo-session-id")
        pin = request.headers.get("x-worker-instance-id")
        known = self.table.get(session or "")
        worker = int(pin) if pin else known or random.choice(WORKERS)
        if (pin and worker not in WORKERS) or (known is not None and known != worker):
            writer.write(answer(400, b'{"message":"Invalid request","type":"Bad Request","code":400}'))
            return
        body = request.json
        if "session_control" in body.get("nvext", {}) or body.get("temperature", 0) > 2:
            writer.write(answer(400, b'{"message":"Validation","type":"Bad Request","code":400}'))
            return
        if session:
            self.table[session] = worker
        if worker not in self.alive:
            writer.write(answer(500, b'{"message":"Failed to generate completions","code":500}'))
            return
        asked = "worker_id" in body.get("nvext", {}).get("extra_fields", [])
        raw = f'{{"prefill_worker_id":{worker},"prefill_dp_rank":0,"decode_worker_id":{worker},"decode_dp_rank":3}}'
        extra = f',"nvext":{{"worker_id":{raw}}}' if asked else ""
        if body.get("stream"):
            writer.write(STREAM_HEAD)
            for n in range(3):
                event = f'data: {{"n":{n},"big":123456789012345678901{extra}}}\n\n'.encode()
                for part in (event[:20], event[20:]):
                    writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                    await writer.drain()
            writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            return
        writer.write(answer(200, completion(str(worker))[:-1] + extra.encode() + b"}"))


@pytest.fixture
async def frontends() -> Any:
    """Two frontends over the same three workers."""
    alive = list(WORKERS)
    pair = [await Frontend(f"f{n}", alive).start() for n in range(2)]
    yield pair
    for each in pair:
        await each.stop()


def served(got: Any) -> str:
    """Who served, by what the worker itself said."""
    return str(got.json()["choices"][0]["message"]["content"])


async def worker_of(limpet: Limpet, key: str) -> tuple[str | None, int | None]:
    """Worker and rank that the key is bound to."""
    state = await limpet.peek(key)
    assert state is not None
    assert state.binding is not None
    return state.binding.worker, state.binding.dp_rank


async def test_learns_and_pins(gateway: Start, frontends: Any, limpet: Limpet) -> None:
    """The first turn learns the worker, exactly; later turns pin it at whichever frontend they reach; the client that did not
    ask sees nothing of it."""
    gates = [await gateway(*frontends, profile="dynamo"), await gateway(*reversed(frontends), profile="dynamo")]
    first = await gates[0].chat("k")
    assert "nvext" not in first.json()
    worker, rank = await worker_of(limpet, "k")
    assert served(first) == f"served by {worker}"
    assert int(worker or "") in WORKERS
    assert rank == 3
    for front in frontends:
        front.table.clear()  # as if restarted
    for gate in (*gates, *gates):
        assert served(await gate.chat("k")) == served(first)
    pinned = [request for front in frontends for request in front.requests][1:]
    assert {request.headers["x-worker-instance-id"] for request in pinned} == {worker}
    assert {request.headers["x-dp-rank"] for request in pinned} == {"3"}
    assert all("nvext" not in request.json for request in pinned)


@pytest.mark.parametrize("asks", [True, False])
async def test_streams(gateway: Start, frontends: Any, limpet: Limpet, asks: bool) -> None:
    """Also from a stream whose events come in pieces; who asked for worker_id gets it as it was, who did not gets none."""
    gate = await gateway(*frontends, profile="dynamo")
    more = {"nvext": {"extra_fields": ["worker_id", "timing"]}} if asks else {}
    text = (await gate.chat("k", stream=True, **more)).text
    worker, _ = await worker_of(limpet, "k")
    events = [event for event in text.split("\n\n") if event]
    assert len(events) == 4
    for n, event in enumerate(events[:3]):
        assert event.startswith(f'data: {{"n":{n},"big":123456789012345678901')
        assert (f'"decode_worker_id":{worker}' in event) is asks
        assert ("nvext" in event) is asks
    assert events[3] == "data: [DONE]"


async def test_race(gateway: Start, frontends: Any) -> None:
    """Concurrent first turns at two gateways and two frontends: one worker, always."""
    gates = [await gateway(*frontends, profile="dynamo"), await gateway(*frontends, profile="dynamo")]
    for n in range(20):
        got = await asyncio.gather(*(gate.chat(f"r{n}") for gate in (*gates, *gates)))
        assert len({served(each) for each in got}) == 1


async def test_dead_frontend_keeps_the_pin(gateway: Start, frontends: Any, limpet: Limpet) -> None:
    """A refused connection is a dead router: the next one gets the same pin, and the binding stays."""
    gate = await gateway(*frontends, profile="dynamo")
    first = await gate.chat("k")
    before = await limpet.peek("k")
    await next(front for front in frontends if front.requests).stop()
    again = await gate.chat("k")
    after = await limpet.peek("k")
    assert served(again) == served(first)
    assert before is not None
    assert after is not None
    assert before.binding is not None
    assert after.binding is not None
    assert (before.binding.fence, before.binding.worker) == (after.binding.fence, after.binding.worker)


async def test_lost_worker(gateway: Start, frontends: Any, limpet: Limpet) -> None:
    """A dead worker's sessions move, each once, without one failed request; both gateways agree; others stay."""
    gates = [await gateway(*frontends, profile="dynamo"), await gateway(*frontends, profile="dynamo")]
    before = {key: served(await gates[0].chat(key)) for key in (f"l{n}" for n in range(12))}
    dead = WORKERS[0]
    frontends[0].alive.remove(dead)
    for _ in range(2):
        for key, old in before.items():
            got = [await gate.chat(key) for gate in gates]
            assert [each.status_code for each in got] == [200, 200]
            assert len({served(each) for each in got}) == 1
            assert (served(got[0]) == old) is (old != f"served by {dead}")


async def test_new_conversations_while_a_worker_is_dead(gateway: Start, frontends: Any) -> None:
    """A router that still chooses the dead worker costs no first turn either: it goes to one that served lately."""
    gate = await gateway(*frontends, profile="dynamo")
    for n in range(12):
        await gate.chat(f"before{n}")
    frontends[0].alive.remove(WORKERS[1])
    for n in range(20):
        got = await gate.chat(f"after{n}")
        assert got.status_code == 200
        assert served(await gate.chat(f"after{n}")) == served(got)


async def test_frontend_that_holds_an_older_binding(gateway: Start, frontends: Any, limpet: Limpet) -> None:
    """400 for a pinned request is a lost pin: rebound under another session header, so that the frontend takes the new pin."""
    gate = await gateway(*frontends, profile="dynamo")
    await gate.chat("k")
    worker, _ = await worker_of(limpet, "k")
    session = next(r.headers["x-dynamo-session-id"] for f in frontends for r in f.requests)
    for front in frontends:
        front.table[session] = next(each for each in WORKERS if str(each) != worker)
    for _ in range(3):
        assert (await gate.chat("k")).status_code == 200
    sessions = [r.headers["x-dynamo-session-id"] for f in frontends for r in f.requests][-1]
    state = await limpet.peek("k")
    assert state is not None
    assert state.binding is not None
    assert sessions == f"{session}-{state.binding.fence}"


async def test_a_clients_own_400_moves_nothing(gateway: Start, frontends: Any, limpet: Limpet) -> None:
    """A request that is wrong is wrong everywhere: the client gets its 400 and the conversation stays where it was."""
    gate = await gateway(*frontends, profile="dynamo")
    for key in ("other1", "other2", "other3", "k"):
        await gate.chat(key)
    before = await worker_of(limpet, "k")
    got = await gate.chat("k", temperature=99)
    assert (got.status_code, got.json()["message"]) == (400, "Validation")
    assert await worker_of(limpet, "k") == before
    assert (await gate.chat("k")).status_code == 200
    assert await worker_of(limpet, "k") == before


async def test_session_control_binds_once(gateway: Start, upstreams: Any) -> None:
    """The older profile: one bind in the cluster, the session on every turn, close on the final one."""
    ups = await upstreams(2)
    gates = [await gateway(*ups, profile="dynamo-session-control"), await gateway(*ups, profile="dynamo-session-control")]
    await asyncio.gather(*(gate.chat("k") for gate in (*gates, *gates)))
    await gates[1].chat("k", headers={"X-Limpet-Final": "1"})
    controls = [r.json["nvext"]["session_control"] for up in ups for r in up.requests]
    actions = sorted(each.get("action", "") for each in controls)
    assert actions == ["", "", "", "bind", "close"]
    assert len({each["session_id"] for each in controls}) == 1
    assert all(each["timeout"] == 300 for each in controls if each.get("action") != "close")


async def test_session_control_is_removed_for_later_builds(gateway: Start, frontends: Any) -> None:
    """1.3 and later reject nvext.session_control, whoever wrote it."""
    gate = await gateway(*frontends, profile="dynamo")
    got = await gate.chat("k", nvext={"session_control": {"session_id": "x"}, "annotations": ["a"]})
    assert got.status_code == 200
    sent = json.loads(next(r.body for f in frontends for r in f.requests))
    assert sent["nvext"] == {"annotations": ["a"], "extra_fields": ["worker_id"]}


async def test_answers_in_pieces_and_too_large_ones(gateway: Start, frontends: Any, limpet: Limpet) -> None:
    """A body that comes in pieces is read as one; one beyond the bound is 502, and the claim is given back."""
    whole = completion("x", nvext={"worker_id": {"decode_worker_id": WORKERS[0], "decode_dp_rank": 0}}, pad="y" * 3000)

    async def pieces(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(whole))
        for at in range(0, len(whole), 700):
            writer.write(whole[at : at + 700])
            await writer.drain()
            await asyncio.sleep(0.005)

    for front in frontends:
        front.behave = pieces
    gate = await gateway(*frontends, profile="dynamo")
    got = await gate.chat("k")
    assert "nvext" not in got.json()
    assert await worker_of(limpet, "k") == (str(WORKERS[0]), 0)
    small = await gateway(*frontends, profile="dynamo", max_body_bytes=1024)
    assert (await small.chat("other")).status_code == 502
    state = await limpet.peek("other")
    assert state is not None
    assert state.binding is None
