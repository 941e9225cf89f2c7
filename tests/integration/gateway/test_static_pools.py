"""The gateway's upstreams as workers of the registry: registered, drained, checked, ejected, agreed about by several gateways."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from limpet import Limpet
from limpet.workers import Worker
from tests.integration.gateway.conftest import Running, Start
from tests.integration.gateway.upstream import Request, Upstream, answer
from tests.support.servers import wait_until_async

Ups = Callable[..., Awaitable[list[Upstream]]]
FAST = {"health_interval_s": 0.05, "health_timeout_s": 0.5, "eject_s": 0.2, "eject_max_s": 0.5, "health_down_after": 2}


async def registered(limpet: Limpet, *ups: Upstream, state: str = "live") -> dict[str, Worker]:
    """The registry, once it holds just these upstreams in one state."""
    found: dict[str, Worker] = {}

    async def there() -> bool:
        found.clear()
        found.update({worker.worker: worker for worker in await limpet.workers()})
        return {worker.address for worker in found.values() if worker.state == state} == {up.url for up in ups}

    await wait_until_async(there, 10, f"{len(ups)} registered upstreams in the state {state}")
    return found


async def readyz(gateway: Running) -> Any:
    return (await gateway.http.get("/readyz")).json()


async def seen(gateway: Running, **counts: Any) -> None:
    """Until the gateway says so of its upstreams."""

    async def so() -> bool:
        return (await readyz(gateway))["upstreams"].items() >= counts.items()

    await wait_until_async(so, 10, str(counts))


async def served_by(gateway: Running, key: str, ups: list[Upstream]) -> Upstream:
    """One turn, and who served it."""
    before = [len(up.requests) for up in ups]
    response = await gateway.chat(key)
    assert response.status_code == 200, response.text
    (only,) = [up for up, count in zip(ups, before, strict=True) if len(up.requests) > count]
    return only


async def bound_to(gateway: Running, up: Upstream, ups: list[Upstream]) -> str:
    """A conversation that is bound to this upstream."""
    for number in range(200):
        key = f"conversation {up.name} {number}"
        if await served_by(gateway, key, ups) is up:
            return key
    raise AssertionError("no conversation was placed there")


async def fail(request: Request, writer: Any) -> None:
    writer.write(answer(500, b"{}"))


async def test_upstreams_register_themselves(gateway: Start, upstreams: Ups, limpet: Limpet) -> None:
    """Two gateways with the same upstreams say the same: one worker each, never a new one, whoever says it again."""
    ups = await upstreams(2)
    one = await gateway(*ups, upstreams=(f"{ups[0].url};capacity=3", ups[1].url))
    await one.chat()
    first = await registered(limpet, *ups)
    assert sorted(worker.capacity for worker in first.values()) == [1, 3]
    assert {(worker.pool, worker.incarnation) for worker in first.values()} == {("upstreams", "")}
    two = await gateway(*ups, upstreams=(f"{ups[0].url};capacity=3", ups[1].url))
    await two.chat()
    again = await registered(limpet, *ups)
    assert {name: worker.since_ms for name, worker in again.items()} == {name: worker.since_ms for name, worker in first.items()}
    await one.stop()  # what it says of its upstreams outlives it: another gateway may serve them
    assert len(await registered(limpet, *ups)) == 2
    one.stop = _nothing  # type: ignore[method-assign]  # the fixture would do it again


async def _nothing() -> None:
    return


async def test_routers_are_no_workers(gateway: Start, upstreams: Ups, limpet: Limpet) -> None:
    """The upstreams of a Dynamo profile choose workers themselves, so they are none."""
    ups = await upstreams(2)
    running = await gateway(*ups, profile="dynamo")
    await running.chat()
    assert await limpet.workers() == []


async def test_a_drained_upstream_stays_drained(gateway: Start, upstreams: Ups, limpet: Limpet) -> None:
    """No new conversation, those that were there move in their next turn, and no registration of any gateway undoes it."""
    ups = await upstreams(2)
    running = await gateway(*ups)
    key = await bound_to(running, ups[0], ups)
    fence = (await limpet.peek(key)).binding.fence  # type: ignore[union-attr]
    workers = await registered(limpet, *ups)
    name = next(worker.worker for worker in workers.values() if worker.address == ups[0].url)
    async for _ in limpet.drain(name):
        pass
    await seen(running, draining=1)
    assert await served_by(running, key, ups) is ups[1]
    assert (await limpet.peek(key)).binding.fence > fence  # type: ignore[union-attr, operator]
    other = await gateway(*ups)
    await seen(other, draining=1)
    assert {await served_by(other, f"fresh {number}", ups) for number in range(20)} == {ups[1]}
    assert (await registered(limpet, ups[0], state="draining"))[name].state == "draining"
    await limpet.undrain(name)
    await seen(other, draining=0)
    assert {await served_by(other, f"later {number}", ups) for number in range(40)} == set(ups)
    assert await served_by(running, key, ups) is ups[1]  # AIBrix #2772: the repin holds


async def test_all_drained(gateway: Start, upstreams: Ups, limpet: Limpet) -> None:
    """503 with a code that says what to do: an operator's word is not overruled."""
    (up,) = await upstreams(1)
    running = await gateway(up)
    await running.chat()
    (worker,) = await registered(limpet, up)
    await limpet.mark_draining(worker)
    await seen(running, draining=1)
    response = await running.chat("new")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "upstreams_drained")
    assert (await running.http.get("/readyz")).status_code == 503


