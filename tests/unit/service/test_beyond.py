"""Parts of the service beside the hot routes, one by one: quota, feed, janitor, the writer of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from limpet.clock import SystemClock
from limpet.errors import StoreUnavailable
from limpet.events import Event
from limpet.metrics import Metrics
from limpet.service import events, feed
from limpet.service.clients import Clients, Entry
from limpet.service.feed import Feed, Feeds, Heard, told
from limpet.service.janitor import Janitor
from limpet.service.quota import OverQuota, Quota
from limpet.service.stats import Stats
from tests.support.servers import wait_until_async

CLOCK = SystemClock()


class Source:
    """A client whose events the test says."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[Event | None] = asyncio.Queue()
        self.pruned = 0
        self.error: Exception | None = None

    async def events(self) -> AsyncGenerator[Event, None]:
        while (event := await self.said.get()) is not None:
            yield event

    async def prune(self) -> int:
        if self.error:
            raise self.error
        self.pruned += 1
        return 3

    async def close(self) -> None:
        """Nothing."""


def advance(digest: str, epoch: int = 7) -> Event:
    return Event("advance", "conv", digest, epoch, 0, "", "new")


async def until(condition: Callable[[], object]) -> None:
    """Until it holds."""

    async def holds() -> object:
        return condition()

    await wait_until_async(holds, 5, "a condition")


async def heard(one: Feed, number: int) -> None:
    """Until the feed has heard so many."""
    assert await one.wait(number - 1, 5)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
async def one(source: Source) -> Any:
    """A feed."""
    made = Feed(Entry("default", source), CLOCK.now, CLOCK.monotonic)  # type: ignore[arg-type]
    yield made
    await made.close()


def test_a_bucket() -> None:
    """Burst at once, then the rate; a refused request costs nothing; debts are paid first; a namespace affects no other."""
    now = 0.0
    quota = Quota(10, 5, lambda: now)
    for _ in range(5):
        quota.take("a")
    with pytest.raises(OverQuota) as refused:
        quota.take("a")
    assert (refused.value.code, refused.value.status) == ("quota_exceeded", 429)
    assert refused.value.headers == ((b"retry-after", b"1"),)
    quota.take("b")
    now += 0.1
    quota.take("a")
    quota.charge("a", 30)
    now += 3.0
    with pytest.raises(OverQuota):
        quota.take("a")
    now += 0.2
    quota.take("a")
    now += 3600
    for _ in range(5):
        quota.take("a")
    with pytest.raises(OverQuota):
        quota.take("a")


def test_buckets_are_bounded() -> None:
    """However many namespaces are named."""
    quota = Quota(1, 0, lambda: 0.0)
    for number in range(5000):
        quota.take(f"n{number}")
    assert len(quota) == 4096


