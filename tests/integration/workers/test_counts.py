"""What is bound is counted in the store, so it is right again after a crash or a failover (design, section 5: Workers)."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import redis

from limpet import Limpet
from limpet.errors import StoreCorrupt
from limpet.registry import Registry
from tests.support.servers import Server

CLAIMERS = """
import asyncio, sys
from limpet import Limpet
from limpet.errors import StoreCorrupt
async def main():
    async with Limpet.connect(sys.argv[1], partitions=16, deadline_ms=2000) as client:
        await asyncio.gather(*(client.resolve(f"{sys.argv[2]}-{n}", session_id="s", bind={"pool": "p", "claim_ttl_ms": 1500})
                               for n in range(40)))
        print("claimed", flush=True)
        await asyncio.sleep(3600)
asyncio.run(main())
"""


def connect(url: str, **settings: Any) -> Limpet:
    """A replica; 16 partitions, so that a census is quick."""
    return Limpet.connect(url, **{"partitions": 16, "deadline_ms": 2000} | settings)


async def viewed(client: Limpet, name: str) -> int:
    """How many bindings the replica's view gives a worker."""
    view: Registry = client._workers_view()
    assert await view.ready(5)
    return view.load(name)


async def test_claimers_that_are_killed(store_url: str, wait_for: Any) -> None:
    """kill -9 of two replicas in the middle of 80 claims: they count while they are live, and no longer, in every view."""
    async with connect(store_url) as watcher:
        for n in range(4):
            await watcher.register(f"w{n}", pool="p", ttl_ms=0)
        command = [sys.executable, "-c", CLAIMERS, store_url]
        claimers = [await asyncio.create_subprocess_exec(*command, name, stdout=asyncio.subprocess.PIPE) for name in "ab"]
        for each in claimers:
            assert each.stdout is not None
            assert await each.stdout.readline() == b"claimed\n"
            each.send_signal(signal.SIGKILL)
        assert sum((await watcher.bindings_by_worker()).values()) == 80
        for each in claimers:
            await each.wait()

        async def nobody() -> bool:
            return not await watcher.bindings_by_worker() and not any([await viewed(watcher, f"w{n}") for n in range(4)])

        await wait_for(nobody, 10, "the claims of the dead to stop counting")
        turns = await asyncio.gather(*(watcher.resolve(f"a-{n}", session_id="s", bind={"pool": "p"}) for n in range(40)))
        assert {turn.binding.action for turn in turns} == {"bind"}


async def test_a_failover_to_a_replica_that_lagged(fresh_server: Callable[..., Server], wait_for: Any) -> None:
    """The store goes back to a snapshot of before half of the bindings: the views are corrected to what the store holds."""
    server = fresh_server()
    async with connect(server.url) as client:
        for n in range(2):
            await client.register(f"w{n}", pool="p", ttl_ms=0)
        for n in range(20):
            await client.resolve(f"k{n}", session_id="s", bind={"pool": "p", "commit": True})
        snapshot = await asyncio.to_thread(server.snapshot)
        kept = await client.bindings_by_worker()
        for n in range(20, 60):
            await client.resolve(f"k{n}", session_id="s", bind={"pool": "p", "commit": True})
        assert sum((await client.bindings_by_worker()).values()) == 60
        await asyncio.to_thread(server.restore, snapshot)

        async def corrected() -> bool:
            return {name: await viewed(client, name) for name in kept} == kept

        await wait_for(corrected, 15, "the view to be corrected")
        assert await client.bindings_by_worker() == kept
        again = await client.resolve("k59", session_id="s", bind={"pool": "p", "commit": True})
        assert again.binding.action == "bind"


async def test_an_index_that_was_lost(store_url: str) -> None:
    """Members whose record was evicted go with the next prune; a record whose member was lost comes back with its next turn."""
    import redis

    async with connect(store_url, touch_granularity_ms=0) as client:
        for n in range(10):
            await client.resolve(f"k{n}", session_id="s", bind={"worker": "w0", "commit": True, "ttl_ms": 1_000_000})
        space = client.commands.keyspace
        with redis.Redis.from_url(store_url) as store:
            target = client.commands.declared("k0")
            store.zrem(space.bound(space.partition(target.digest)), f"conv:{target.digest}:w0")
            assert await client.bindings_by_worker() == {"w0": 9}
        await client.resolve("k0", session_id="s", bind={"ttl_ms": 1_000_000})
        assert await client.bindings_by_worker() == {"w0": 10}


async def test_adding_one_moves_nobody(store_url: str, wait_for: Any) -> None:
    """A worker that joins takes new sessions only: those that are bound stay where they are, at every replica."""
    async with connect(store_url) as one, connect(store_url) as two:
        for n in range(4):
            await one.register(f"w{n}", pool="p", ttl_ms=0)
        bind = {"pool": "p", "commit": True}
        before = {f"k{n}": (await one.resolve(f"k{n}", session_id="s", bind=bind)).binding.fence for n in range(100)}
        await one.register("new", pool="p", ttl_ms=0)

        async def known() -> bool:
            view = two._workers_view()
            return await view.ready(5) and "new" in view.snapshot.workers

        await wait_for(known, 5, "the new worker to be seen")
        for key, fence in before.items():
            assert (await two.resolve(key, session_id="s", bind=bind)).binding.fence == fence
        fresh = [(await two.resolve(f"n{n}", session_id="s", bind=bind)).binding.worker for n in range(40)]
        assert Counter(fresh)["new"] >= 20  # it has room, the others have their share


