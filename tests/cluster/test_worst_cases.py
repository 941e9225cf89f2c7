"""The deterministic worst cases of losing data: cut replication, failover, failback, old snapshots (design, G3 to G5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from limpet import Limpet, StaleFence
from limpet.errors import NotDurable

from .proxy import Proxy
from .rig import Server, eventually
from .test_failover import first_answer


async def in_step(primary: Server, replica: Server) -> None:
    """Waits until the one follows the other. In a thread: a replica that connects answers nobody until its primary has, and
    between them may be a proxy of this very loop."""

    def linked() -> bool:
        link = replica.info("replication").get("master_link_status")
        return link == "up" and primary.info("replication")["connected_slaves"] == 1

    await eventually(lambda: asyncio.to_thread(linked))


class Pair:
    """A primary A and its replica B over a link that can be cut; clients reach whoever ``address`` points at."""

    def __init__(self, a: Server, b: Server, link: Proxy, address: Proxy) -> None:
        self.a, self.b, self.link, self.address = a, b, link, address

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.address.port}"

    def cut(self) -> None:
        """Nothing reaches the replica any more."""
        self.link.cut()

    async def promote(self, node: Server) -> None:
        """The node becomes the primary, and the address points at it."""
        await asyncio.to_thread(node.do, "REPLICAOF", "NO", "ONE")
        self.address.point(node.port)

    async def follow(self, replica: Server, primary: Server) -> None:
        """The node throws its data away and copies the primary's."""
        await asyncio.to_thread(replica.do, "REPLICAOF", "127.0.0.1", primary.port)
        await in_step(primary, replica)


PERSISTENT = ("--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0")


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """A and B, in step."""
    a, b = Server(tmp_path / "a", *PERSISTENT).start(), Server(tmp_path / "b", *PERSISTENT).start()
    try:
        async with Proxy(a.port) as link, Proxy(a.port) as address:
            # As a replica does behind NAT: it knows its primary by the link's address.
            await asyncio.to_thread(b.do, "REPLICAOF", "127.0.0.1", link.port)
            await in_step(a, b)
            yield Pair(a, b, link, address)
    finally:
        a.kill()
        b.kill()


class Lost:
    """A conversation whose second epoch and second claim only A knows."""

    def __init__(self, first: Any, advanced: Any, claim: Any) -> None:
        self.first, self.advanced, self.claim = first, advanced, claim

    @property
    def epochs(self) -> set[int]:
        return {self.first.epoch, self.advanced.epoch}

    @property
    def fences(self) -> set[int]:
        return {self.first.binding.fence, self.claim.binding.fence}


async def lose(pair: Pair, client: Limpet) -> Lost:
    """A first epoch that both have; then, with replication cut, an advance and a claim answered ``durable: false``."""
    first = await client.resolve("k", session_id="s", bind={"holder": "one", "claim_ttl_ms": 60_000})
    assert first.durable is True
    pair.cut()
    advanced = await client.advance("k", "new")
    assert advanced.durable is False
    claim = await client.resolve("k", session_id="s", bind={"holder": "two", "claim_ttl_ms": 60_000})
    assert claim.binding.action == "bind"
    assert claim.durable is False
    assert claim.binding.fence > first.binding.fence
    return Lost(first, advanced, claim)


async def go_on(client: Limpet, lost: Lost) -> Lost:
    """After the loss, a caller that never saw it: the old conversation goes on; then a new epoch and a new claim of its own."""
    await first_answer(client, "k")
    turn = await client.resolve("k", session_id="s")
    assert turn.epoch == lost.first.epoch  # what ``durable: false`` had warned of
    advanced = await client.advance("k", "new")
    claim = await client.resolve("k", session_id="s", bind={"holder": "three", "claim_ttl_ms": 60_000})
    assert claim.binding.action == "bind"
    return Lost(lost.first, advanced, claim)


