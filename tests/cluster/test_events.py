"""Events across nodes: whoever listens, and wherever, hears what happens on every primary."""

from __future__ import annotations

import asyncio
from typing import Any

from limpet import Limpet
from limpet.keys import digest

from .proxy import Proxy
from .rig import Cluster, Server, eventually
from .test_failover import keys_on


def heard_at(client: Limpet) -> int:
    """The port that the client's subscription was opened to."""
    node = client.executor.topology._last_client
    return int(node.address[1])


async def listening(client: Limpet) -> None:
    client._hub.start()
    assert await client._hub.wait_up(5)


async def sees(client: Limpet, key: str, epoch: int) -> None:
    """Waits until the client's turns, memo included, are those of an epoch."""

    async def seen() -> bool:
        return (await client.resolve(key, session_id="s")).epoch == epoch

    await eventually(seen)


async def test_a_wait_is_woken_from_another_node(cluster: Cluster, connect, namespace: str) -> None:
    """Whoever waits for a claim is woken by the confirm, though its subscription is on another node than the key; for keys of
    every primary."""
    claimer, waiter = await connect(cluster.url), await connect(cluster.url)
    await listening(waiter)
    loop = asyncio.get_running_loop()
    for node in cluster.primaries():
        key = keys_on(cluster, namespace, node, 1)[0]
        claim = await claimer.resolve(key, session_id="s", bind=True)
        start = loop.time()
        waiting = asyncio.create_task(waiter.resolve(key, session_id="s", bind={"wait_ms": 8000}))
        await eventually(lambda key=key: waiter._hub.watches.get(("conv", digest(key))))
        await claimer.confirm(key, fence=claim.binding.fence, worker="w")
        turn = await waiting
        assert (turn.binding.action, turn.binding.worker) == ("continue", "w")
        assert loop.time() - start < 2.0  # by the event, not by the claim's deadline of ten seconds


async def test_memos_are_voided_from_every_node(cluster: Cluster, connect, namespace: str) -> None:
    """Another replica's advance voids a memo that would have lived for a minute, for keys of every primary."""
    reader, writer = await connect(cluster.url, memo_ttl_ms=60_000), await connect(cluster.url)
    await listening(reader)
    for node in cluster.primaries():
        for key in keys_on(cluster, namespace, node, 3):
            await reader.resolve(key, session_id="s")
            await reader.resolve(key, session_id="s")
            advanced = await writer.advance(key, "new")
            await sees(reader, key, advanced.epoch)


async def lose_the_node(cluster: Cluster, connect: Any, namespace: str, strike: Any) -> None:
    reader, writer = await connect(cluster.url, memo_ttl_ms=60_000), await connect(cluster.url)
    await listening(reader)
    port = heard_at(reader)
    node = next(each for each in cluster.nodes if each.port == port)
    other = next(each for each in cluster.primaries() if each is not node)
    key = keys_on(cluster, namespace, other, 1)[0]
    await reader.resolve(key, session_id="s")
    went_down = asyncio.Event()
    reader._hub.on_down.append(went_down.set)
    strike(node)
    await asyncio.wait_for(went_down.wait(), 10)
    advanced = await writer.advance(key, "new")
    assert (await reader.resolve(key, session_id="s")).epoch == advanced.epoch  # bypassed while the subscription is down, or new
    await eventually(lambda: reader._hub.up)
    assert heard_at(reader) != port
    await reader.resolve(key, session_id="s")
    again = await writer.advance(key, "new")
    await sees(reader, key, again.epoch)


async def test_the_node_of_the_subscription_is_killed(cluster: Cluster, connect, namespace: str) -> None:
    """Its memos are void at once, and the subscription comes back on another node."""
    await lose_the_node(cluster, connect, namespace, Server.kill)


async def test_the_node_of_the_subscription_hangs(cluster: Cluster, connect, namespace: str) -> None:
    """A node that stops, or is cut off, closes nothing: it is given up after some seconds without a sign of life."""
    await lose_the_node(cluster, connect, namespace, Server.pause)


async def test_a_dropped_subscription_is_a_gap(server: Server, connect) -> None:
    """A connection that breaks and is back at once is still told as down and up: an event may have been lost in between."""
    async with Proxy(server.port) as proxy:
        client = await connect(f"redis://127.0.0.1:{proxy.port}", memo_ttl_ms=60_000)
        await listening(client)
        seen: list[str] = []
        came_up = asyncio.Event()
        client._hub.on_down.append(lambda: seen.append("down"))
        client._hub.on_up.append(lambda: (seen.append("up"), came_up.set()))
        proxy.drop()
        await asyncio.wait_for(came_up.wait(), 5)
        assert seen[0] == "down"


async def test_a_server_that_stops_is_noticed(server: Server, connect) -> None:
    """A single server that hangs closes no connection: the subscription is told as down after some seconds of silence."""
    client = await connect(f"redis://127.0.0.1:{server.port}", memo_ttl_ms=60_000)
    await listening(client)
    went_down = asyncio.Event()
    client._hub.on_down.append(went_down.set)
    server.pause()
    try:
        await asyncio.wait_for(went_down.wait(), 8)
    finally:
        server.resume()
    await eventually(lambda: client._hub.up)