async def test_a_worker_that_is_silent_is_passed_over(store_url: str, wait_for: Any) -> None:
    """Without a heartbeat it is proposed no more after its ttl, and its sessions move in their next turns."""
    async with connect(store_url) as client:
        await client.register("beats", pool="p", ttl_ms=0)
        await client.register("silent", pool="p", ttl_ms=400)
        bind = {"pool": "p", "commit": True}
        old = [(await client.resolve(f"k{n}", session_id="s", bind=bind)).binding.worker for n in range(30)]
        assert "silent" in old

        async def all_moved() -> bool:
            turns = [await client.resolve(f"k{n}", session_id="s", bind=bind) for n in range(30)]
            return {turn.binding.worker for turn in turns} == {"beats"}

        await wait_for(all_moved, 10, "the sessions of the silent one to move")


@pytest.mark.parametrize("replicas", [6])
async def test_racing_replicas_rebind_once(store_url: str, wait_for: Any, replicas: int) -> None:
    """Six replicas meet sessions of a lost worker at the same moment: each session gets one new claim, and all follow it."""
    clients = [connect(store_url) for _ in range(replicas)]
    for client in clients:
        await client.open()
    try:
        for n in range(3):
            await clients[0].register(f"w{n}", pool="p", ttl_ms=0)
        bind = {"pool": "p", "commit": True}
        old = {f"k{n}": (await clients[0].resolve(f"k{n}", session_id="s", bind=bind)).binding for n in range(60)}
        await clients[0].remove_worker("w0")
        for client in clients:

            async def seen(client: Limpet = client) -> bool:
                view = client._workers_view()
                return await view.ready(5) and "w0" not in view.snapshot.workers

            await wait_for(seen, 5, "the loss to be seen")
        lost = [key for key, binding in old.items() if binding.worker == "w0"]
        turns = await asyncio.gather(*(client.resolve(key, session_id="s", bind=bind) for key in lost for client in clients))
        for at, key in enumerate(lost):
            bindings = [turn.binding for turn in turns[at * replicas : (at + 1) * replicas]]
            assert len({each.fence for each in bindings}) == 1
            assert bindings[0].fence > old[key].fence
            assert [each.action for each in bindings].count("bind") == 1
    finally:
        for client in clients:
            await client.close()


async def test_a_damaged_worker_hides_no_other(store_url: str) -> None:
    """It is listed as such, keeps what is bound to it, is proposed to nobody, can be removed, and comes back by registering."""
    async with Limpet.connect(store_url, partitions=16) as client:
        for name in ("w0", "w1"):
            await client.register(name, pool="p", incarnation="1", ttl_ms=0)
        kept = (await client.resolve("kept", session_id="s", bind={"worker": "w0", "pool": "p", "commit": True})).binding
        with redis.Redis.from_url(store_url) as plain:
            plain.hset("limpet:{default}:workers", "w0", b"\x91\x01")
        assert {each.worker: each.state for each in await client.workers()} == {"w0": "damaged", "w1": "live"}
        await client._workers_view()._refresh()
        turn = await client.resolve("kept", session_id="s", bind={"pool": "p"})
        assert (turn.binding.action, turn.binding.worker, turn.binding.fence) == ("continue", "w0", kept.fence)
        new = [(await client.resolve(f"n{n}", session_id="s", bind={"pool": "p", "commit": True})).binding for n in range(8)]
        assert {each.worker for each in new} == {"w1"}
        for call in (client.heartbeat("w0"), client.undrain("w0"), client.mark_draining("w0")):
            with pytest.raises(StoreCorrupt, match="register it anew, or remove it"):
                await call
        assert (await client.remove_worker("w0")).state == "damaged"
        assert [each.worker for each in await client.workers()] == ["w1"]
        with redis.Redis.from_url(store_url) as plain:
            plain.hset("limpet:{default}:workers", "w0", b"")
        assert (await client.register("w0", pool="p", incarnation="2", ttl_ms=0)).state == "live"


async def test_a_damaged_member_does_not_hide_the_others(store_url: str) -> None:
    """One that we cannot have written is left out of the count, and nothing fails."""
    async with connect(store_url, partitions=2) as client:
        for n in range(8):
            await client.resolve(f"k{n}", session_id="s", bind={"worker": "w0", "commit": True})
        before = (await client.bindings_by_worker())["w0"]
        bounds = [client.commands.keyspace.bound(p) for p in range(2)]
        with redis.Redis.from_url(store_url) as raw:
            members = [raw.zcard(bound) - 1 for bound in bounds]  # one is the sentinel
            raw.zadd(bounds[0], {b"conv:" + b"0" * 32 + b":\xff": 2**52})
        assert before == sum(members) == 8
        assert await client.bindings_by_worker() == {"w0": members[1]}