async def test_a_failover_that_loses_an_advance_and_a_claim(pair: Pair, connect) -> None:
    """The primary is killed, the replica that missed them promoted: no epoch and no fence is issued again; the lost claim's
    holder is fenced once a newer claim exists."""
    client, unaware = await connect(pair.url), await connect(pair.url)
    lost = await lose(pair, client)
    pair.a.kill()
    await pair.promote(pair.b)
    after = await go_on(unaware, lost)
    assert after.advanced.epoch > lost.advanced.epoch
    assert after.claim.binding.fence > lost.claim.binding.fence
    for call in (
        lambda: client.confirm("k", fence=lost.claim.binding.fence, worker="stale"),
        lambda: client.renew("k", fence=lost.claim.binding.fence),
        lambda: client.rebind("k", fence=lost.claim.binding.fence, reason="lost"),
    ):
        with pytest.raises(StaleFence) as fenced:
            await call()
        assert fenced.value.binding.fence == after.claim.binding.fence
    bound = await unaware.confirm("k", fence=after.claim.binding.fence, worker="w")
    assert (bound.state, bound.worker) == ("bound", "w")


async def test_a_caller_that_saw_the_lost_epoch_heals_it(pair: Pair, connect) -> None:
    """A replica that served the lost epoch, and a host that passes it as ``seen_epoch``: both go past it, reason
    ``rollback``, and say that the transcript is the same."""
    client, unaware = await connect(pair.url), await connect(pair.url)
    lost = await lose(pair, client)
    pair.a.kill()
    await pair.promote(pair.b)
    await first_answer(unaware, "other")
    assert (await unaware.peek("k")).epoch == lost.first.epoch
    healed = await unaware.resolve("k", session_id="s", seen_epoch=lost.advanced.epoch)
    assert healed.epoch > lost.advanced.epoch
    assert healed.reset.reason == "rollback"
    assert not healed.reset.new_conversation
    # The client's own memory does the same for callers that remember nothing.
    second = await client.resolve("k2", session_id="s")
    assert second.created
    remembered = await client.resolve("k", session_id="s")
    assert (remembered.epoch, remembered.reset) == (healed.epoch, None)


async def test_the_own_memory_heals_it(pair: Pair, connect) -> None:
    """The client that made the lost advance passes its epoch by itself."""
    client = await connect(pair.url)
    lost = await lose(pair, client)
    pair.a.kill()
    await pair.promote(pair.b)
    await first_answer(client, "other")
    turn = await client.resolve("k", session_id="s")
    assert turn.epoch > lost.advanced.epoch
    assert (await client.peek("k")).epoch_reason == "rollback"


@pytest.mark.parametrize("restarted", [False, True], ids=["not restarted", "restarted"])
async def test_failback(pair: Pair, connect, restarted: bool) -> None:
    """Back to the first node, whose data has what B lost and lacks what B made, whether it was restarted in between or never:
    again nothing is issued twice, and B's holder is fenced once a newer claim exists."""
    client = await connect(pair.url)
    lost = await lose(pair, client)
    if restarted:
        pair.a.kill()
    await pair.promote(pair.b)
    over_there = await connect(pair.url)
    made = await go_on(over_there, lost)
    if restarted:
        pair.a.start()
    await pair.promote(pair.a)
    fresh = await connect(pair.url)
    await first_answer(fresh, "other")
    back = await fresh.resolve("k", session_id="s", bind={"holder": "four"})
    assert back.epoch == lost.advanced.epoch  # A's own last epoch: of the same conversation as before
    assert back.binding.action == "wait"  # and its claim is live
    advanced = await fresh.advance("k", "new")
    claim = await fresh.resolve("k", session_id="s", bind={"holder": "four"})
    assert advanced.epoch > max(lost.epochs | made.epochs)
    assert claim.binding.fence > max(lost.fences | made.fences)
    for fence in lost.fences | made.fences:
        with pytest.raises(StaleFence):
            await over_there.confirm("k", fence=fence, worker="stale")
    await pair.follow(pair.b, pair.a)
    late = await connect(pair.url)
    assert (await late.advance("k", "new", require_durable=True)).durable is True


