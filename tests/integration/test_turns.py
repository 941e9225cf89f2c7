"""The turn, on a real store: scopes, resets, forks, retries, and what a turn costs (design, sections 3 and 5)."""

from __future__ import annotations

import asyncio

import pytest
import redis

from limpet import Limpet, StaleFence, scope
from limpet.clock import EPOCH_UNIX_S
from limpet.commands import Commands
from limpet.errors import InvalidRequest, StoreMismatch
from limpet.executors import simple
from limpet.policy import NONE, Policy

DAY_US = 86_400_000_000


def now_us(store: redis.Redis) -> int:
    """The store's clock, in ticks."""
    seconds, micros = store.time()
    return (seconds - EPOCH_UNIX_S) * 1_000_000 + micros


def in_the_past(store: redis.Redis, key: str, days: float, *, advances: int = 0) -> None:
    """A conversation whose turns so far were some days ago, by the scripts' own injected clock."""
    commands = Commands()
    then = now_us(store) - int(days * DAY_US)
    target = commands.declared(key)
    simple.run(store, commands.resolve(target, session_id="s", now_us=then))
    for n in range(advances):
        simple.run(store, commands.advance(target, "new", now_us=then + 1000 * (n + 1)))


@pytest.fixture
def store(store_url: str):
    client = redis.Redis.from_url(store_url)
    yield client
    client.close()


async def test_idle_makes_ordinal_two(store_url: str, store: redis.Redis) -> None:
    """Ordinal 1 -> idle -> 2: a larger epoch, another scope, and the reset is reported once."""
    in_the_past(store, "k", 1)
    async with Limpet.connect(store_url) as client:
        before = await client.peek("k")
        turn = await client.resolve("k", session_id="s", policy={"idle_s": 3600})
        again = await client.resolve("k", session_id="s", policy={"idle_s": 3600})
    assert before is not None
    assert (before.ordinal, turn.ordinal, again.ordinal) == (1, 2, 2)
    assert turn.epoch > before.epoch
    assert turn.scope != before.scope
    assert (turn.reset.reason, turn.reset.previous_epoch, turn.reset.previous_scope) == ("idle", before.epoch, before.scope)
    assert turn.reset.new_conversation
    assert again.reset is None
    assert again.epoch_reason == "idle"


async def test_new_then_daily_makes_ordinal_three(store_url: str, store: redis.Redis) -> None:
    """1 -> new -> 2 -> daily -> 3, epochs larger each time and scopes different."""
    in_the_past(store, "k", 2, advances=1)
    async with Limpet.connect(store_url) as client:
        second = await client.peek("k")
        third = await client.resolve("k", session_id="s", policy={"daily": {"at": "04:00", "tz": "Europe/Paris"}})
    assert (second.ordinal, third.ordinal) == (2, 3)
    assert third.epoch > second.epoch
    assert third.scope != second.scope
    assert third.reset.reason == "daily"


async def test_idle_goes_before_daily_and_both_report_idle(store_url: str, store: redis.Redis) -> None:
    """When both are due, the reason is idle."""
    in_the_past(store, "k", 2)
    policy = {"idle_s": 60, "daily": {"at": "00:00", "tz": "UTC"}}
    async with Limpet.connect(store_url) as client:
        assert (await client.resolve("k", session_id="s", policy=policy)).reset.reason == "idle"


@pytest.mark.parametrize("policy", [{"idle_s": 60}, {"daily": {"at": "00:00", "tz": "UTC"}}])
async def test_exempt_holds_idle_and_daily_off(store_url: str, store: redis.Redis, policy: dict[str, object]) -> None:
    """An active background process keeps its conversation."""
    in_the_past(store, "k", 2)
    async with Limpet.connect(store_url) as client:
        turn = await client.resolve("k", session_id="s", policy=policy, exempt=True)
    assert turn.reset is None
    assert turn.ordinal == 1


