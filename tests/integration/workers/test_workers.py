"""Registry, placement, rebinds and drains on a real store, with several replicas (design, section 5: Workers)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import redis

from limpet import Limpet
from limpet.errors import InvalidRequest, OtherIncarnation, UnknownWorker

POOL = {"pool": "p"}


@pytest.fixture
async def replicas(store_url: str) -> AsyncIterator[list[Limpet]]:
    """Four replicas; 16 partitions, so that a census is quick."""
    clients = [Limpet.connect(store_url, partitions=16, deadline_ms=2000) for _ in range(4)]
    for client in clients:
        await client.open()
    yield clients
    for client in clients:
        await client.close()


async def register(client: Limpet, count: int, **options: object) -> None:
    """So many static workers in the pool."""
    for n in range(count):
        await client.register(f"w{n}", **{"pool": "p", "address": f"http://w{n}", "incarnation": "1", "ttl_ms": 0} | options)


async def views(replicas: list[Limpet], wait_for, seen) -> None:
    """Until every replica's view of the workers satisfies a condition."""
    for client in replicas:
        view = client._workers_view()
        assert await view.ready(5)

        async def caught_up(view=view) -> bool:
            return seen(view.snapshot)

        await wait_for(caught_up, 5, "a replica's view of the workers")


async def test_a_burst_spreads(replicas: list[Limpet]) -> None:
    """SGLang #33625 (hot spots): 1,000 new sessions on 8 idle workers from 4 replicas: max/mean at most 1.1."""
    await register(replicas[0], 8)
    turns = await asyncio.gather(
        *(replicas[n % 4].resolve(f"k{n}", session_id="s", bind={"pool": "p", "commit": True}) for n in range(1000))
    )
    counts = Counter(turn.binding.worker for turn in turns)
    assert max(counts.values()) / (1000 / 8) <= 1.1
    assert turns[0].binding.address == f"http://{turns[0].binding.worker}"
    assert await replicas[1].bindings_by_worker() == counts


async def test_a_lost_worker_moves_only_its_own(replicas: list[Limpet], wait_for) -> None:
    """LiteLLM #36146 (dead pin): its sessions are rebound in their next turn, once, with a larger fence; nobody else moves."""
    await register(replicas[0], 5)
    before = {
        f"k{n}": (await replicas[n % 4].resolve(f"k{n}", session_id="s", bind={"pool": "p", "commit": True})).binding
        for n in range(60)
    }
    await replicas[0].remove_worker("w2")
    await views(replicas, wait_for, lambda snapshot: "w2" not in snapshot.workers)
    for key, old in before.items():
        turns = await asyncio.gather(*(client.resolve(key, session_id="s", bind=POOL) for client in replicas))
        bindings = [turn.binding for turn in turns]
        if old.worker != "w2":
            assert {(each.action, each.worker, each.fence) for each in bindings} == {("continue", old.worker, old.fence)}
            continue
        assert [each.action for each in bindings].count("bind") == 1
        (won,) = [each for each in bindings if each.action == "bind"]
        assert won.rebound
        assert won.fence > old.fence
        assert won.worker != "w2"
        assert {each.fence for each in bindings} == {won.fence}  # the losers follow the winner
        await replicas[0].confirm(key, fence=won.fence)
        again = (await replicas[1].resolve(key, session_id="s", bind=POOL)).binding
        assert (again.action, again.worker) == ("continue", won.worker)


async def test_a_late_refresh_resurrects_nothing(replicas: list[Limpet]) -> None:
    """AIBrix #2768 and #2772: after a rebind the old holder's renew changes nothing, and the pin stays where it was moved."""
    one, two, *_ = replicas
    await register(one, 2)
    claim = (await one.resolve("k", session_id="s", bind={"pool": "p", "commit": True})).binding
    moved = await two.rebind("k", fence=claim.fence, reason="busy", worker="w1" if claim.worker == "w0" else "w0")
    await two.confirm("k", fence=moved.fence)
    from limpet import StaleFence

    for late in (one.renew, one.confirm, one.abort, one.release):
        with pytest.raises(StaleFence):
            await late("k", fence=claim.fence)
    for client in replicas:  # the old worker is idle again: that is no reason to go back
        assert (await client.resolve("k", session_id="s", bind=POOL)).binding.worker == moved.worker


