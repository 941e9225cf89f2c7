"""Slots that move while they are in use: MOVED, ASK, TRYAGAIN. Nobody gets a wrong answer."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.crc import key_slot

from limpet import StoreUnavailable
from limpet.keys import digest, keyspace

from .rig import Cluster, Server, until


def place(cluster: Cluster, namespace: str, key: str) -> tuple[int, Server, Server]:
    """The slot of a conversation, who has it, and a primary that has not."""
    slot = key_slot(keyspace(namespace, 64).record("conv", digest(key)).encode())
    source = cluster.settled_owner_of_slot(slot)
    return slot, source, next(node for node in cluster.primaries() if node is not source)


async def test_moved_is_followed_within_the_call(cluster: Cluster, connect, namespace: str) -> None:
    """After a slot has moved, the next turn of its keys still finds its epoch and binding, not degraded."""
    client = await connect(cluster.url)
    turn = await client.resolve("k", session_id="s", bind={"worker": "w", "commit": True})
    slot, source, target = place(cluster, namespace, "k")
    await asyncio.to_thread(cluster.move, slot, source, target)
    again = await client.resolve("k", session_id="s", bind=True)
    assert not again.degraded
    assert (again.epoch, again.binding.action, again.binding.worker) == (turn.epoch, "continue", "w")
    advanced = await client.advance("k", "new", require_durable=True)
    assert advanced.previous_epoch == turn.epoch
    assert client.executor.topology.lane(keyspace(namespace, 64).record("conv", digest("k")), "shared") is not None


async def test_slots_move_under_load(cluster: Cluster, connect, namespace: str) -> None:
    """Twelve slots move back and forth under turns and resets: every answer is that of its own key, epochs only grow, no
    advance is applied twice, and what could not be served said so."""
    client = await connect(cluster.url, deadline_ms=1000)
    keys = [f"k{i}" for i in range(24)]
    epochs = {key: (await client.resolve(key, session_id="s")).epoch for key in keys}
    ordinals = dict.fromkeys(keys, 1)
    answers, refused = 0, 0
    stop = asyncio.Event()

    async def load(key: str) -> None:
        nonlocal answers, refused
        while not stop.is_set():
            turn = await client.resolve(key, session_id="s")
            if turn.degraded:
                refused += 1
            else:
                answers += 1
                assert turn.key == key
                assert (turn.epoch, turn.ordinal) == (epochs[key], ordinals[key])
            try:
                advanced = await client.advance(key, "new")
            except StoreUnavailable:
                refused += 1
                current = await client.peek(key)
                assert current is not None
                assert current.ordinal in (ordinals[key], ordinals[key] + 1)
                epochs[key], ordinals[key] = current.epoch, current.ordinal
                continue
            answers += 1
            assert advanced.previous_epoch == epochs[key]
            assert advanced.epoch > epochs[key]
            assert advanced.ordinal == ordinals[key] + 1
            epochs[key], ordinals[key] = advanced.epoch, advanced.ordinal

    loads = [asyncio.create_task(load(key)) for key in keys]
    moved = 0
    for key in keys[:12]:
        slot, source, target = await asyncio.to_thread(place, cluster, namespace, key)  # two keys may share a slot
        for here, there in ((source, target), (target, source)):
            await asyncio.to_thread(cluster.move, slot, here, there)
            moved += 1
    stop.set()
    await asyncio.gather(*loads)
    assert moved == 24
    assert answers > 500
    assert refused == 0


async def test_ask_while_a_slot_moves(cluster: Cluster, connect, namespace: str) -> None:
    """Keys that have gone ahead are asked for at the target (ASK), turns and durable calls alike, and the map is not
    changed by that; a new conversation whose slot is split (TRYAGAIN) is degraded in time, and served once the move is over."""
    client = await connect(cluster.url)
    turn = await client.resolve("k", session_id="s", bind={"worker": "w", "commit": True})
    slot, source, target = place(cluster, namespace, "k")
    cluster.begin_move(slot, source, target)
    try:
        before = await client.resolve("k", session_id="s")
        assert before.epoch == turn.epoch
        while cluster.move_keys(slot, source, target):
            pass
        record = keyspace(namespace, 64).record("conv", digest("k"))
        asked: list[Any] = await asyncio.gather(*(client.resolve("k", session_id="s") for _ in range(50)))
        assert {each.epoch for each in asked} == {turn.epoch}
        advanced = await client.advance("k", "new", require_durable=True)
        assert advanced.durable is True
        assert advanced.previous_epoch == turn.epoch
        assert (await client.peek("k")).epoch == advanced.epoch
        assert client.executor.topology.lane(record, "shared") not in (None, *_lanes(client, target))
        twin = next(f"n{i}" for i in range(10**6) if digest(f"n{i}")[:8] != "" and _same_slot(namespace, f"n{i}", slot))
        new = await client.resolve(twin, session_id="s")
        assert new.degraded
    finally:
        cluster.end_move(slot, source, target)
    served = await client.resolve(twin, session_id="s")
    assert served.created
    assert (await client.epoch("k")) == advanced.epoch
    until(cluster.whole, what="agreement")


def _same_slot(namespace: str, key: str, slot: int) -> bool:
    return key_slot(keyspace(namespace, 64).record("conv", digest(key)).encode()) == slot


def _lanes(client: Any, node: Server) -> list[Any]:
    found = client.executor.topology._nodes.get(("127.0.0.1", node.port))
    return [] if found is None else found.live()


async def test_a_node_that_forgot_its_scripts(cluster: Cluster, connect) -> None:
    """SCRIPT FLUSH on every node in the middle of use is not noticed by anybody, durable calls included."""
    client = await connect(cluster.url, deadline_ms=2000)
    made = [await client.resolve(f"k{i}", session_id="s") for i in range(9)]
    for node in cluster.primaries():
        node.do("SCRIPT", "FLUSH")
    again = await asyncio.gather(*(client.resolve(f"k{i % 9}", session_id="s") for i in range(300)))
    assert [turn.epoch for turn in again[:9]] == [turn.epoch for turn in made]
    for node in cluster.primaries():
        node.do("SCRIPT", "FLUSH")
    advanced = await asyncio.gather(*(client.advance(f"k{i}", "new", require_durable=True) for i in range(9)))
    assert all(each.durable for each in advanced)