async def test_suspend_resets_the_next_turn_whatever_exemption_says(store_url: str) -> None:
    """suspend: the next turn begins a new conversation; with a window it resumes."""
    async with Limpet.connect(store_url) as client:
        await client.resolve("k", session_id="s")
        await client.suspend("k")
        assert (await client.resolve("k", session_id="s", exempt=True)).reset.reason == "suspended"
        await client.suspend("k", resume_within_s=60)
        resumed = await client.resolve("k", session_id="s", policy={"idle_s": 1})
        assert resumed.reset is None
        assert resumed.ordinal == 2
        assert not (await client.suspend("never seen")).applied


async def test_two_replicas_that_meet_one_due_reset_advance_once(store_url: str, store: redis.Redis) -> None:
    """G1: 64 turns at two replicas at once, one reset in all, one epoch for everybody."""
    in_the_past(store, "k", 3)
    async with Limpet.connect(store_url) as one, Limpet.connect(store_url) as two:
        turns = await asyncio.gather(
            *(client.resolve("k", session_id="s", policy={"idle_s": 60}) for client in (one, two) for _ in range(32))
        )
    assert sum(turn.reset is not None for turn in turns) == 1
    assert len({turn.epoch for turn in turns}) == 1
    assert {turn.ordinal for turn in turns} == {2}


async def test_a_group_chat_is_one_scope(store_url: str) -> None:
    """Many session ids, one key, one scope."""
    async with Limpet.connect(store_url) as client:
        turns = await asyncio.gather(*(client.resolve("group", session_id=f"resp_{n}") for n in range(50)))
    assert len({turn.scope for turn in turns}) == 1
    assert sum(turn.created for turn in turns) == 1


@pytest.mark.parametrize("kind", ["fork", "delegate", "tool", "background"])
@pytest.mark.parametrize("bind", [None, True])
async def test_forks_never_touch_the_parent(store_url: str, store: redis.Redis, kind: str, bind: bool | None) -> None:
    """G6: the parent's record is the same to the byte; the fork has its own physical scope, and the parent's beside it."""
    async with Limpet.connect(store_url) as client:
        parent = await client.resolve("parent", session_id="parent", bind=True)
        (name,) = store.keys("*:conv:*")
        before = store.get(name)
        fork = await client.resolve(
            "parent", session_id="parent", kind=kind, parent_key="parent", bind=bind, policy={"idle_s": 1}
        )
        if bind:
            await client.confirm(session_id="parent", fence=fork.binding.fence, worker="w")
            await client.release(session_id="parent", fence=fork.binding.fence)
        assert store.get(name) == before
    assert fork.scope == scope.physical("parent")
    assert fork.source == "physical"
    assert fork.epoch is None
    assert fork.parent_scope == parent.scope


async def test_a_physical_turn_without_bind_touches_no_store(store_url: str, store: redis.Redis) -> None:
    """No key, no bind: no command, no key in the store."""
    async with Limpet.connect(store_url) as client:
        calls = store.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
        turn = await client.resolve(session_id="resp_1")
        assert store.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"] == calls
    assert turn.source == "physical"
    assert store.keys("*:sess:*") == []


async def test_peek_neither_touches_nor_resets(store_url: str, store: redis.Redis) -> None:
    """Compaction out of turn looks at the conversation and leaves no trace; nor does it for a key that is unknown."""
    in_the_past(store, "k", 5)
    (name,) = store.keys("*:conv:*")
    before = store.get(name)
    async with Limpet.connect(store_url) as client:
        seen = await client.peek("k")
        assert seen.ordinal == 1
        assert await client.epoch("k") == seen.epoch
        assert await client.peek("unknown") is None
    assert store.get(name) == before


async def test_one_round_trip_per_turn(store_url: str, store: redis.Redis) -> None:
    """G8: a turn is one EVALSHA and nothing else, and a memoised one is no command at all."""
    async with Limpet.connect(store_url) as client:
        await client.resolve("warm", session_id="s")
        store.config_resetstat()
        await client.resolve("k", session_id="s", bind=True)
        await client.resolve("k", session_id="s", bind=True, policy={"idle_s": 9, "daily": {"at": "04:00", "tz": "UTC"}})
        stats = {name: each["calls"] for name, each in store.info("commandstats").items()}
    inside = {"cmdstat_get", "cmdstat_set", "cmdstat_time", "cmdstat_zadd", "cmdstat_publish"}
    ours = {"cmdstat_info", "cmdstat_config|resetstat", "cmdstat_config"}  # 6.2 counts by command alone
    assert stats.pop("cmdstat_evalsha") == 2
    assert set(stats) - inside - ours == set()


