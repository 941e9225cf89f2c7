"""Bindings on a real store: exactly one bind, fences, waits that are woken, the turn as a context manager."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
import redis

from limpet import Limpet, StaleFence, context

CLAIMERS = """
import asyncio, json, sys
from limpet import Limpet

async def main(url):
    async with Limpet.connect(url) as client:
        await client.resolve("warm-up", session_id="s")
        print("ready", flush=True)
        sys.stdin.readline()
        turns = await asyncio.gather(*(client.resolve("k", session_id=f"s{n}", bind=True) for n in range(8)))
        print(json.dumps([[t.binding.action, t.binding.fence, t.epoch, t.created] for t in turns]), flush=True)

asyncio.run(main(sys.argv[1]))
"""

DOOMED = """
import asyncio, sys
from limpet import Limpet

async def main(url):
    async with Limpet.connect(url) as client:
        turn = await client.resolve("k", session_id="s", bind={"claim_ttl_ms": 500})
        print(turn.binding.fence, flush=True)
        await asyncio.sleep(60)

asyncio.run(main(sys.argv[1]))
"""


def test_64_claimers_in_8_processes_one_bind(store_url: str) -> None:
    """G4: of 64 concurrent resolves from 8 processes exactly one is told bind; the rest wait for the same fence."""
    children = [
        subprocess.Popen([sys.executable, "-c", CLAIMERS, store_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    try:
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        answers = [answer for child in children for answer in json.loads(child.stdout.readline())]
    finally:
        for child in children:
            child.communicate(timeout=20)
    assert len(answers) == 64
    assert sorted(action for action, *_ in answers) == ["bind"] + ["wait"] * 63
    assert len({fence for _, fence, *_ in answers}) == 1
    assert len({epoch for _, _, epoch, _ in answers}) == 1
    assert sum(created for *_, created in answers) == 1


def killed_in_mid_claim(store_url: str) -> int:
    """The fence of a claimer that was killed with SIGKILL."""
    child = subprocess.Popen([sys.executable, "-c", DOOMED, store_url], stdout=subprocess.PIPE, text=True)
    fence = int(child.stdout.readline())
    child.kill()
    child.communicate(timeout=10)
    return fence


async def test_kill_9_of_the_claimer(store_url: str) -> None:
    """The next is told bind within the claim ttl, with a larger fence; the late confirm is stale."""
    fence = killed_in_mid_claim(store_url)
    async with Limpet.connect(store_url) as client:
        started = asyncio.get_running_loop().time()
        turn = await client.resolve("k", session_id="s", bind={"wait_ms": 10_000})
        waited = asyncio.get_running_loop().time() - started
        assert turn.binding.action == "bind"
        assert turn.binding.fence > fence
        assert waited < 2
        with pytest.raises(StaleFence):
            await client.confirm("k", fence=fence, worker="late")
        assert (await client.confirm("k", fence=turn.binding.fence, worker="w")).worker == "w"


async def test_a_wait_is_woken_by_the_confirm(store_url: str) -> None:
    """64 waiters on two replicas are told continue as soon as the claimer confirms, without polling the store."""
    async with Limpet.connect(store_url) as one, Limpet.connect(store_url) as two:
        claim = await one.resolve("k", session_id="s", bind=True)
        waiters = [
            asyncio.create_task(client.resolve("k", session_id="s", bind={"wait_ms": 9000}))
            for client in (one, two)
            for _ in range(32)
        ]
        for client in (one, two):
            client._hub.start()
            assert await client._hub.wait_up(5)
        await one.resolve("barrier", session_id="s")
        with redis.Redis.from_url(store_url) as store:
            store.config_resetstat()
            await one.confirm("k", fence=claim.binding.fence, worker="w1")
            turns = await asyncio.wait_for(asyncio.gather(*waiters), 5)
            calls = store.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert {(turn.binding.action, turn.binding.worker) for turn in turns} == {("continue", "w1")}
    assert calls <= 1 + 2 * 64


async def test_a_wait_takes_over_an_aborted_claim(store_url: str) -> None:
    """The claimer says that it failed: exactly one of the waiters is told bind."""
    async with Limpet.connect(store_url) as client:
        claim = await client.resolve("k", session_id="s", bind=True)
        waiters = [asyncio.create_task(client.resolve("k", session_id="s", bind={"wait_ms": 700})) for _ in range(8)]
        assert await client._hub.wait_up(5)
        await client.abort("k", fence=claim.binding.fence)
        turns = await asyncio.gather(*waiters)
    assert sorted(turn.binding.action for turn in turns) == ["bind"] + ["wait"] * 7


async def test_commit_binds_at_once(store_url: str) -> None:
    """bind.commit: claim and confirm in one call; the next turn continues."""
    async with Limpet.connect(store_url) as client:
        first = await client.resolve("k", session_id="s", bind={"commit": True, "worker": "w1"})
        second = await client.resolve("k", session_id="s", bind=True)
    assert (first.binding.action, first.binding.state, first.binding.worker) == ("bind", "bound", "w1")
    assert (second.binding.action, second.binding.worker) == ("continue", "w1")


async def test_release_is_idempotent_and_an_advance_releases(store_url: str) -> None:
    """Twice released is once released; a release with a fence from before an advance is stale."""
    async with Limpet.connect(store_url) as client:
        first = await client.resolve("k", session_id="s", bind={"commit": True})
        fence = first.binding.fence
        assert (await client.release("k", fence=fence)).state == "unbound"
        assert (await client.release("k", fence=fence)).state == "unbound"
        second = await client.resolve("k", session_id="s", bind={"commit": True})
        await client.advance("k", "new")
        for call in (client.confirm, client.renew, client.abort, client.release):
            with pytest.raises(StaleFence):
                await call("k", fence=second.binding.fence)
        with pytest.raises(StaleFence):
            await client.rebind("k", fence=second.binding.fence, reason="lost")


async def test_dp_rank_and_large_worker_ids_pass_exactly(store_url: str) -> None:
    """Worker ids beyond 2^53 never pass through a float."""
    worker = str(2**63 + 12345678901)
    async with Limpet.connect(store_url) as client:
        claim = await client.resolve("k", session_id="s", bind=True)
        await client.confirm("k", fence=claim.binding.fence, worker=worker, dp_rank=7)
        turn = await client.resolve("k", session_id="s", bind=True)
    assert (turn.binding.worker, turn.binding.dp_rank) == (worker, 7)


async def test_turn_confirms_on_success_and_publishes(store_url: str) -> None:
    """Entering publishes the scope; a nested turn without a key and a fork shadow it; leaving restores, early return too."""
    async with Limpet.connect(store_url) as client:
        assert context.published() is None
        async with client.turn("k", session_id="s") as turn:
            assert context.published() == turn.scope
            async with client.turn(session_id="inner"):
                assert context.published() is None
            assert context.published() == turn.scope
            async with client.turn("k", session_id="f", kind="fork"):
                assert context.published() is None
            turn.served_by("w1", 2)
        assert context.published() is None

        async def early() -> str:
            async with client.turn("k", session_id="s") as inner:
                return inner.scope

        assert await early() == turn.scope
        assert context.published() is None
        seen = await client.peek("k")
    assert (seen.binding.state, seen.binding.worker, seen.binding.dp_rank) == ("bound", "w1", 2)


@pytest.mark.parametrize("failure", [ValueError("boom"), asyncio.CancelledError()])
async def test_turn_aborts_on_failure_and_cancellation(store_url: str, failure: BaseException) -> None:
    """The body's error comes through, the claim is gone, the context is as it was; the next turn is told bind."""
    async with Limpet.connect(store_url) as client:
        with pytest.raises(type(failure)):
            async with client.turn("k", session_id="s"):
                raise failure
        assert context.published() is None
        after = await client.resolve("k", session_id="s", bind=True)
    assert after.binding.action == "bind"