async def test_active_checks(gateway: Start, upstreams: Ups, limpet: Limpet) -> None:
    """An upstream whose health page fails is left, once and with a larger fence; it comes back, and what moved stays (LiteLLM
    #36146, AIBrix #2772)."""
    ups = await upstreams(2)
    running = await gateway(*ups, **FAST)
    key = await bound_to(running, ups[0], ups)
    fence = (await limpet.peek(key)).binding.fence  # type: ignore[union-attr]
    ups[0].health = 503
    await seen(running, unhealthy=1, healthy=1)
    assert {await served_by(running, f"fresh {number}", ups) for number in range(20)} == {ups[1]}
    assert await served_by(running, key, ups) is ups[1]
    moved = (await limpet.peek(key)).binding  # type: ignore[union-attr]
    assert (moved.worker, moved.fence > fence) == (ups[1].url, True)  # type: ignore[union-attr, operator]
    assert await served_by(running, key, ups) is ups[1]
    assert (await limpet.peek(key)).binding.fence == moved.fence  # type: ignore[union-attr]
    ups[0].health = 200
    await seen(running, healthy=2)
    assert await served_by(running, key, ups) is ups[1]
    metrics = (await running.http.get("/metrics")).text
    assert f'limpet_gateway_upstream_healthy{{upstream="{ups[0].url}"}} 1.0' in metrics
    assert 'limpet_gateway_rebinds_total{reason="unhealthy"} 1.0' in metrics


async def test_a_check_that_is_never_answered(gateway: Start, upstreams: Ups) -> None:
    """Silence is a failed check; the checks of others go on meanwhile."""
    ups = await upstreams(2)
    ups[0].health = None
    running = await gateway(*ups, **{**FAST, "health_timeout_s": 0.1})
    await running.chat()
    await seen(running, unhealthy=1, healthy=1)
    assert ups[1].checks > 2


async def test_nobody_listens(gateway: Start, upstreams: Ups) -> None:
    """A refused connection ejects at once: that very turn is served elsewhere, and the next ones do not try."""
    ups = await upstreams(2)
    running = await gateway(*ups, health_interval_s=0)
    key = await bound_to(running, ups[0], ups)
    await ups[0].stop()
    assert await served_by(running, key, ups) is ups[1]
    assert (await readyz(running))["upstreams"]["ejected"] == 1
    metrics = (await running.http.get("/metrics")).text
    assert 'limpet_gateway_ejections_total{reason="unreachable"} 1.0' in metrics


async def test_passive_ejection(gateway: Start, upstreams: Ups) -> None:
    """So many failures in a row eject, though the health page is fine; the ejection ends by itself."""
    ups = await upstreams(2)
    running = await gateway(*ups, **{**FAST, "eject_after": 2, "eject_s": 0.3})
    key = await bound_to(running, ups[0], ups)
    ups[0].behave = fail
    for _ in range(2):
        assert (await running.chat(key)).status_code == 500
    assert (await readyz(running))["upstreams"]["ejected"] == 1
    assert await served_by(running, key, ups) is ups[1]
    ups[0].behave = ups[0].serve
    await seen(running, healthy=2)


