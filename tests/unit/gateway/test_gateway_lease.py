"""A turn's hold on its binding when the store is away, or another replica was faster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from limpet.errors import StaleFence, StoreUnavailable
from limpet.gateway.lease import Lease
from limpet.results import Binding, Resolution

CLAIM = Binding("bind", "claimed", "w1", fence=7, expires_in_ms=90)
BOUND = Binding("continue", "bound", "w1", fence=7, expires_in_ms=90)
AWAY, STALE = StoreUnavailable("away"), StaleFence("stale", binding=None)


class Scripted:
    """Answers each call with what the test scripted for it, in turn; the last answer repeats."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.called = asyncio.Event()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(**options: Any) -> Any:
            self.calls.append((name, options))
            self.called.set()
            script = self.answers[name]
            answer = script.pop(0) if len(script) > 1 else script[0]
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return call

    async def count(self, name: str, count: int) -> None:
        """Until a call was made so often."""
        async with asyncio.timeout(5):
            while sum(each == name for each, _ in self.calls) < count:
                self.called.clear()
                await self.called.wait()


def lease(client: Scripted, binding: Binding | None, *, source: Any = "declared", again: Resolution | None = None) -> Lease:
    """A lease of key ``k``, session ``s``."""
    resolution = Resolution("k" if source == "declared" else None, "s", 5, 1, "gwk_1", source, binding=binding)

    async def resolve() -> Resolution:
        assert again is not None
        return again

    return Lease(client, resolution, resolve)  # type: ignore[arg-type]


async def test_renews_until_stopped() -> None:
    """Three times per ttl; a store that is away for once is asked again sooner; after stop no more."""
    client = Scripted(renew=[CLAIM, AWAY, CLAIM])
    held = lease(client, CLAIM)
    held.start()
    await client.count("renew", 4)
    held.stop()
    await held.settle()
    assert client.calls[0][1] == {"key": "k", "session_id": None, "fence": 7}
    assert held.claimed


@pytest.mark.parametrize("then", ["stop", "abort", "confirm"])
async def test_a_renewal_under_way_as_it_ends_is_the_last(then: str) -> None:
    """However it ends: the binding of a request that is over must be able to lapse."""
    answered = asyncio.Event()

    class Slow(Scripted):
        async def renew(self, **options: Any) -> Binding:
            self.calls.append(("renew", options))
            self.called.set()
            await answered.wait()
            return CLAIM

    client = Slow(abort=[CLAIM], confirm=[BOUND])
    held = lease(client, CLAIM)
    held.start()
    await client.count("renew", 1)
    if then == "confirm":
        held.spawn(held.confirm())
    elif then == "abort":
        await held.abort("failed")
    if then != "abort":
        assert held.stop()
    answered.set()
    await held.settle()
    assert held._timer is None


async def test_a_stale_renewal_ends_it() -> None:
    """Whoever lost the binding renews no more, and confirms and gives back nothing."""
    client = Scripted(renew=[STALE])
    held = lease(client, CLAIM, source="physical")
    held.start()
    await client.count("renew", 1)
    await held.settle()
    await held.confirm("w2")
    await held.abort("failed")
    await held.release()
    assert held.lost
    assert client.calls == [("renew", {"key": None, "session_id": "s", "fence": 7})]


@pytest.mark.parametrize("error", [AWAY, STALE])
async def test_failed_writes_fail_no_request(error: Exception) -> None:
    """Confirm, abort and release never raise for the store's sake."""
    client = Scripted(confirm=[error], abort=[error], release=[error])
    await lease(client, CLAIM).confirm("w2", 1)
    await lease(client, CLAIM).abort("failed")
    await lease(client, BOUND).release()
    assert [name for name, _ in client.calls] == ["confirm", "abort", "release"]


async def test_confirm_keeps_what_is_known() -> None:
    """A confirmed rebind is still one: its session header keeps the fence's suffix."""
    client = Scripted(confirm=[BOUND], rebind=[Binding("bind", "claimed", "w2", fence=9, rebound=True)])
    held = lease(client, BOUND)
    assert await held.rebind("lost_worker", "w2")
    await held.confirm("w2")
    held.stop()
    assert held.binding is not None
    assert (held.binding.state, held.binding.rebound) == ("bound", True)


async def test_rebind_follows_the_winner() -> None:
    """Who comes too late takes what the winner has."""
    winner = Binding("continue", "bound", "w3", fence=11)
    again = Resolution("k", "s", 5, 1, "gwk_1", "declared", binding=winner)
    held = lease(Scripted(rebind=[STALE]), BOUND, again=again)
    assert await held.rebind("lost_worker", "w2")
    assert held.binding == winner


async def test_rebind_without_a_store_or_a_hold() -> None:
    """Then nothing is bound: no confirm follows."""
    client = Scripted(rebind=[AWAY])
    held = lease(client, BOUND)
    assert not await held.rebind("lost_worker", "w2")
    await held.confirm("w2")
    waiting = lease(client, Binding("wait", "claimed", "w1", fence=7))
    assert not await waiting.rebind("lost_worker", "w2")
    assert not await lease(client, None).rebind("lost_worker", "w2")
    assert len(client.calls) == 1


async def test_work_beside_the_stream_may_fail() -> None:
    """It is logged; the stream goes on."""
    held = lease(Scripted(), None)

    async def fail(error: Exception) -> None:
        raise error

    held.spawn(fail(AWAY))
    held.spawn(fail(ValueError("a surprise")))
    assert held.stop()
    await held.settle()
    assert not held.stop()