async def test_a_feed_is_bounded(one: Feed, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of events, a few of each record, a bounded number of records; it knows what it has lost."""
    monkeypatch.setattr(feed, "RECORDS", 50)
    for number in range(feed.WINDOW + 100):
        source.said.put_nowait(advance(f"{number % 60}"))
    await heard(one, feed.WINDOW + 100)
    assert not one.knows(99)
    assert one.knows(100)
    assert one.knows(one.newest)
    assert not one.knows(one.newest + 1)
    assert [each.number for each in one.after(one.newest - 2)] == [one.newest - 1, one.newest]
    assert len(one.after(100)) == feed.WINDOW
    assert one.history("conv:0") == []
    assert 0 < len(one.history("conv:55")) <= feed.PER_RECORD


def test_what_is_told() -> None:
    """Only what a kind has; a drain's figures by their names."""
    drain = told(Heard(1, 5, Event("drain", "work", "", 10, 2, "w0", "0.250")))
    assert (drain.moved, drain.left, drain.done, drain.may_stop, drain.epoch) == (10, 2, 0.25, False, None)
    assert told(Heard(1, 5, Event("drain", "work", "", 10, 0, "w0", "may_stop"))).may_stop
    assert told(Heard(1, 5, Event("drain", "work", "", 10, 0, "w0", "?"))).done == 0
    worker = told(Heard(1, 5, Event("worker", "work", "", 0, 9, "w0", "undrain")))
    assert (worker.worker, worker.reason, worker.fence) == ("w0", "undrain", None)


class Out:
    """What an ASGI application sends; stuck when told so."""

    def __init__(self) -> None:
        self.text = ""
        self.stuck = False
        self.aborted = False

    async def __call__(self, message: Any) -> None:
        if self.stuck:
            await asyncio.Event().wait()
        self.text += message["body"].decode()

    def abort(self) -> None:
        self.aborted = True


async def test_a_stuck_reader_is_cut_off(one: Feed, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time, whatever the connection says."""
    monkeypatch.setattr(events, "PATIENCE_S", 0.05)
    out = Out()
    out.stuck = True
    async with asyncio.timeout(5):
        await events._write(one, "", None, out, out.abort)
    assert out.aborted


async def test_an_overtaken_reader_is_dropped(one: Feed, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """It resumes with its last id, and is told that this one is gone."""
    out = Out()
    writing = asyncio.ensure_future(events._write(one, "", None, out, None))
    await until(lambda: "id:" in out.text)
    for number in range(feed.WINDOW + 1):
        one._hear(advance(f"{number}"))  # all in one step of the loop
    async with asyncio.timeout(5):
        await writing
    assert "event: advance" not in out.text
    assert "unknown_id" in events._begin(one, f"{one.nonce}-0")[1].decode()


async def test_silence_is_broken_and_gaps_are_told(one: Feed, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment when nothing happens; a reset when the subscription was lost, also to those who filter."""
    monkeypatch.setattr(events, "BEAT_S", 0.02)
    out = Out()
    writing = asyncio.ensure_future(events._write(one, "", frozenset({"bind"}), out, None))
    async with asyncio.timeout(5):
        await until(lambda: ": beat" in out.text)
        source.said.put_nowait(advance("0"))
        source.said.put_nowait(Event("gap", "", "", 0, 0, "", ""))
        await until(lambda: "event: reset" in out.text)
        source.said.put_nowait(None)  # the client closes
        await writing
    assert "subscription_lost" in out.text
    assert "event: advance" not in out.text
    assert one.over


async def test_feeds_come_and_go(source: Source) -> None:
    """One per namespace while somebody wants it; idle ones end."""
    now = 0.0
    feeds = Feeds(CLOCK.now, lambda: now)
    entry = Entry("default", source)  # type: ignore[arg-type]
    first = feeds.of(entry)
    assert feeds.of(entry) is first
    now += feed.IDLE_S + 1
    feeds.sweep_idle()
    second = feeds.of(entry)
    assert second is not first
    assert second.nonce != first.nonce
    feeds.end_readers()
    assert second.over
    await feeds.close()
    assert first.over


async def test_one_janitor_of_many(source: Source, tmp_path: Path) -> None:
    """Of the processes that share a directory one is elected; when it goes another is. One alone always is."""
    clients = Clients(lambda _: source)  # type: ignore[arg-type, return-value]
    clients.enter("default")
    swept: list[int] = []
    quick: dict[str, Any] = {"every_s": 0.01, "spread": lambda: 0.5}
    first = Janitor(clients, directory=str(tmp_path), also=lambda: swept.append(1), **quick)
    other = Janitor(clients, directory=str(tmp_path), also=lambda: swept.append(2), **quick)
    first.start()
    await until(lambda: first.rounds >= 2)
    other.start()
    await until(lambda: swept.count(2) >= 3)
    assert other.rounds == 0
    await first.close()
    await until(lambda: other.rounds)
    source.error = StoreUnavailable("away")
    before = other.rounds
    await until(lambda: other.rounds >= before + 2)  # it goes on
    await other.close()
    assert source.pruned >= 2
    assert Janitor(clients, directory="").elected()
    await clients.close()


def test_stats_of_a_fresh_process() -> None:
    """Nothing yet is no reason to fail."""

    class Open:
        def enter(self, *_: Any) -> str:
            return "default"

    document = Stats(Open(), Metrics(), CLOCK).document("default")  # type: ignore[arg-type]
    assert (document.degraded, document.resolutions, document.store.counts) == (0, {}, {})
