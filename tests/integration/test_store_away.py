"""G7: a store that hangs or is gone gives degraded turns within the deadline, errors for the rest, and recovers by itself."""

from __future__ import annotations

import asyncio

import pytest
import redis

from limpet import Advanced, Limpet, Resolution, StoreUnavailable, scope
from limpet.errors import NotDurable

pytestmark = pytest.mark.default_deadline
DEADLINE_S = 0.25
SLACK_S = 0.2  # a busy machine's scheduling, not part of the promise


async def degraded_in_time(client: Limpet) -> None:
    """A turn is answered within the deadline, with the physical scope."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    turn = await client.resolve("k", session_id="s", bind=True)
    assert loop.time() - start < DEADLINE_S + SLACK_S
    assert turn.degraded
    assert turn.scope == scope.physical("s")
    assert turn.binding is None
    assert turn.epoch is None


async def others_raise(client: Limpet) -> None:
    """A /new that did not happen must not look as if it had."""
    loop = asyncio.get_running_loop()
    for call in (
        lambda: client.advance("k", "new"),
        lambda: client.suspend("k"),
        lambda: client.forget("k"),
        lambda: client.peek("k"),
        lambda: client.epoch("k"),
        lambda: client.confirm("k", fence=1),
        lambda: client.rebind("k", fence=1, reason="lost"),
    ):
        start = loop.time()
        with pytest.raises(StoreUnavailable):
            await call()
        assert loop.time() - start < DEADLINE_S + SLACK_S


async def test_a_stopped_store(fresh_server, wait_for) -> None:
    """SIGSTOP: degraded in time, 64 turns at once too; after SIGCONT the same client goes on, epochs unharmed."""
    server = fresh_server()
    async with Limpet.connect(server.url) as client:
        before = await client.resolve("k", session_id="s")
        server.pause()
        try:
            await degraded_in_time(client)
            await asyncio.gather(*(degraded_in_time(client) for _ in range(64)))
            await others_raise(client)
            assert not (await client.health()).ok
        finally:
            server.resume()

        async def back() -> bool:
            return not (await client.resolve("k", session_id="s")).degraded

        await wait_for(back, 5, "the client to recover by itself")
        after = await client.resolve("k", session_id="s")
        assert after.epoch >= before.epoch
        assert (await client.health()).ok


async def test_a_store_that_is_gone(fresh_server, wait_for) -> None:
    """kill -9 and a restart at the same address: the same, and what was in flight is lost without harm."""
    server = fresh_server()
    async with Limpet.connect(server.url) as client:
        first = await client.resolve("k", session_id="s")
        server.kill9()
        await degraded_in_time(client)
        await others_raise(client)
        server.start()

        async def back() -> bool:
            return not (await client.resolve("k", session_id="s")).degraded

        await wait_for(back, 5, "the client to recover by itself")
        assert (await client.resolve("k", session_id="s")).epoch >= first.epoch


async def test_a_replica_that_starts_without_a_store(fresh_server, wait_for) -> None:
    """open() raises, but the client is usable: degraded until the store is there, then verified and right."""
    server = fresh_server()
    server.stop()
    client = Limpet.connect(server.url)
    try:
        with pytest.raises(StoreUnavailable):
            await client.open()
        await degraded_in_time(client)
        server.start()

        async def back() -> bool:
            return not (await client.resolve("k", session_id="s")).degraded

        await wait_for(back, 5, "the client to find the store")
        with redis.Redis.from_url(server.url) as store:
            assert store.exists("limpet:{default}:config")
    finally:
        await client.close()


async def test_scripts_flushed_in_use(store_url: str) -> None:
    """SCRIPT FLUSH between and amid turns: all goes on."""
    async with Limpet.connect(store_url, deadline_ms=2000) as client:
        with redis.Redis.from_url(store_url) as store:
            for _ in range(5):
                store.script_flush()
                turns = await asyncio.gather(*(client.resolve(f"k{n}", session_id="s", bind=True) for n in range(64)))
                assert not any(turn.degraded for turn in turns)
                assert {turn.binding.action for turn in turns} <= {"bind", "wait"}


async def test_a_cancelled_caller_harms_nobody(store_url: str) -> None:
    """Cancelled calls leave the replies of the others in order."""
    async with Limpet.connect(store_url) as client:
        for _ in range(20):
            tasks = [asyncio.create_task(client.resolve(f"key {n}", session_id="s")) for n in range(40)]
            await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            for n, turn in enumerate(done):
                if not isinstance(turn, asyncio.CancelledError):
                    assert turn.key == f"key {n}"
                    assert turn.scope == scope.declared(f"key {n}", turn.epoch)


async def test_each_call_has_its_own_deadline_in_a_batch_that_hangs(fresh_server) -> None:
    """Decisions that share a WAIT, or queue behind one, on a store that hangs: each ends at its own deadline, not its batch's."""
    server = fresh_server()
    async with Limpet.connect(server.url, durability="replica") as client:
        await client.advance("warm", "new")
        loop = asyncio.get_running_loop()
        server.pause()
        try:

            async def timed(delay_s: float) -> float:
                started = asyncio.Event()
                loop.call_later(delay_s, started.set)
                await started.wait()
                start = loop.time()
                with pytest.raises(StoreUnavailable):
                    await client.advance("k", "new")
                return loop.time() - start

            took = await asyncio.gather(*(timed(delay) for delay in (0, 0.1, 0.15, 0.2, 0.24)))
        finally:
            server.resume()
    assert max(took) < DEADLINE_S + SLACK_S / 2


