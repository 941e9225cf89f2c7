"""G3: no epoch and no fence repeats or goes down, whatever happens to the data (design, sections 3 and 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import redis

from limpet import Limpet
from limpet.bind import Bind
from limpet.clock import EPOCH_UNIX_S
from limpet.commands import Commands
from limpet.errors import NotDurable
from limpet.executors import simple

HOUR_US = 3_600_000_000


class Issued:
    """Everything that was issued for one key, in order."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.fences: list[int] = []

    async def advance_and_claim(self, client: Limpet, key: str = "k") -> None:
        """One advance and one claim, each of which must go up."""
        self.epochs.append((await client.advance(key, "new")).epoch)
        turn = await client.resolve(key, session_id="s", bind=True)
        assert turn.binding.action == "bind"
        self.epochs.append(turn.epoch)
        self.fences.append(turn.binding.fence)
        self.check()

    def check(self) -> None:
        """Epochs never go down (a claim reports the epoch it is of), fences strictly go up."""
        assert self.epochs == sorted(self.epochs)
        assert self.fences == sorted(set(self.fences))


def expire(store: redis.Redis) -> None:
    """The record's time is over."""
    for name in store.keys("*:conv:*"):
        store.pexpire(name, 0)


def delete_everything_but_the_clock(store: redis.Redis) -> None:
    """As an eviction of everything that has a TTL."""
    for name in store.keys("limpet:*"):
        if store.pttl(name) > 0:
            store.delete(name)


def lose_the_clock(store: redis.Redis) -> None:
    """The clock goes and the records stay."""
    for name in store.keys("*:clock"):
        store.delete(name)


@pytest.mark.parametrize(
    "loss", [expire, delete_everything_but_the_clock, lose_the_clock, redis.Redis.flushall, redis.Redis.script_flush]
)
async def test_losses(store_url: str, loss: Callable[[redis.Redis], object]) -> None:
    """Expiry, eviction, a lost clock, FLUSHALL, SCRIPT FLUSH: all goes on, upwards."""
    issued = Issued()
    with redis.Redis.from_url(store_url) as store:
        for _ in range(4):
            async with Limpet.connect(store_url) as client:  # a fresh replica each time: nobody remembers
                await issued.advance_and_claim(client)
                loss(store)
                await issued.advance_and_claim(client)
                loss(store)


async def test_forgotten_keys_go_on_upwards(store_url: str) -> None:
    """A deleted key begins at ordinal 1 with a larger epoch."""
    issued = Issued()
    async with Limpet.connect(store_url) as client:
        for _ in range(5):
            await issued.advance_and_claim(client)
            await client.forget("k")
            turn = await client.resolve("k", session_id="s")
            assert turn.ordinal == 1
            issued.epochs.append(turn.epoch)
            issued.check()


async def test_eviction(fresh_server) -> None:
    """volatile-lru under pressure drops records, and no epoch or fence comes back."""
    server = fresh_server("--maxmemory", "4mb", "--maxmemory-policy", "volatile-lru")
    issued = Issued()
    async with Limpet.connect(server.url, deadline_ms=5000) as client:
        await issued.advance_and_claim(client)
        for n in range(0, 20_000, 500):
            await asyncio.gather(*(client.resolve(f"filler {n + i}", session_id="s") for i in range(500)))
        with redis.Redis.from_url(server.url) as store:
            assert store.info("stats")["evicted_keys"] > 0
        await issued.advance_and_claim(client)
        health = await client.health()
        assert health.ok
        assert [check.level for check in health.checks if check.name == "eviction"] == ["warn"]


async def test_an_eviction_policy_that_drops_clocks_is_not_ready(fresh_server) -> None:
    """allkeys-*: readiness fails and says what to do."""
    server = fresh_server("--maxmemory-policy", "allkeys-lru")
    async with Limpet.connect(server.url) as client:
        health = await client.health()
    assert not health.ok
    (check,) = [check for check in health.checks if check.level == "fail"]
    assert check.name == "eviction"
    assert "volatile-lru" in check.message


async def test_restarts_from_one_old_snapshot_twice(fresh_server) -> None:
    """A store that comes back with the data from before the last advance, twice from the same file: nothing is issued twice."""
    server = fresh_server()
    issued = Issued()
    async with Limpet.connect(server.url) as client:
        await issued.advance_and_claim(client)
        snapshot = server.snapshot()
        for _ in range(2):
            await issued.advance_and_claim(client)
            await issued.advance_and_claim(client)
            server.restore(snapshot)
            async with Limpet.connect(server.url) as stranger:  # one that remembers nothing
                await issued.advance_and_claim(stranger)


async def test_a_replica_that_remembers_heals_a_lost_advance(fresh_server) -> None:
    """The store loses an advance; a replica that served it ticks past it: reason rollback, the transcript goes on."""
    server = fresh_server()
    async with Limpet.connect(server.url) as client:
        await client.resolve("k", session_id="s")
        snapshot = server.snapshot()
        lost = await client.advance("k", "new")
        server.restore(snapshot)
        turn = await client.resolve("k", session_id="s")
    assert turn.epoch > lost.epoch
    assert (turn.reset.reason, turn.reset.previous_epoch, turn.reset.new_conversation) == ("rollback", lost.epoch, False)


