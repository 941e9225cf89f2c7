"""Sentinel: the primary is found, followed through failovers, and never confused with a replica or an old primary."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from limpet import StoreUnavailable

from .rig import Sentinels, Server, eventually, running
from .test_failover import first_answer

RECOVERY_S = 1.0
"""Once the sentinels agree on a new primary, for a client to find it."""


async def agreed(sentinels: Sentinels, old: Server) -> float:
    """Loop time at which every sentinel that runs names another primary than ``old``."""

    def moved_on() -> bool:
        return sentinels.named() is not old

    await eventually(lambda: asyncio.to_thread(moved_on))
    return asyncio.get_running_loop().time()


def lane_ports(client: Any) -> set[int]:
    """Where the client is connected to."""
    return {lane._transport.get_extra_info("peername")[1] for lane in client.executor.topology.lanes()}


async def fail_over(sentinels: Sentinels, client: Any, strike: Any, record_property: Any) -> Server:
    """Strikes the primary, and measures; the new one."""
    loop = asyncio.get_running_loop()
    old = sentinels.nodes[0]
    turn = await client.resolve("k", session_id="s", bind={"worker": "w"})
    assert turn.durable is True
    start = loop.time()
    strike(old)
    watching = asyncio.create_task(agreed(sentinels, old))
    back = await first_answer(client, "k")
    took = back - await watching
    record_property("outage_s", round(back - start, 3))
    record_property("after_agreement_s", round(took, 3))
    print(f"outage {back - start:.2f} s, {took:.3f} s after the sentinels agreed")
    assert took < RECOVERY_S
    after = await client.resolve("k", session_id="s", bind=True)
    assert (after.epoch, after.binding.fence, after.binding.action) == (turn.epoch, turn.binding.fence, "wait")
    new = sentinels.named()
    await eventually(lambda: lane_ports(client) == {new.port})
    return new


async def test_the_primary_is_killed(sentinels: Sentinels, connect, record_property) -> None:
    """kill -9 while in use: durable answers hold, and the client is at the new primary within a second of the agreement. The
    old primary comes back as a replica, and nobody talks to it."""
    client = await connect(sentinels.url())
    new = await fail_over(sentinels, client, Server.kill, record_property)
    old = sentinels.nodes[0].start()
    assert (await (await connect(sentinels.url())).resolve("k", session_id="s")).epoch is not None
    assert old.info("replication")["role"] == "master"  # as it believes for some seconds, and nobody asks it
    old.do("REPLICAOF", "127.0.0.1", new.port)  # what the sentinels do then

    def all_online() -> bool:
        info = new.info("replication")
        return [info.get(f"slave{i}", {}).get("state") for i in range(2)] == ["online", "online"]

    await eventually(all_online)
    # As many replicas as there were: with one fewer no decision was durable.

    async def durable() -> bool:
        return (await client.advance("k", "new", request_id="r")).durable is True

    await eventually(durable)
    assert (await client.peek("k")).ordinal == 2
    assert lane_ports(client) == {sentinels.named().port}


async def test_the_primary_hangs_and_goes_on(sentinels: Sentinels, connect, record_property) -> None:
    """SIGSTOP: calls that hang on the old primary are moved. When it goes on it still believes to be the primary for a moment:
    no client, old or new, is served by it."""
    client = await connect(sentinels.url())
    await fail_over(sentinels, client, Server.pause, record_property)
    old = sentinels.nodes[0]
    advanced = await client.advance("k", "new")
    old.resume()
    late = await connect(sentinels.url())
    assert (await late.resolve("k", session_id="s")).epoch == advanced.epoch
    assert old.info("replication")["role"] == "master"  # as it believes for some seconds
    for _ in range(50):
        assert (await client.resolve("k", session_id="s")).epoch == advanced.epoch
    assert lane_ports(client) == lane_ports(late) == {sentinels.named().port}


async def test_a_demoted_primary_is_left_at_once(sentinels: Sentinels, connect) -> None:
    """A primary that has become a replica without closing its connections answers READONLY once, and no other call goes there."""
    client = await connect(sentinels.url(), deadline_ms=3000)
    old, other = sentinels.nodes[0], sentinels.nodes[1]
    await client.resolve("k", session_id="s")
    other.do("REPLICAOF", "NO", "ONE")
    old.do("REPLICAOF", "127.0.0.1", other.port)
    with pytest.raises(StoreUnavailable):
        await client.advance("k", "new")
    assert lane_ports(client) <= {other.port, sentinels.nodes[2].port}


async def test_a_planned_failover_under_load(sentinels: Sentinels, connect) -> None:
    """SENTINEL FAILOVER while eight keys advance without a pause: each advance is applied once, or said to be unknown."""
    client = await connect(sentinels.url(), deadline_ms=3000)
    stop = asyncio.Event()
    seen: list[int] = []

    async def load(key: str) -> int:
        done = 0
        while not stop.is_set():
            advanced = await client.advance(key, "new")
            done += 1
            seen.append(advanced.epoch)
            assert advanced.ordinal <= done  # a lost one is allowed by an answer that was not durable, a doubled one never
            if advanced.durable:
                done = advanced.ordinal
        return done

    loads = [asyncio.create_task(load(f"k{i}")) for i in range(8)]
    await eventually(lambda: len(seen) >= 100)
    sentinels.sentinels[0].do("SENTINEL", "FAILOVER", Sentinels.SERVICE)
    await agreed(sentinels, sentinels.nodes[0])
    before = len(seen)
    await eventually(lambda: len(seen) >= before + 100)
    stop.set()
    await asyncio.gather(*loads)
    assert len(set(seen)) == len(seen)
    assert lane_ports(client) == {sentinels.named().port}


async def test_an_old_primary_that_was_cut_off_is_left(sentinels: Sentinels, connect) -> None:
    """The sentinels moved on while the old primary still answers us, as it does when only the links between them are cut: the
    client, and its subscription, are gone from it within seconds though no call has failed."""
    client = await connect(sentinels.url())
    await client.resolve("k", session_id="s")
    events = client.events()

    async def next_advance() -> str:
        async for event in events:  # a gap in between is told as such, and is none
            if event.kind != "gap":
                return event.kind
        return "the stream ended"

    first = asyncio.ensure_future(next_advance())
    assert await client._hub.wait_up(5)
    old, new = sentinels.nodes[0], sentinels.nodes[1]
    for sentinel in sentinels.sentinels:
        sentinel.do("SENTINEL", "REMOVE", Sentinels.SERVICE)
    new.do("REPLICAOF", "NO", "ONE")
    for sentinel in sentinels.sentinels:
        sentinel.do("SENTINEL", "MONITOR", Sentinels.SERVICE, "127.0.0.1", new.port, 2)
    while lane_ports(client) != {new.port}:
        await client.resolve("k", session_id="s")
        await asyncio.sleep(0.02)
    assert old.info("replication")["role"] == "master"
    other = await connect(sentinels.url())

    async def heard() -> None:
        while not first.done():
            await other.advance("k", "new")
            await asyncio.wait([first], timeout=0.1)

    await asyncio.wait_for(heard(), 10)
    assert first.result() == "advance"
    await events.aclose()


async def test_the_whole_set_restarts(sentinels: Sentinels, connect) -> None:
    """Data nodes and sentinels are killed and started again: the client goes on without a restart."""
    client = await connect(sentinels.url())
    await client.resolve("k", session_id="s")
    for server in (*sentinels.sentinels, *sentinels.nodes):
        server.kill()
    assert (await client.resolve("k", session_id="s")).degraded
    primary = sentinels.nodes[0].start()
    for replica in sentinels.nodes[1:]:
        replica.start()
        replica.do("REPLICAOF", "127.0.0.1", primary.port)
    for sentinel in sentinels.sentinels:
        sentinel.start()
    await first_answer(client, "k")
    assert lane_ports(client) == {sentinels.named().port}


async def test_dead_and_unknown_sentinels(sentinels: Sentinels, connect, namespace: str) -> None:
    """One sentinel that runs is enough; one that hangs costs little; a service that nobody knows is named in the error."""
    sentinels.sentinels[0].pause()
    sentinels.sentinels[1].kill()
    try:
        client = await connect(sentinels.url())
        assert not (await client.resolve("k", session_id="s")).degraded
        with pytest.raises(StoreUnavailable, match="know no service 'nobody'"):
            await connect(f"redis+sentinel://127.0.0.1:{sentinels.sentinels[2].port}/nobody")
    finally:
        sentinels.sentinels[0].resume()


SECRET = "p@ss/w:rd%"


async def test_credentials(tmp_path, connect) -> None:
    """An ACL user on the data nodes, a password on the sentinels, all percent-encoded; what is wrong is refused without being
    repeated."""
    with running(Sentinels(tmp_path / "s", login=("limpet", SECRET), sentinel_password="sentinelpass")) as sentinels:
        userinfo = "limpet:p%40ss%2Fw%3Ard%25@"
        client = await connect(sentinels.url("?sentinel_password=sentinelpass", userinfo))
        turn = await client.resolve("k", session_id="s", bind=True)
        assert turn.durable is True
        with pytest.raises(StoreUnavailable) as refused:
            await connect(sentinels.url("?sentinel_password=sentinelpass", "limpet:wrongsecret@"))
        assert "wrongsecret" not in str(refused.value)
        with pytest.raises(StoreUnavailable) as refused:
            await connect(sentinels.url("?sentinel_password=wrongsecret", userinfo))
        assert "wrongsecret" not in str(refused.value)


async def test_tls(tmp_path, certificates, connect) -> None:
    """TLS to sentinels and data nodes, with verification, through a failover; an unknown authority is refused."""
    with running(Sentinels(tmp_path / "s", tls=certificates, login=("limpet", "secret"))) as sentinels:
        query = f"?ssl=true&ssl_ca_certs={certificates['ca']}"
        client = await connect(sentinels.url(query, "limpet:secret@"), deadline_ms=500)
        assert not (await client.resolve("k", session_id="s")).degraded
        with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
            await connect(sentinels.url("?ssl=true", "limpet:secret@"))
        sentinels.nodes[0].kill()
        await first_answer(client, "k")
        assert lane_ports(client) == {sentinels.named().port}


async def test_tls_to_one_server(tmp_path, certificates, connect) -> None:
    """``rediss://`` with ``ssl_ca_certs``, verified by name; and not without it."""
    from .rig import tls_binary

    with running(Server(tmp_path / "d", binary=tls_binary(), tls=certificates)) as server:
        client = await connect(f"rediss://127.0.0.1:{server.port}/0?ssl_ca_certs={certificates['ca']}")
        assert not (await client.resolve("k", session_id="s")).degraded
        with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
            await connect(f"rediss://127.0.0.1:{server.port}/0")
