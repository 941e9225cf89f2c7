"""Whoever is cancelled, at whatever moment, leaves no claim behind that others would have to wait for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from limpet import Limpet, StoreUnavailable
from limpet.results import Resolution
from tests.support.servers import Server

MOMENTS = range(0, 48, 3)
"""Turns of the loop after which a call is cancelled: before it is sent, under way, answered, and over."""
WaitFor = Callable[[Callable[[], Awaitable[object]], float, str], Awaitable[None]]


async def cancelled(work: Awaitable[object], moment: int) -> bool:
    """Runs it so far; whether it was cancelled, and not over."""
    task = asyncio.ensure_future(work)
    for _ in range(moment):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return task.cancelled()


async def free(client: Limpet, key: str) -> bool:
    """Whether nobody holds a claim."""
    found = await client.peek(key)
    return found is None or found.binding is None or found.binding.state != "claimed"


@pytest.fixture(params=["plain", "memo", "registry", "durable"])
async def client(request: pytest.FixtureRequest, store_url: str) -> AsyncIterator[Limpet]:
    """A client of each kind: what a turn's way depends on."""
    settings = {"memo": {"memo_ttl_ms": 1000}, "durable": {"durability": "aof"}}.get(request.param, {})
    async with Limpet.connect(store_url, namespace=f"cancelled-{request.param}", **settings) as one:
        if request.param == "registry":
            for name in ("w0", "w1"):
                await one.register(name, pool="p", address=f"http://{name}", ttl_ms=0)
            await one.watch_workers()
        yield one


@pytest.mark.parametrize("known", [False, True], ids=["first-turn", "known-key"])
async def test_a_resolve(client: Limpet, wait_for: WaitFor, known: bool) -> None:
    """The claim that nobody saw is given back."""
    pool = "p" if "registry" in client.namespace else None
    cut = 0
    for moment in MOMENTS:
        key = f"resolve-{known}-{moment}"
        if known:
            await client.resolve(key, session_id="s")
        if await cancelled(client.resolve(key, session_id="s", bind={"claim_ttl_ms": 60_000, "pool": pool}), moment):
            cut += 1
            await wait_for(lambda key=key: free(client, key), 3, "the claim to be given back")
    assert cut


async def test_a_resolve_of_a_session(client: Limpet, wait_for: WaitFor) -> None:
    """A fork's binding is the session's own."""
    cut = 0
    for moment in MOMENTS:
        session = f"session-{moment}"

        async def unclaimed(session: str = session) -> bool:
            found = await client.resolve("k", session_id=session, kind="fork", bind=True)
            assert found.binding is not None
            return found.binding.action == "bind"

        if await cancelled(client.resolve("k", session_id=session, kind="fork", bind={"claim_ttl_ms": 60_000}), moment):
            cut += 1
            await wait_for(unclaimed, 3, "the claim to be given back")
    assert cut


async def test_a_rebind(client: Limpet, wait_for: WaitFor) -> None:
    """It claims, too."""
    cut = 0
    for moment in MOMENTS:
        key = f"rebind-{moment}"
        bound = (await client.resolve(key, session_id="s", bind={"worker": "w0", "commit": True})).binding
        assert bound is not None
        assert bound.fence is not None
        if await cancelled(client.rebind(key, fence=bound.fence, reason="lost", worker="w1", claim_ttl_ms=60_000), moment):
            cut += 1
            await wait_for(lambda key=key: free(client, key), 3, "the claim to be given back")
    assert cut


@pytest.mark.parametrize("body", ["well", "badly"])
async def test_a_turn(client: Limpet, wait_for: WaitFor, body: str) -> None:
    """While it is entered, in its body, and while it is left: confirmed or given back."""

    async def work(key: str) -> None:
        async with client.turn(key, session_id="s", bind={"claim_ttl_ms": 60_000, "worker": "w0"}):
            if body == "badly":
                raise ZeroDivisionError

    cut = 0
    for moment in range(0, 90, 3):
        key = f"turn-{body}-{moment}"
        with contextlib.suppress(ZeroDivisionError):
            cut += await cancelled(work(key), moment)
        await wait_for(lambda key=key: free(client, key), 3, "the claim to be confirmed or given back")
    assert cut


@pytest.mark.default_deadline
@pytest.mark.parametrize("durability", ["none", "aof"])
async def test_answers_that_come_too_late(fresh_server: Callable[..., Server], wait_for: WaitFor, durability: str) -> None:
    """A store that stalls makes the claims of degraded turns all the same, once it goes on; nobody holds them."""
    server = fresh_server()
    async with Limpet.connect(server.url, durability=durability, claim_ttl_ms=60_000) as client:
        bound = (await client.resolve("bound", session_id="s", bind={"worker": "w0", "commit": True})).binding
        assert bound is not None
        assert bound.fence is not None
        for n in range(4):
            await client.resolve(f"known-{n}", session_id="s")
        keys = [f"{kind}-{n}" for kind in ("new", "known") for n in range(4)]
        server.pause()
        try:
            turns = await asyncio.gather(*(client.resolve(key, session_id="s", bind=True) for key in keys))
            assert all(turn.degraded for turn in turns)
            with pytest.raises(StoreUnavailable):
                await client.rebind("bound", fence=bound.fence, reason="lost", worker="w1")
        finally:
            server.resume()
        for key in (*keys, "bound"):
            await wait_for(lambda key=key: returned(client, key), 10, f"the claim of {key} to be given back")


async def returned(client: Limpet, key: str) -> bool:
    """Whether the next turn is told to bind, or need not; a store that is just back may degrade it."""
    found = await client.resolve(key, session_id="other", bind=True)
    return found.binding is not None and found.binding.action in ("bind", "continue")


async def test_an_id_of_the_caller_s_own(store_url: str) -> None:
    """What becomes of its claim is for the retry to say, which may be under way already."""
    async with Limpet.connect(store_url, namespace="cancelled-own") as client:
        for moment in MOMENTS:
            key = f"own-{moment}"
            await cancelled(client.resolve(key, session_id="s", bind=True, request_id="r"), moment)
            again = await client.resolve(key, session_id="s", bind=True, request_id="r")
            assert isinstance(again, Resolution)
            assert again.binding is not None
            assert again.binding.action == "bind"
            assert (await client.confirm(key, fence=again.binding.fence or 0)).state == "bound"


async def test_a_client_that_is_closed_next(store_url: str, wait_for: WaitFor) -> None:
    """Leaving waits for what is given back."""
    async with Limpet.connect(store_url, namespace="cancelled-closed") as other:
        for moment in MOMENTS:
            key = f"closed-{moment}"
            async with Limpet.connect(store_url, namespace="cancelled-closed") as client:
                done = not await cancelled(client.resolve(key, session_id="s", bind={"claim_ttl_ms": 60_000}), moment)
            assert done or await free(other, key)