async def test_a_caller_that_remembers_heals_a_lost_advance(fresh_server) -> None:
    """The same where only the caller remembers; an absurd memory is refused."""
    server = fresh_server()
    async with Limpet.connect(server.url) as client:
        await client.resolve("k", session_id="s")
        snapshot = server.snapshot()
        lost = await client.advance("k", "new")
        server.restore(snapshot)
    async with Limpet.connect(server.url) as stranger:
        turn = await stranger.resolve("k", session_id="s", seen_epoch=lost.epoch)
        assert turn.reset.reason == "rollback"
        assert turn.epoch > lost.epoch
        with pytest.raises(ValueError, match="60 s ahead"):
            await stranger.resolve("k", session_id="s", seen_epoch=turn.epoch + 120_000_000)


def test_a_clock_set_back_over_intact_data(store_url: str) -> None:
    """An hour back: ticks go on upwards, and neither a claim nor an idle reset freezes for longer than its own ttl."""
    commands = Commands()
    target = commands.declared("k")
    with redis.Redis.from_url(store_url) as store:
        seconds, micros = store.time()
        now = (seconds - EPOCH_UNIX_S) * 1_000_000 + micros
        claim = simple.run(store, commands.resolve(target, session_id="s", bind=Bind(), now_us=now))
        back = now - HOUR_US
        waiting = simple.run(store, commands.resolve(target, session_id="s", bind=Bind(), now_us=back))
        assert waiting.behind
        assert waiting.result.binding.action == "wait"
        assert waiting.result.binding.expires_in_ms <= 10_000
        later = simple.run(store, commands.resolve(target, session_id="s", bind=Bind(), now_us=back + 10_000_001))
        assert later.result.binding.action == "bind"
        assert later.fence > claim.fence
        from limpet.policy import Policy

        idle = simple.run(
            store, commands.resolve(target, session_id="s", policy=Policy(idle_s=60), now_us=back + 10_000_001 + 61_000_001)
        )
        assert idle.result.reset.reason == "idle"
        assert idle.epoch > claim.epoch
        assert idle.epoch > later.fence


@pytest.mark.slow
async def test_40_000_short_conversations_leave_no_key_behind(store_url: str, wait_for) -> None:
    """After their retention nothing is left but what exists once per partition: no record, no member of an index."""
    async with Limpet.connect(store_url, retention_s=2, deadline_ms=10_000, partitions=64, touch_granularity_ms=0) as client:
        for n in range(0, 40_000, 2000):
            bind = {"commit": True, "ttl_ms": 1000, "worker": "w"} if n % 10_000 == 0 else None
            await asyncio.gather(*(client.resolve(f"short {n + i}", session_id="s", bind=bind) for i in range(2000)))
        with redis.Redis.from_url(store_url) as store:

            async def only_the_fixed_ones() -> bool:
                await client.prune()
                return store.dbsize() <= 64 * 2 + 1

            await wait_for(only_the_fixed_ones, 15, "the retention of every conversation to be over")
            assert {name.rsplit(b":", 1)[1] for name in store.keys("*")} == {b"clock", b"bound", b"config"}
            assert all(store.zcard(name) == 1 for name in store.keys("*:bound"))


@pytest.mark.parametrize("way", ["quick", "long", "advance"])
async def test_what_was_refused_as_not_durable_is_remembered(store_url: str, way: str) -> None:
    """``require_durable`` made an error of the new epoch, and a failover then lost it: the same replica still never goes back.

    Found by the chaos suite (Sentinel, seed 15323020): the short way of a turn raised before it had remembered.
    """
    waits = {"durability": "replica", "durable_replicas": 1, "deadline_ms": 2000}  # and there is no replica
    async with Limpet.connect(store_url, **waits) as client, Limpet.connect(store_url, **waits) as other:
        first = await client.resolve("k", session_id="s")
        await client.resolve("k", session_id="s")  # the quick way is open now
        name = client.commands.declared("k")
        record = client.commands.keyspace.record("conv", name.digest)
        with redis.Redis.from_url(store_url) as store:
            kept = store.get(record)
            assert kept is not None
            if way != "advance":
                await other.suspend("k")  # the next turn begins a new conversation
            with pytest.raises(NotDurable) as refused:
                await (
                    client.advance("k", "new", require_durable=True)
                    if way == "advance"
                    else client.resolve("k", session_id="s", request_id={"long": "r1"}.get(way), require_durable=True)
                )
            lost = refused.value.result.epoch
            assert lost > first.epoch
            store.set(record, kept)  # the replica that was promoted had only this
        after = await client.resolve("k", session_id="s")
        assert after.epoch > lost
        assert after.reset is not None
        assert after.reset.reason == "rollback"
