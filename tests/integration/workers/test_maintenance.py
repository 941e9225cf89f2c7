"""Pruning, counting and draining of one partition with more in it than one step, one page or one call takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis

from limpet import Limpet
from limpet.maintenance import PAGE, STEP


@pytest.fixture
async def client(store_url: str) -> AsyncIterator[Limpet]:
    """One partition."""
    async with Limpet.connect(store_url, partitions=1, deadline_ms=5000) as one:
        yield one


async def bind(client: Limpet, keys: list[str], worker: str, ttl_ms: int = 3_600_000) -> None:
    for start in range(0, len(keys), 500):
        wanted = {"worker": worker, "commit": True, "ttl_ms": ttl_ms}
        await asyncio.gather(*(client.resolve(key, session_id="s", bind=wanted) for key in keys[start : start + 500]))


def members(store_url: str, client: Limpet) -> int:
    with redis.Redis.from_url(store_url) as store:
        return int(store.zcard(client.commands.keyspace.bound(0))) - 1  # without the sentinel


async def test_a_drain_of_many_pages(client: Limpet, store_url: str) -> None:
    """Two workers' bindings lie mixed over several pages: all of the one's are moved, none of the other's."""
    count = PAGE + PAGE // 4
    await asyncio.gather(bind(client, [f"a{n}" for n in range(count)], "w0"), bind(client, [f"b{n}" for n in range(count)], "w1"))
    await client.register("w0", pool="p", ttl_ms=0)
    *_, last = [progress async for progress in client.drain("w0")]
    assert (last.moved, last.left, last.may_stop) == (count, 0, True)
    assert await client.bindings_by_worker() == {"w1": count}
    assert members(store_url, client) == count


async def test_pruning_in_steps(client: Limpet, store_url: str, wait_for) -> None:  # type: ignore[no-untyped-def]
    """What is over goes, what lives on stays and has its deadline corrected, however they lie in the index."""
    dead, living = [f"d{n}" for n in range(3 * STEP)], [f"l{n}" for n in range(3 * STEP)]
    await bind(client, dead, "w0", 1000)
    await bind(client, living, "w1")
    space = client.commands.keyspace
    with redis.Redis.from_url(store_url) as store:
        names = {f"conv:{client.commands.declared(key).digest}:w1" for key in living}
        store.zadd(space.bound(0), dict.fromkeys(names, 5.0))

        async def over() -> bool:
            return not (await client.bindings_by_worker()).get("w0")

        await wait_for(over, 10, "the short ones to run out")
        assert await client.prune() == len(dead)
        assert members(store_url, client) == len(living)
        assert min(score for name, score in store.zrange(space.bound(0), 0, -1, withscores=True)) > 1e12
    assert await client.bindings_by_worker() == {"w1": len(living)}
    assert await client.prune() == 0


async def test_an_empty_namespace(client: Limpet) -> None:
    """Nothing to count, nothing to prune, and a drain that is over at once but for the time that word takes."""
    assert await client.bindings_by_worker() == {}
    assert await client.prune() == 0
    await client.register("w0", pool="p", ttl_ms=0)
    *_, last = [progress async for progress in client.drain("w0")]
    assert (last.moved, last.may_stop) == (0, True)