async def test_a_cancelled_task_gives_its_claim_back(store_url: str, wait_for) -> None:
    """Cancellation from outside, in the middle of the turn."""
    async with Limpet.connect(store_url) as client:
        entered = asyncio.Event()

        async def body() -> None:
            async with client.turn("k", session_id="s"):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.resolve("k", session_id="s", bind=True)).binding.action == "bind"


async def test_turn_renews_while_it_is_open(store_url: str, wait_for) -> None:
    """A turn that takes longer than the claim ttl keeps its claim."""
    async with Limpet.connect(store_url) as client:
        async with client.turn("k", session_id="s", bind={"claim_ttl_ms": 300}) as turn:
            with redis.Redis.from_url(store_url) as store:
                start = store.time()

                async def a_second_later() -> bool:
                    now = store.time()
                    return (now[0] - start[0]) * 1_000_000 + now[1] - start[1] > 1_000_000

                await wait_for(a_second_later, 5, "more than three claim ttls")
            assert (await client.resolve("k", session_id="s", bind=True)).binding.action == "wait"
            turn.served_by("w")
        assert not turn.lost
        assert (await client.peek("k")).binding.worker == "w"


async def test_a_lost_turn_knows_it(store_url: str, wait_for) -> None:
    """A turn whose conversation was advanced meanwhile is told so by its renewal, and confirms nothing."""
    async with Limpet.connect(store_url) as client:
        async with client.turn("k", session_id="s", bind={"claim_ttl_ms": 300}) as turn:
            await client.advance("k", "new")

            async def lost() -> bool:
                return turn.lost

            await wait_for(lost, 5, "the renewal to be refused")
        assert (await client.peek("k")).binding is None


async def test_pruning_looks_at_the_record_first(store_url: str) -> None:
    """Members whose record lives on stay, whatever their score says; those that are over go; the sentinel stays."""
    async with Limpet.connect(store_url, partitions=4) as client:
        for n in range(200):
            await client.resolve(f"k{n}", session_id="s", bind={"commit": True, "worker": f"w{n % 3}"})
        with redis.Redis.from_url(store_url) as store:
            for name in store.keys("*:bound"):
                for member, _ in store.zscan_iter(name):
                    if member:
                        store.zadd(name, {member: 1})
            doomed = store.keys("*:conv:*")[:50]
            store.delete(*doomed)
            assert await client.prune() == 50
            assert sum((await client.bindings_by_worker()).values()) == 150
            assert all(store.zscore(name, "") == float("inf") for name in store.keys("*:bound"))