async def test_a_memo_hit_is_no_command(store_url: str, store: redis.Redis) -> None:
    """A hundred turns within the memo's ttl cost one call and at most one touch behind."""
    async with Limpet.connect(store_url, memo_ttl_ms=30_000) as client:
        await client.executor.ping(1)
        assert await client._hub.wait_up(5)
        first = await client.resolve("k", session_id="s")
        store.config_resetstat()
        hits = [await client.resolve("k", session_id=f"s{n}") for n in range(100)]
        assert store.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"] == 0
    assert {hit.scope for hit in hits} == {first.scope}
    assert [hit.session_id for hit in hits] == [f"s{n}" for n in range(100)]


async def test_the_memo_hears_another_replica(store_url: str, wait_for) -> None:
    """An advance elsewhere drops the entry; so do suspend, forget and a release."""
    async with Limpet.connect(store_url, memo_ttl_ms=30_000) as memoised, Limpet.connect(store_url) as other:
        assert await memoised._hub.wait_up(5)
        first = await memoised.resolve("k", session_id="s")
        advanced = await other.advance("k", "new")

        async def sees_it() -> bool:
            return (await memoised.resolve("k", session_id="s")).epoch == advanced.epoch

        await wait_for(sees_it, 5, "the advance to reach the memo")
        await other.suspend("k")

        async def reset() -> bool:
            return (await memoised.resolve("k", session_id="s")).epoch > advanced.epoch

        await wait_for(reset, 5, "the suspension to reach the memo")
    assert advanced.epoch > first.epoch


async def test_a_memo_hit_is_an_activity(store_url: str, store: redis.Redis, wait_for) -> None:
    """What the memo answers is written behind within a granularity, and slides the binding."""
    async with Limpet.connect(store_url, memo_ttl_ms=30_000, touch_granularity_ms=50) as client:
        assert await client._hub.wait_up(5)
        first = await client.resolve("k", session_id="s", bind=True)
        await client.confirm("k", fence=first.binding.fence, worker="w")
        await client.resolve("k", session_id="s", bind=True)
        (name,) = store.keys("*:conv:*")
        before = store.get(name)

        async def written() -> bool:
            await client.resolve("k", session_id="s", bind=True)
            return store.get(name) != before

        await wait_for(written, 5, "the activity to be written behind")


async def test_policies_are_read_once_and_refused_clearly(store_url: str) -> None:
    """A bad policy is an error, never a silent none."""
    assert Policy.parse({}) == NONE
    async with Limpet.connect(store_url) as client:
        for bad in (
            {"idle_s": 0},
            {"idle_s": -1},
            {"idle": 5},
            {"daily": {"at": "25:00", "tz": "UTC"}},
            {"daily": {"at": "04:00", "tz": "Mars/X"}},
        ):
            with pytest.raises(InvalidRequest):
                await client.resolve("k", session_id="s", policy=bad)


# -- retries whose first reply was lost, with another request in between ---------------------------------------------------


async def test_a_retried_advance_returns_its_first_result(store_url: str) -> None:
    """Advance A, advance B, A again: A's result, and no third advance."""
    async with Limpet.connect(store_url) as client:
        a = await client.advance("k", "new", request_id="a")
        b = await client.advance("k", "new", request_id="b")
        assert await client.advance("k", "new", request_id="a") == a
        assert await client.epoch("k") == b.epoch