async def test_failback_with_a_caller_that_remembers(pair: Pair, connect) -> None:
    """Whoever saw B's epoch goes past it on A, so no bucket of B's is met again."""
    client = await connect(pair.url)
    lost = await lose(pair, client)
    await pair.promote(pair.b)
    over_there = await connect(pair.url)
    made = await go_on(over_there, lost)
    await pair.promote(pair.a)
    await first_answer(over_there, "other")
    turn = await over_there.resolve("k", session_id="s")
    assert turn.epoch > made.advanced.epoch > lost.advanced.epoch
    assert turn.reset.reason == "rollback"


async def test_require_durable_makes_an_error_of_the_answer(pair: Pair, connect) -> None:
    """With replication cut: 503 ``not_durable`` with the answer inside, for every deciding call; what happened stands; a retry
    with the same request id asks again, and succeeds once a replica is back, without a second advance."""
    client = await connect(pair.url)
    turn = await client.resolve("k", session_id="s", bind=True, require_durable=True)
    fence = turn.binding.fence
    pair.cut()
    with pytest.raises(NotDurable) as refused:
        await client.advance("k", "new", request_id="r1", require_durable=True)
    assert (refused.value.code, refused.value.status) == ("not_durable", 503)
    assert refused.value.result.epoch == await client.epoch("k")
    with pytest.raises(NotDurable):
        await client.resolve("j", session_id="s", bind=True, require_durable=True)
    claimed = await client.resolve("k", session_id="s", bind=True)
    with pytest.raises(NotDurable):
        await client.confirm("k", fence=claimed.binding.fence, worker="w", require_durable=True)
    with pytest.raises(NotDurable):
        await client.rebind("k", fence=claimed.binding.fence, reason="lost", require_durable=True)
    with pytest.raises(StaleFence):
        await client.confirm("k", fence=fence, require_durable=True)
    before = await client.epoch("k")
    pair.link.mend()
    await in_step(pair.a, pair.b)

    async def acknowledged() -> Any:
        try:
            return await client.advance("k", "new", request_id="r1", require_durable=True)
        except NotDurable:
            return None

    again = await eventually(acknowledged)
    assert again.durable is True
    assert again.epoch == refused.value.result.epoch == before


async def test_two_restarts_from_one_snapshot(tmp_path: Path, connect) -> None:
    """The same old snapshot is loaded twice, after different histories: nothing of either is issued again."""
    server = Server(tmp_path / "d", "--appendonly", "no").start()
    try:
        client = await connect(f"redis://127.0.0.1:{server.port}")
        first = await client.resolve("k", session_id="s", bind=True)
        server.do("SAVE")
        epochs, fences = [first.epoch], [first.binding.fence]
        for life in range(3):
            fresh = await connect(f"redis://127.0.0.1:{server.port}")
            turn = await fresh.resolve("k", session_id="s", bind=True)
            assert turn.epoch == first.epoch
            assert turn.binding.fence == first.binding.fence
            for _ in range(5):
                advanced = await fresh.advance("k", "new")
                claim = await fresh.resolve("k", session_id="s", bind={"holder": f"life {life}"})
                assert claim.binding.action == "bind"
                moved = await fresh.rebind("k", fence=claim.binding.fence, reason="lost")
                epochs.append(advanced.epoch)
                fences += [claim.binding.fence, moved.fence]
            for stale in fences[:-1]:
                with pytest.raises(StaleFence):
                    await fresh.confirm("k", fence=stale)
            server.kill()
            server.start()
        assert epochs == sorted(set(epochs))
        assert fences == sorted(set(fences))
        assert not {*epochs[1:]} & {first.epoch}
    finally:
        server.kill()
