"""A reply lost in the network: the call is retried within its deadline, and never means two advances or two claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from limpet import StoreUnavailable
from limpet.scripts import script

from .proxy import Proxy
from .rig import Server, until
from .test_failover import first_answer


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    """In front of the server."""
    async with Proxy(server.port) as made:
        yield made


def lose(proxy: Proxy, name: str, times: int = 1) -> None:
    """Loses the replies of the next calls of a script."""
    proxy.lose_reply(script(name).sha.encode(), times)


async def opened(proxy: Proxy, connect: Any, **settings: Any) -> Any:
    """A client behind the proxy, with its scripts loaded."""
    client = await connect(f"redis://127.0.0.1:{proxy.port}", deadline_ms=2000, **settings)
    await client.resolve("warm", session_id="s", bind=True)
    await client.advance("warm", "new")
    return client


@pytest.mark.parametrize("durability", ["none", "aof"])
async def test_an_advance_is_applied_once(proxy: Proxy, connect, durability: str) -> None:
    """Two replies lost in a row: the caller sees one advance, and the ordinal says that there was one."""
    client = await opened(proxy, connect, durability=durability)
    turn = await client.resolve("k", session_id="s")
    lose(proxy, "conversation_advance", 2)
    advanced = await client.advance("k", "new")
    assert proxy.lost == 2
    assert advanced.applied
    assert advanced.previous_epoch == turn.epoch
    assert advanced.ordinal == 2
    assert (await client.peek("k")).ordinal == 2


@pytest.mark.parametrize("durability", ["none", "aof"])
async def test_a_claim_is_given_once(proxy: Proxy, connect, durability: str) -> None:
    """The retry of a first turn is told ``bind`` again, with the same fence and ``created`` still reported; not ``wait``."""
    client = await opened(proxy, connect, durability=durability)
    lose(proxy, "conversation_resolve")
    turn = await client.resolve("k", session_id="s", bind=True)
    assert proxy.lost == 1
    assert turn.created
    assert turn.binding.action == "bind"
    record = await client.peek("k")
    assert record.binding.fence == turn.binding.fence
    assert (record.epoch, record.ordinal) == (turn.epoch, 1)


async def test_a_reset_is_reported_and_made_once(proxy: Proxy, connect) -> None:
    """A suspended conversation whose resetting turn's reply was lost resets once, and the retry still reports it."""
    client = await opened(proxy, connect)
    turn = await client.resolve("k", session_id="s")
    await client.suspend("k")
    lose(proxy, "conversation_resolve")
    after = await client.resolve("k", session_id="s")
    assert proxy.lost == 1
    assert (after.reset.reason, after.reset.previous_epoch, after.ordinal) == ("suspended", turn.epoch, 2)
    assert (await client.peek("k")).ordinal == 2


async def test_every_binding_call(proxy: Proxy, connect) -> None:
    """confirm, renew, rebind, abort, release, suspend and forget answer a retry as they would have answered the first time."""
    client = await opened(proxy, connect)
    turn = await client.resolve("k", session_id="s", bind=True)
    fence = turn.binding.fence
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("binding_confirm", lambda: client.confirm("k", fence=fence, worker="w")),
        ("binding_renew", lambda: client.renew("k", fence=fence)),
        ("binding_rebind", lambda: client.rebind("k", fence=fence, reason="lost", worker="w2")),
    ]
    for lost, (name, call) in enumerate(calls, 1):
        lose(proxy, name)
        answer = await call()
        assert proxy.lost == lost
        assert answer.fence >= fence
    assert answer.fence > fence
    assert answer.action == "bind"
    lose(proxy, "binding_abort")
    await client.abort("k", fence=answer.fence)
    again = await client.resolve("k", session_id="s", bind={"worker": "w", "commit": True})
    lose(proxy, "binding_release")
    await client.release("k", fence=again.binding.fence)
    lose(proxy, "conversation_suspend")
    assert (await client.suspend("k")).applied
    lose(proxy, "conversation_forget")
    assert (await client.forget("k")).applied
    assert proxy.lost == 7
    assert await client.peek("k") is None


async def test_hundreds_in_one_connection(proxy: Proxy, connect) -> None:
    """The connection is lost under two hundred advances at once: each is applied exactly once."""
    client = await opened(proxy, connect)
    keys = [f"k{i}" for i in range(200)]
    await asyncio.gather(*(client.resolve(key, session_id="s") for key in keys))
    lose(proxy, "conversation_advance", 1)
    advanced = await asyncio.gather(*(client.advance(key, "new") for key in keys))
    assert proxy.lost == 1
    assert {each.ordinal for each in advanced} == {2}
    assert {(await client.peek(key)).ordinal for key in keys} == {2}


async def test_the_deadline_bounds_the_retries(proxy: Proxy, connect) -> None:
    """While every reply is lost the call ends within its deadline, and the caller's own retry, under the same request id, finds
    what has happened."""
    client = await connect(f"redis://127.0.0.1:{proxy.port}", deadline_ms=250)
    await client.resolve("k", session_id="s")
    await client.advance("warm", "new")
    loop = asyncio.get_running_loop()
    lose(proxy, "conversation_advance", 1000)
    start = loop.time()
    with pytest.raises(StoreUnavailable):
        await client.advance("k", "new", request_id="r1")
    assert loop.time() - start < 0.45
    assert 1 <= proxy.lost < 20  # with pauses between them
    lose(proxy, "conversation_advance", 0)
    advanced = await client.advance("k", "new", request_id="r1")
    assert advanced.applied
    assert (await client.peek("k")).ordinal == 2


async def test_a_restart_within_the_deadline_is_not_noticed(tmp_path, server: Server, connect) -> None:
    """A server that is back within the deadline costs a pause, not an error: refused connections are tried again."""
    client = await connect(f"redis://127.0.0.1:{server.port}", deadline_ms=5000)
    await client.resolve("k", session_id="s")
    server.kill()
    call = asyncio.create_task(client.advance("k", "new"))
    await asyncio.sleep(0)
    await asyncio.to_thread(server.start)
    advanced = await call
    assert advanced.applied
    assert until(lambda: server.do("PING"))


async def test_an_address_that_comes_to_mean_a_replica(tmp_path, server: Server, connect) -> None:
    """A name that moves from a demoted primary to the new one (DNS, a virtual address): the replica is left at once, and is never
    read."""
    other = Server(tmp_path / "other", "--appendonly", "no", "--repl-diskless-sync-delay", "0").start()
    try:
        async with Proxy(server.port) as proxy:
            client = await connect(f"redis://127.0.0.1:{proxy.port}", deadline_ms=500, durability="none")
            await client.resolve("k", session_id="s")
            other.do("REPLICAOF", "127.0.0.1", server.port)
            until(lambda: other.info("replication")["master_link_status"] == "up")
            other.do("REPLICAOF", "NO", "ONE")
            server.do("REPLICAOF", "127.0.0.1", other.port)
            with pytest.raises(StoreUnavailable, match="replica"):
                await client.advance("k", "new")
            assert (await client.resolve("k", session_id="s")).degraded
            proxy.point(other.port)
            await first_answer(client, "k")
            assert (await client.resolve("k", session_id="s")).ordinal == 1
    finally:
        other.kill()
