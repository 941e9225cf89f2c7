"""The usual turn of a pool's conversation costs one call of the script, and proposes nobody; any other one is as it was."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from limpet import Limpet
from limpet.instruments import NullMetrics

POOL = {"pool": "p"}
WAITING = {"pool": "p", "wait_ms": 2000}


class Counted(NullMetrics):
    """Counts the calls of each script, and what became of the binds."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.binds: Counter[str] = Counter()

    def store_seconds(self, command: str, seconds: float) -> None:
        self.calls[command] += 1

    def bind(self, action: str) -> None:
        self.binds[action] += 1


@pytest.fixture
async def client(store_url: str) -> AsyncIterator[Limpet]:
    async with Limpet.connect(store_url, partitions=16, instruments=Counted()) as made:
        for name in ("w0", "w1"):
            await made.register(name, pool="p", address=f"http://{name}", incarnation="1", ttl_ms=0)
        yield made


def counted(client: Limpet) -> Counted:
    found = client._instruments
    assert isinstance(found, Counted)
    return found


@pytest.mark.parametrize("bind", [POOL, WAITING, POOL | {"exclude": ["w9"]}])
async def test_the_usual_turn(client: Limpet, bind: dict[str, object]) -> None:
    """One call a turn, the same answer as the first turn's binding, nobody's load changed."""
    first = await client.resolve("k", session_id="s", bind=bind | {"commit": True})
    worker = first.binding.worker
    calls, view = counted(client).calls, client._workers_view()
    before, load = calls["conversation_resolve"], view.load(worker)
    for session in ("s", "t", "u"):
        turn = await client.resolve("k", session_id=session, bind=bind)
        assert turn.session_id == session
        assert (turn.binding.action, turn.binding.worker) == ("continue", worker)
        assert turn.binding.address == f"http://{worker}"
        assert (turn.binding.fence, turn.scope, turn.epoch) == (first.binding.fence, first.scope, first.epoch)
    assert calls["conversation_resolve"] == before + 3
    assert view.load(worker) == load
    assert counted(client).binds == {"bind": 1, "continue": 3}


async def test_what_is_to_be_decided(client: Limpet) -> None:
    """After a release the next turn binds, with a worker of the pool; after an advance too; after a suspend a reset is told."""
    first = await client.resolve("k", session_id="s", bind=POOL | {"commit": True})
    await client.release("k", fence=first.binding.fence)
    second = await client.resolve("k", session_id="s", bind=POOL | {"commit": True})
    assert second.binding.action == "bind"
    assert second.binding.worker in ("w0", "w1")
    assert second.binding.fence > first.binding.fence
    await client.advance("k", "new")
    third = await client.resolve("k", session_id="s", bind=POOL | {"commit": True})
    assert (third.binding.action, third.epoch > second.epoch) == ("bind", True)
    await client.suspend("k")
    fourth = await client.resolve("k", session_id="s", bind=POOL)
    assert fourth.reset.reason == "suspended"
    assert counted(client).binds["bind"] == 4


async def test_a_worker_that_is_gone(client: Limpet, wait_for) -> None:
    """The record is in order, its worker is not: it moves in its next turn, as without the short way."""
    first = await client.resolve("k", session_id="s", bind=POOL | {"commit": True})
    gone = first.binding.worker
    await client.remove_worker(gone)
    view = client._workers_view()

    async def seen() -> bool:
        return gone not in view.snapshot.workers

    await wait_for(seen, 5, "the registry without it")
    turn = await client.resolve("k", session_id="s", bind=POOL)
    assert (turn.binding.action, turn.binding.rebound) == ("bind", True)
    assert turn.binding.worker not in (None, gone)
    assert turn.binding.fence > first.binding.fence
    assert counted(client).binds == {"bind": 2, "rebound": 1}


async def test_another_s_claim_is_waited_for(client: Limpet) -> None:
    """With wait_ms: the claim is waited for, and its confirm followed."""
    claim = await client.resolve("k", session_id="s", bind=POOL)
    waiting = asyncio.ensure_future(client.resolve("k", session_id="t", bind=WAITING))
    await client.confirm("k", fence=claim.binding.fence)
    turn = await waiting
    assert (turn.binding.action, turn.binding.worker) == ("continue", claim.binding.worker)
