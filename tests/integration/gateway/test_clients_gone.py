"""A client that goes away leaves no claim held, whatever its request was at, and whatever else goes wrong meanwhile."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from typing import Any

import pytest
import redis.asyncio

from limpet import Limpet
from limpet.gateway.exchange import Exchange
from limpet.gateway.lease import Lease
from tests.integration.gateway.conftest import Running, Start
from tests.integration.gateway.upstream import Request, Upstream, answer

BODY = b'{"model":"m","messages":[]}'


async def ask(gate: Running, key: str) -> asyncio.StreamWriter:
    """Sends a turn and reads nothing."""
    _, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-limpet-key: {key}\r\ncontent-type: application/json\r\n"
    writer.write(head.encode() + b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY))
    return writer


async def free(limpet: Limpet, key: str) -> bool:
    """Whether nobody holds a claim."""
    found = await limpet.peek(key)
    return found is None or found.binding is None or found.binding.state != "claimed"


async def never(request: Request, writer: asyncio.StreamWriter) -> None:
    """No answer, as long as the gateway stays."""
    await request.gone.wait()


async def reset(request: Request, writer: asyncio.StreamWriter) -> None:
    """A connection that breaks."""
    writer.transport.abort()


async def refused(request: Request, writer: asyncio.StreamWriter) -> None:
    """A worker that says that it is lost, so that the turn is bound to another."""
    writer.write(answer(503, b"{}"))


def told(monkeypatch: pytest.MonkeyPatch, where: type, name: str) -> asyncio.Event:
    """An event that says that a method was called."""
    event, method = asyncio.Event(), getattr(where, name)

    async def call(*args: Any, **options: Any) -> Any:
        event.set()
        return await method(*args, **options)

    monkeypatch.setattr(where, name, call)
    return event


@pytest.mark.parametrize("behave", [None, never, reset, refused], ids=["well", "never", "reset", "lost"])
async def test_at_any_moment(
    gateway: Start, upstreams: Any, limpet: Limpet, wait_for: Any, behave: Callable[..., Any] | None
) -> None:
    """From before its request is read to after it was answered, in turns of the loop."""
    ups: list[Upstream] = await upstreams(2)
    gate = await gateway(*ups, claim_ttl_ms=60_000)
    await gate.chat("warm")
    for up in ups:
        up.behave = behave or up.behave
    for moment in range(0, 150, 6):
        key = f"gone-{moment}"
        writer = await ask(gate, key)
        for _ in range(moment):
            await asyncio.sleep(0)
        writer.transport.abort()
        await wait_for(lambda key=key: free(limpet, key), 5, f"the claim to be given back, {moment}")


async def test_while_the_store_resolves(
    gateway: Start, upstreams: Any, limpet: Limpet, store_url: str, wait_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is made after its client has left."""
    (up,) = await upstreams(1)
    gate = await gateway(up, claim_ttl_ms=60_000)
    await gate.chat("warm")
    admin = redis.asyncio.Redis.from_url(store_url)
    await admin.execute_command("CLIENT", "PAUSE", 400, "ALL")
    resolving, leaving = told(monkeypatch, Exchange, "_resolve"), told(monkeypatch, Exchange, "_give_back")
    writer = await ask(gate, "k")
    await asyncio.wait_for(resolving.wait(), 5)
    writer.transport.abort()
    await asyncio.wait_for(leaving.wait(), 5)
    await claimed_by_nobody(limpet, wait_for)
    await admin.aclose()


async def test_while_the_store_rebinds(
    gateway: Start, upstreams: Any, limpet: Limpet, store_url: str, wait_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for the claim on another worker, as the first is lost."""
    ups: list[Upstream] = await upstreams(2)
    gate = await gateway(*ups, claim_ttl_ms=60_000)
    await gate.chat("k")
    admin = redis.asyncio.Redis.from_url(store_url)
    await admin.ping()

    async def lost(request: Request, writer: asyncio.StreamWriter) -> None:
        await admin.execute_command("CLIENT", "PAUSE", 400, "ALL")
        writer.write(answer(503, b"{}"))

    for up in ups:
        up.behave = lost
    rebinding, leaving = told(monkeypatch, Lease, "rebind"), told(monkeypatch, Exchange, "_give_back")
    writer = await ask(gate, "k")
    await asyncio.wait_for(rebinding.wait(), 5)
    writer.transport.abort()
    await asyncio.wait_for(leaving.wait(), 5)
    await claimed_by_nobody(limpet, wait_for)
    await admin.aclose()


async def claimed_by_nobody(limpet: Limpet, wait_for: Any) -> None:
    """The store is back, and the next turn need not wait."""

    async def next_turn() -> bool:
        found = await limpet.resolve("k", session_id="other", bind=True)
        return found.binding is not None and found.binding.action in ("bind", "continue")

    await wait_for(next_turn, 5, "the claim to be given back")


async def test_while_its_claim_is_given_back(
    gateway: Start, upstreams: Any, limpet: Limpet, store_url: str, wait_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upstream breaks off while a renewal waits for the store; then the client leaves, too. Nothing is renewed afterwards."""
    loop, unhandled = asyncio.get_running_loop(), list[Any]()
    loop.set_exception_handler(lambda _, context: unhandled.append(context))
    (up,) = await upstreams(1)
    broken = asyncio.Event()
    renewing, giving_back = told(monkeypatch, Lease, "_renew"), told(monkeypatch, Exchange, "_give_back")

    async def behave(request: Request, writer: asyncio.StreamWriter) -> None:
        await broken.wait()
        writer.transport.abort()

    up.behave = behave
    gate = await gateway(up, claim_ttl_ms=1200)  # renewed after 0.4 s
    admin = redis.asyncio.Redis.from_url(store_url)
    writer = await ask(gate, "k")
    await up.arrived(1)
    await admin.execute_command("CLIENT", "PAUSE", 1000, "ALL")
    await asyncio.wait_for(renewing.wait(), 5)
    broken.set()
    await asyncio.wait_for(giving_back.wait(), 5)
    writer.transport.abort()
    await wait_for(lambda: free(limpet, "k"), 5, "the claim to be given back")
    assert unhandled == []
    await admin.aclose()


async def test_forks_are_conversations_of_their_own(gateway: Start, upstreams: Any, limpet: Limpet) -> None:
    """Forks of one key on two workers: one of those dies, and its forks are bound anew in their next turn."""
    ups: list[Upstream] = await upstreams(2)
    gates = [await gateway(*ups, health_interval_s=0) for _ in range(2)]
    forks = [f"f{n}" for n in range(12)]

    async def turn(gate: Running, fork: str) -> None:
        got = await gate.chat("k", headers={"X-Limpet-Kind": "fork", "X-Limpet-Session-ID": fork})
        assert got.status_code == 200

    async def bound() -> dict[str, str | None]:
        found = [await limpet.resolve("k", session_id=fork, kind="fork", bind=True) for fork in forks]
        return {each.session_id: each.binding.worker for each in found if each.binding is not None}

    for gate in gates:
        for fork in forks:
            await turn(gate, fork)
    before = await bound()
    assert len(collections.Counter(before.values())) == 2
    dead = ups[0]
    await dead.stop()
    lost = [fork for fork, worker in before.items() if worker == dead.url]
    for fork in lost:
        await turn(gates[1], fork)
    after = await bound()
    assert [fork for fork in lost if after[fork] == dead.url] == []