async def test_a_retried_reset_is_reported_again(store_url: str, store: redis.Redis) -> None:
    """The reset is reported to the same request id again, and only to it."""
    in_the_past(store, "k", 2)
    async with Limpet.connect(store_url) as client:
        first = await client.resolve("k", session_id="s", policy={"idle_s": 60}, request_id="r")
        other = await client.resolve("k", session_id="s", policy={"idle_s": 60})
        again = await client.resolve("k", session_id="s", policy={"idle_s": 60}, request_id="r")
    assert first.reset is not None
    assert other.reset is None
    assert again.reset == first.reset
    assert again.epoch == first.epoch


async def test_a_retried_claim_is_the_same_claim(store_url: str) -> None:
    """The claimer's retry is told bind again, with the same fence; everybody else waits."""
    async with Limpet.connect(store_url) as client:
        first = await client.resolve("k", session_id="s", bind=True, request_id="r")
        other = await client.resolve("k", session_id="s", bind=True, request_id="o")
        again = await client.resolve("k", session_id="s", bind=True, request_id="r")
    assert (first.binding.action, other.binding.action, again.binding.action) == ("bind", "wait", "bind")
    assert again.binding.fence == first.binding.fence


async def test_a_dead_claim_is_not_replayed(store_url: str) -> None:
    """Claim, abort, claim by another, retry of the first: it waits for the second."""
    async with Limpet.connect(store_url) as client:
        first = await client.resolve("k", session_id="s", bind=True, request_id="r")
        await client.abort("k", fence=first.binding.fence)
        second = await client.resolve("k", session_id="s", bind=True, request_id="o")
        again = await client.resolve("k", session_id="s", bind=True, request_id="r")
    assert second.binding.action == "bind"
    assert second.binding.fence > first.binding.fence
    assert again.binding.action == "wait"
    assert again.binding.fence == second.binding.fence


async def test_a_retried_rebind_is_the_same_rebind(store_url: str) -> None:
    """The winner's retry gets its own claim again; the loser learns the winner's."""
    async with Limpet.connect(store_url) as client:
        first = await client.resolve("k", session_id="s", bind=True)
        fence = first.binding.fence
        await client.confirm("k", fence=fence, worker="w1")
        won = await client.rebind("k", fence=fence, reason="lost", worker="w2", request_id="r")
        with pytest.raises(StaleFence) as lost:
            await client.rebind("k", fence=fence, reason="lost", worker="w3", request_id="o")
        again = await client.rebind("k", fence=fence, reason="lost", worker="w2", request_id="r")
    assert won.rebound
    assert won.fence > fence
    assert again.fence == won.fence
    assert lost.value.binding.fence == won.fence
    assert lost.value.binding.worker == "w2"


async def test_a_retried_delete_meets_no_new_conversation(store_url: str) -> None:
    """Delete, a new conversation, the delete again: the new one stays."""
    async with Limpet.connect(store_url) as client:
        old = await client.resolve("k", session_id="s")
        gone = await client.forget("k", request_id="d")
        new = await client.resolve("k", session_id="s")
        again = await client.forget("k", request_id="d")
        assert gone == again
        assert gone.applied
        assert new.created
        assert new.ordinal == 1
        assert new.reset is None
        assert new.epoch > old.epoch
        assert await client.epoch("k") == new.epoch


async def test_a_store_of_other_partitions_is_refused(store_url: str) -> None:
    """It refuses to start and says why; so with another schema."""
    async with Limpet.connect(store_url, namespace="x", partitions=64):
        pass
    with pytest.raises(StoreMismatch, match="64 partitions"):
        await Limpet.connect(store_url, namespace="x", partitions=128).__aenter__()
    with redis.Redis.from_url(store_url) as store:
        store.hset("limpet:{y}:config", "schema", 99)
    with pytest.raises(StoreMismatch, match="schema 99"):
        await Limpet.connect(store_url, namespace="y").__aenter__()


async def test_the_stores_granularity_wins(store_url: str) -> None:
    """What config holds wins over a replica's own setting."""
    async with Limpet.connect(store_url, touch_granularity_ms=70), Limpet.connect(store_url, touch_granularity_ms=900) as late:
        assert late.commands.granularity_us == 70_000