async def test_who_was_bound_to_nobody_is_placed_when_somebody_comes(replicas: list[Limpet], wait_for) -> None:
    """A pool that is empty for a moment binds to nobody, at commit and at confirm; once a worker came, it is rebound."""
    one, two, *_ = replicas
    committed = (await one.resolve("k", session_id="s", bind={"pool": "p", "commit": True})).binding
    claim = (await one.resolve("c", session_id="s", bind=POOL)).binding
    await one.confirm("c", fence=claim.fence)
    assert (committed.action, committed.worker) == ("bind", None)
    assert (await two.resolve("k", session_id="s", bind=POOL)).binding.action == "continue"
    await register(one, 1)
    await views(replicas, wait_for, lambda snapshot: "w0" in snapshot.workers)
    placed = (await two.resolve("k", session_id="s", bind={"pool": "p", "commit": True})).binding
    assert (placed.action, placed.worker, placed.rebound) == ("bind", "w0", True)
    assert placed.fence > committed.fence
    again = (await two.resolve("c", session_id="s", bind=POOL)).binding
    assert (again.action, again.worker) == ("bind", "w0")
    for client in replicas:
        follows = (await client.resolve("k", session_id="s", bind=POOL)).binding
        assert (follows.action, follows.worker, follows.fence) == ("continue", "w0", placed.fence)


async def test_a_worker_that_restarts_under_its_name_is_another(replicas: list[Limpet], wait_for) -> None:
    """Dynamo #13100: a new incarnation is a new worker; its old sessions are rebound, its old self may not beat."""
    one = replicas[0]
    await register(one, 1)
    old = (await one.resolve("k", session_id="s", bind={"pool": "p", "commit": True})).binding
    await one.register("w0", pool="p", incarnation="2", ttl_ms=0)
    with pytest.raises(OtherIncarnation):
        await one.heartbeat("w0", incarnation="1")
    await views(replicas, wait_for, lambda snapshot: snapshot.workers["w0"].incarnation == "2")
    new = (await replicas[1].resolve("k", session_id="s", bind={"pool": "p", "commit": True})).binding
    assert (new.action, new.rebound, new.worker, new.incarnation) == ("bind", True, "w0", "2")
    assert new.fence > old.fence
    assert (await replicas[2].resolve("k", session_id="s", bind=POOL)).binding.fence == new.fence


async def test_a_memo_converges(store_url: str, wait_for) -> None:
    """LiteLLM #41225: a replica's memo of a pin that was moved elsewhere is gone within the memo's ttl, normally at once."""
    async with Limpet.connect(store_url, memo_ttl_ms=30_000) as memoised, Limpet.connect(store_url) as other:
        assert await memoised._hub.wait_up(5)
        claim = (await other.resolve("k", session_id="s", bind={"commit": True, "worker": "w0"})).binding
        assert (await memoised.resolve("k", session_id="s", bind=True)).binding.worker == "w0"
        moved = await other.rebind("k", fence=claim.fence, reason="lost", worker="w1")
        await other.confirm("k", fence=moved.fence)

        async def converged() -> bool:
            return (await memoised.resolve("k", session_id="s", bind=True)).binding.worker == "w1"

        await wait_for(converged, 5, "the memo to hear of the move")


async def test_a_dead_claim_owner_holds_nobody_up(replicas: list[Limpet]) -> None:
    """ContextForge #5485: a claimer that vanished is replaced after the claim ttl, and waiters are told so."""
    await replicas[0].resolve("k", session_id="s", bind={"claim_ttl_ms": 200})
    turn = await replicas[1].resolve("k", session_id="s", bind={"wait_ms": 3000})
    assert turn.binding.action == "bind"


async def test_no_counter_leaks(replicas: list[Limpet], wait_for) -> None:
    """Redisson #6510: what is bound is counted from the index, so that expired, crashed and pruned ones do not stay."""
    one = replicas[0]
    await register(one, 3)
    for n in range(30):
        await one.resolve(f"k{n}", session_id="s", bind={"pool": "p", "ttl_ms": 1000, "commit": True})
    for n in range(30, 40):
        await one.resolve(f"k{n}", session_id="s", bind={"pool": "p", "claim_ttl_ms": 300})
    assert sum((await one.bindings_by_worker()).values()) == 40

    async def over() -> bool:
        return sum((await one.bindings_by_worker()).values()) == 0

    await wait_for(over, 10, "every binding to run out")
    assert await one.prune() == 40


async def test_heartbeats(replicas: list[Limpet], wait_for) -> None:
    """A worker whose heartbeat is older than its ttl is gone, and comes back with the next one."""
    one = replicas[0]
    await one.register("w0", pool="p", ttl_ms=300)

    async def state(wanted: str) -> bool:
        return (await one.workers())[0].state == wanted

    await wait_for(lambda: state("gone"), 5, "the worker to be gone")
    assert (await one.heartbeat("w0")).state == "live"
    await one.remove_worker("w0")
    for call in (one.heartbeat, one.undrain, one.remove_worker, one.mark_draining):
        with pytest.raises(UnknownWorker):
            await call("w0")


