"""Redis Cluster: every public call, spread over all primaries."""

from __future__ import annotations

import asyncio

import pytest

from limpet import StaleFence, StoreUnavailable
from limpet.executors.cluster import Cluster as Topology

from .rig import Cluster


async def test_every_public_call(cluster: Cluster, connect) -> None:
    """Each call of the client works on a cluster of three primaries and three replicas, and its decisions are durable."""
    client = await connect(cluster.url)
    for i in range(12):
        key = f"key {i}"
        turn = await client.resolve(key, session_id="s", bind={"worker": "w1"})
        assert turn.created
        assert turn.binding.action == "bind"
        assert turn.durable is True
        fence = turn.binding.fence
        assert (await client.confirm(key, fence=fence, worker="w2")).state == "bound"
        assert (await client.renew(key, fence=fence)).fence == fence
        rebound = await client.rebind(key, fence=fence, reason="worker_lost", worker="w3", require_durable=True)
        assert rebound.fence > fence
        with pytest.raises(StaleFence):
            await client.confirm(key, fence=fence)
        await client.abort(key, fence=rebound.fence)
        again = await client.resolve(key, session_id="s", bind={"worker": "w4", "commit": True})
        await client.release(key, fence=again.binding.fence)
        advanced = await client.advance(key, "new", require_durable=True)
        assert advanced.epoch > turn.epoch
        assert advanced.durable is True
        assert await client.epoch(key) == advanced.epoch
        assert (await client.peek(key)).ordinal == 2
        await client.suspend(key)
        resumed = await client.resolve(key, session_id="s")
        assert resumed.reset.reason == "suspended"
        fork = await client.resolve(key, session_id="f", kind="fork", parent_key=key)
        assert fork.parent_scope == resumed.scope
        side = await client.resolve(session_id=f"sid {i}", bind=True)
        assert side.binding.action == "bind"
        assert (await client.forget(key)).applied
        assert await client.peek(key) is None
    async with client.turn("ctx", session_id="s", bind={"worker": "w1"}) as turn:
        assert turn.scope
    assert (await client.bindings_by_worker())["w1"] == 1
    assert await client.prune() >= 0
    assert (await client.health()).ok


async def test_partitions_are_spread_over_all_primaries(cluster: Cluster, connect, namespace: str) -> None:
    """Records lie on all three primaries, and one lane per primary and kind is all that is open."""
    client = await connect(cluster.url)
    await asyncio.gather(*(client.resolve(f"k{i}", session_id="s", bind=True) for i in range(200)))
    counts = []
    for node in cluster.primaries():
        with node.client() as plain:
            counts.append(sum(1 for _ in plain.scan_iter(f"limpet:{{{namespace}:*}}:conv:*")))
    assert sum(counts) == 200
    assert min(counts) > 0
    topology = client.executor.topology
    assert isinstance(topology, Topology)
    assert len(topology.primaries()) == 3
    assert len(topology.lanes()) <= 6


async def test_opening_connects_what_decisions_need(cluster: Cluster, connect) -> None:
    """A first decision's deadline pays for no connection: the turns' lanes and the durable ones are open to every primary."""
    client = await connect(cluster.url)
    topology = client.executor.topology
    for key in topology.primaries():
        assert topology.lane(key, "shared") is not None
        assert topology.lane(key, "durable") is not None


async def test_without_a_promise_there_are_no_durable_lanes(cluster: Cluster, connect) -> None:
    """Who waits for no replica opens nothing for it."""
    client = await connect(cluster.url, durability="none")
    topology = client.executor.topology
    assert all(topology.lane(key, "durable") is None for key in topology.primaries())


async def test_concurrent_calls_are_batched_per_node(cluster: Cluster, connect) -> None:
    """Five hundred turns at once over three nodes all get their own answer, in few writes."""

    class Batches:
        def __init__(self) -> None:
            self.sizes: list[int] = []

        def __call__(self, size: int) -> None:
            self.sizes.append(size)

    client = await connect(cluster.url, deadline_ms=2000)
    made = await asyncio.gather(*(client.resolve(f"k{i}", session_id="s") for i in range(500)))
    batches = Batches()
    for lane in client.executor.topology.lanes():
        lane._on_batch = batches
    again = await asyncio.gather(*(client.resolve(f"k{i}", session_id="s") for i in range(500)))
    assert [turn.epoch for turn in again] == [turn.epoch for turn in made]
    assert len({turn.scope for turn in again}) == 500
    assert sum(batches.sizes) >= 500
    assert len(batches.sizes) < 100


async def test_an_exclusive_claim_among_clients(cluster: Cluster, connect) -> None:
    """Of twenty clients' concurrent first turns of a key exactly one is told to bind, for every key."""
    clients = [await connect(cluster.url, deadline_ms=2000) for _ in range(20)]
    for i in range(20):
        turns = await asyncio.gather(*(client.resolve(f"k{i}", session_id="s", bind=True) for client in clients))
        assert sorted(turn.binding.action for turn in turns) == ["bind"] + ["wait"] * 19
        assert len({turn.epoch for turn in turns}) == 1


async def test_no_cluster_at_all(connect, namespace: str) -> None:
    """Nobody answers: a clear error within the deadline, and a degraded turn."""
    with pytest.raises(StoreUnavailable, match="store"):
        await connect("redis+cluster://127.0.0.1:1,127.0.0.1:2")


async def test_a_server_that_is_no_cluster(server, connect) -> None:
    """A plain server is named as what it is."""
    with pytest.raises(StoreUnavailable, match=r"(?i)cluster support disabled"):
        await connect(f"redis+cluster://127.0.0.1:{server.port}")
