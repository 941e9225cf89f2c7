"""limpet.replay: the life cycle of a load generator's sessions over several processes (two clients stand for two)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from limpet import Limpet
from limpet.replay import Replay
from limpet.scope import physical


@pytest.fixture
async def replays(store_url: str) -> AsyncIterator[list[Replay]]:
    """Two processes' worth."""
    async with Limpet.connect(store_url, holder="a") as one, Limpet.connect(store_url, holder="b") as two:
        yield [Replay(one), Replay(two)]


async def test_warm_up_then_profiling_binds_once(replays: list[Replay]) -> None:
    """The same session id in both phases, at any process: one bind, one scope, one marker, the worker that served."""
    seen = []
    for _phase in ("warm-up", "profiling"):
        for replay in replays:
            async with replay.request("s1") as turn:
                seen.append((turn.binds, turn.scope, turn.marker, turn.worker))
                if turn.binds:
                    turn.served_by("18361883193468837076", 1)
    assert [binds for binds, *_ in seen] == [True, False, False, False]
    assert len({(scope, marker) for _, scope, marker, _ in seen}) == 1
    assert {worker for *_, worker in seen[1:]} == {"18361883193468837076"}


async def test_concurrent_first_requests_bind_once(replays: list[Replay]) -> None:
    """Of many at once exactly one carries the marker, and the others wait for it."""

    async def one(replay: Replay) -> bool:
        async with replay.request("s1") as turn:
            return turn.binds

    assert sorted(await asyncio.gather(*(one(replay) for replay in replays * 5))) == [False] * 9 + [True]


async def test_failed_bind_is_bound_by_the_next_request(replays: list[Replay]) -> None:
    """Whichever process sends it."""

    async def fail() -> None:
        async with replays[0].request("s1") as turn:
            assert turn.binds
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await fail()
    async with replays[1].request("s1") as turn:
        assert turn.binds
    async with replays[0].request("s1") as turn:
        assert not turn.binds


async def test_recycled_session_binds_anew_once(replays: list[Replay]) -> None:
    """All processes recycle for the same cycle: one advance, one new bind, a new scope."""
    async with replays[0].request("s1") as turn:
        old = turn.scope
    epochs = [await replay.recycle("s1", cycle=2) for replay in replays]
    assert len(set(epochs)) == 1
    binds = []
    for replay in replays:
        async with replay.request("s1") as turn:
            binds.append(turn.binds)
            assert turn.scope != old
    assert binds == [True, False]
    assert await replays[0].recycle("s1", cycle=3) > epochs[0]


async def test_branches_have_their_own_sessions(replays: list[Replay]) -> None:
    """A fork binds its own session once, knows its parent's scope, and changes nothing of it."""
    async with replays[0].request("s1") as parent:
        parent.served_by("w1")
    for n, replay in enumerate(replays):
        async with replay.fork("s1/b", parent="s1") as branch:
            assert branch.binds is (n == 0)
            assert branch.scope == physical("s1/b")
            assert branch.turn.resolution.parent_scope == parent.scope
    async with replays[1].request("s1/spawned") as child:
        assert child.binds
    async with replays[1].request("s1") as again:
        assert (again.binds, again.worker) == (False, "w1")


async def test_final_request_releases(replays: list[Replay]) -> None:
    """After the final request nothing is held; on the wire it is the one that closes."""
    async with replays[0].request("s1"):
        pass
    async with replays[1].request("s1", final=True) as turn:
        body = turn.stamp("dynamo-session-control", {}, {"model": "m"}).body
        assert body["nvext"]["session_control"]["action"] == "close"
    async with replays[0].request("s1") as turn:
        assert turn.binds
    async with replays[0].fork("b", parent="s1", final=True) as turn:
        assert turn.binds
    async with replays[1].fork("b", parent="s1") as turn:
        assert turn.binds