async def test_none_is_healthy(gateway: Start, upstreams: Ups) -> None:
    """Panic: all are used rather than none, and it is told; a conversation stays where it is bound."""
    ups = await upstreams(2)
    running = await gateway(*ups, **FAST)
    key = await bound_to(running, ups[0], ups)
    for up in ups:
        up.health = 500
    await seen(running, unhealthy=2, panic=True)
    assert await served_by(running, key, ups) is ups[0]
    ready = await running.http.get("/readyz")
    assert (ready.status_code, ready.json()["upstreams"]["panic"]) == (200, True)
    assert "limpet_gateway_panic 1.0" in (await running.http.get("/metrics")).text


async def test_gateways_of_two_minds(gateway: Start, upstreams: Ups, limpet: Limpet) -> None:
    """One gateway cannot use A, the other cannot use B: the conversation is not moved to and fro with every turn."""
    ups = await upstreams(2)
    one = await gateway(*ups, health_interval_s=0, memo_ttl_ms=0)
    two = await gateway(*ups, health_interval_s=0, memo_ttl_ms=0)
    key = await bound_to(one, ups[0], ups)
    for running, up in ((one, ups[0]), (two, ups[1])):
        for _ in range(10):
            running.parts.app._shared.vitals.checked(up.url, good=False)
    fences = set()
    for _ in range(6):
        assert await served_by(one, key, ups) is ups[1]
        fences.add((await limpet.peek(key)).binding.fence)  # type: ignore[union-attr]
        assert await served_by(two, key, ups) is ups[0]
        fences.add((await limpet.peek(key)).binding.fence)  # type: ignore[union-attr]
    assert len(fences) <= 3  # one moves it, the other moves it back once at most, and then both serve beside it
    assert "limpet_gateway_detours_total" in (await one.http.get("/metrics")).text


async def test_a_pool_without_upstreams(gateway: Start, upstreams: Ups, limpet: Limpet) -> None:
    """LIMPET_POOL: the workers that registered themselves are sent to, at their addresses; one that comes later too."""
    ups = await upstreams(3)
    for name, up in zip(("gpu-1", "gpu-2"), ups, strict=False):
        await limpet.register(name, pool="gpus", address=up.url, incarnation="boot-1", ttl_ms=0)
    running = await gateway(upstreams=(), pool="gpus", profile="vllm")
    served = {await served_by(running, f"c{number}", ups) for number in range(20)}
    assert served == {ups[0], ups[1]}
    key = await bound_to(running, ups[0], ups)
    assert (await limpet.peek(key)).binding.worker == "gpu-1"  # type: ignore[union-attr]
    await limpet.register("gpu-3", pool="gpus", address=ups[2].url, ttl_ms=0)
    await seen(running, all=3)
    await limpet.remove_worker("gpu-1")
    await seen(running, all=2)
    assert await served_by(running, key, ups) in (ups[1], ups[2])


async def test_a_pool_that_is_empty(gateway: Start) -> None:
    """502 that names the pool, and not ready."""
    running = await gateway(upstreams=(), pool="nobody", profile="vllm")
    response = await running.chat()
    assert response.status_code == 502
    assert "nobody" in response.json()["error"]["message"]
    assert (await running.http.get("/readyz")).status_code == 503


@pytest.mark.parametrize("address", ["", "not a url", "ftp://x", "http://user:secret@127.0.0.1:1"])
async def test_addresses_of_a_pool(gateway: Start, upstreams: Ups, limpet: Limpet, address: str) -> None:
    """A worker whose address cannot be sent to is passed over, and no credential in one reaches a metric."""
    (up,) = await upstreams(1)
    await limpet.register("good", pool="gpus", address=up.url, ttl_ms=0)
    await limpet.register("bad", pool="gpus", address=address, ttl_ms=0)
    running = await gateway(upstreams=(), pool="gpus", profile="vllm", **FAST)
    for number in range(5):
        assert (await running.chat(f"c{number}")).status_code == 200
    assert "secret" not in (await running.http.get("/metrics")).text