async def test_draining(replicas: list[Limpet], wait_for) -> None:
    """Every binding leaves, each with a larger fence in its next turn; claims in flight hold the stop back."""
    one = replicas[0]
    await register(one, 2)
    old = {}
    for n in range(100):
        old[f"k{n}"] = (await one.resolve(f"k{n}", session_id="s", bind={"pool": "p", "commit": True})).binding
    claim = (await one.resolve("claimed", session_id="s", bind={"worker": "w0"})).binding
    ours = [key for key, binding in old.items() if binding.worker == "w0"]
    progress = [each async for each in one.drain("w0")]
    assert progress[-1].moved == len(ours)
    assert (progress[-1].left, progress[-1].may_stop) == (1, False)
    assert [each.done for each in progress] == sorted(each.done for each in progress)
    await one.confirm("claimed", fence=claim.fence)
    *_, last = [each async for each in one.drain("w0")]  # resumed: what is left shows in the store
    assert (last.moved, last.left, last.may_stop) == (1, 0, True)
    await views(replicas, wait_for, lambda snapshot: snapshot.workers["w0"].state == "draining")
    for key in ours:
        binding = (await replicas[1].resolve(key, session_id="s", bind={"pool": "p", "commit": True})).binding
        assert (binding.action, binding.worker, binding.rebound) == ("bind", "w1", True)
        assert binding.fence > old[key].fence
    assert (await one.bindings_by_worker()).get("w0", 0) == 0
    await one.undrain("w0")
    assert {each.state for each in await one.workers()} == {"live"}


async def test_capacity_and_exclusion(replicas: list[Limpet]) -> None:
    """A worker of three times the capacity gets about three times the sessions; an excluded one gets none."""
    one = replicas[0]
    await one.register("big", pool="p", capacity=3, ttl_ms=0)
    await one.register("small", pool="p", capacity=1, ttl_ms=0)
    turns = [await one.resolve(f"k{n}", session_id="s", bind={"pool": "p", "commit": True}) for n in range(200)]
    counts = Counter(turn.binding.worker for turn in turns)
    assert 130 <= counts["big"] <= 165
    excluded = await one.resolve("x", session_id="s", bind={"pool": "p", "exclude": ["big"]})
    assert excluded.binding.worker == "small"
    own = await one.resolve("y", session_id="s", bind={"pool": "p", "worker": "mine"})
    assert own.binding.worker == "mine"
    empty = await one.resolve("z", session_id="s", bind={"pool": "nobody"})
    assert (empty.binding.action, empty.binding.worker) == ("bind", None)


async def test_a_snapshot_older_than_the_binding_condemns_nothing(replicas: list[Limpet], wait_for) -> None:
    """A worker that this replica has not heard of yet keeps the sessions that another bound to it."""
    one, two, *_ = replicas
    await register(one, 1)
    await views([one], wait_for, lambda snapshot: "w0" in snapshot.workers)
    view = one._workers_view()
    stale = view.snapshot
    await two.register("new", pool="p", ttl_ms=0)
    bound = (await two.resolve("k", session_id="s", bind={"pool": "p", "worker": "new", "commit": True})).binding
    assert stale.condemns(bound, "p") is None


@pytest.mark.parametrize(
    "wrong",
    [{"capacity": 0}, {"capacity": float("nan")}, {"capacity": True}, {"pool": ""}, {"ttl_ms": -1}, {"labels": {"a": "\n"}}],
)
async def test_bad_registrations(replicas: list[Limpet], wrong: dict[str, object]) -> None:
    """Refused, and nothing is written."""
    with pytest.raises(InvalidRequest):
        await replicas[0].register("w", **{"pool": "p"} | wrong)
    assert await replicas[0].workers() == []


async def test_physical_bindings_move_too(replicas: list[Limpet], wait_for) -> None:
    """A session id's binding is rebound like a key's."""
    one = replicas[0]
    await register(one, 2)
    old = (await one.resolve(session_id="sess", bind={"pool": "p", "commit": True})).binding
    await one.remove_worker(old.worker)
    await views(replicas, wait_for, lambda snapshot: old.worker not in snapshot.workers)
    new = (await replicas[3].resolve(session_id="sess", bind={"pool": "p", "commit": True})).binding
    assert (new.action, new.rebound) == ("bind", True)
    assert new.worker != old.worker


def test_too_many_workers(store_url: str) -> None:
    """The registry is bounded."""
    from limpet.commands import Commands
    from limpet.errors import QuotaExceeded
    from limpet.executors import simple

    commands = Commands()
    with redis.Redis.from_url(store_url) as store:
        pipe = store.pipeline()
        for n in range(10_000):
            pipe.hset(commands.keyspace.workers, f"w{n}", "x")
        pipe.execute()
        with pytest.raises(QuotaExceeded):
            simple.run(store, commands.register("one more", "p", "", 1.0, "", {}, 0))