async def test_a_decision_that_nobody_acknowledges_is_told_within_the_deadline(fresh_server) -> None:
    """No replica there: the answer comes with durable false, and require_durable makes an error of it; what happened stands."""
    server = fresh_server()
    async with Limpet.connect(server.url, durability="replica") as client:
        first = await client.advance("k", "new")
        assert first.durable is False
        turn = await client.resolve("k", session_id="s", bind=True)
        assert turn.durable is False
        assert (await client.resolve("k", session_id="s", bind=True)).durable is None
        with pytest.raises(NotDurable) as told:
            await client.advance("k", "new", require_durable=True)
        assert told.value.result.epoch == await client.epoch("k")
        with pytest.raises(NotDurable):
            await client.resolve("k", session_id="s", bind=True, require_durable=True)


async def test_a_fork_and_its_parent_share_one_deadline(fresh_server) -> None:
    """The parent's scope is looked up beside the fork's own bind, and neither outlives the deadline."""
    server = fresh_server()
    async with Limpet.connect(server.url) as client:
        await client.resolve("parent", session_id="s")
        loop = asyncio.get_running_loop()
        server.pause()
        try:
            for bind in (None, True):
                start = loop.time()
                turn = await client.resolve("parent", session_id="f", kind="fork", parent_key="parent", bind=bind)
                assert loop.time() - start < DEADLINE_S + SLACK_S / 2
                assert turn.degraded
                assert turn.binding is None
                assert turn.scope == scope.physical("f")
        finally:
            server.resume()


async def test_closing_amid_calls_leaves_nothing_open(fresh_server) -> None:
    """Calls and waits in flight end soon after the close, none hangs, and no connection is opened behind its back."""
    server = fresh_server()
    client = Limpet.connect(server.url)
    await client.open()
    calls = [asyncio.create_task(client.resolve(f"k{n}", session_id="s", bind=True)) for n in range(100)]
    calls += [asyncio.create_task(client.resolve("same", session_id="s", bind={"wait_ms": 20_000})) for _ in range(20)]
    calls += [asyncio.create_task(client.advance(f"k{n}", "new")) for n in range(20)]
    await calls[0]
    await client.close()
    ended = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
    assert {type(each) for each in ended} <= {Resolution, Advanced, StoreUnavailable}
    await client.close()
    with redis.Redis.from_url(server.url) as store:
        assert [each["name"] for each in store.client_list() if each["name"] == "limpet"] == []
