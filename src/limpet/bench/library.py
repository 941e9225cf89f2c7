"""``limpet bench library``: concurrent resolves of one process, beside redis-py sending the very same script call."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import redis
import redis.asyncio
import uvloop

from limpet import sync
from limpet.bench.alternate import alternate, alternate_async
from limpet.bench.model import ROUNDS, SILENT, Figure, Report, Row, Sample, Tell, figure, machine, percentile, rows_of
from limpet.bench.place import Place, place, version
from limpet.bind import Bind
from limpet.coordinator import Limpet

__all__ = ["drive", "run"]

CONCURRENCIES: Final = (1, 64, 512)
TIMED: Final = 8
"""Tasks whose calls are timed one by one: enough for the percentiles, and few enough to cost nothing."""
GRANULARITY_MS: Final = 60_000
DEADLINE_MS: Final = 5000
ONE, PIPELINE, LIMPET = "redis-py, a call at a time", "redis-py, pipelines", "limpet"
Step = Callable[[int], Awaitable[object]]


def run(
    *,
    url: str | None = None,
    calls: int = 20_000,
    concurrencies: Sequence[int] = CONCURRENCIES,
    rounds: int = ROUNDS,
    tell: Tell = SILENT,
) -> Report:
    """``calls``: of Limpet at the largest concurrency, per round; redis-py makes a third of them."""
    with place(url) as where:
        rows, figures = uvloop.run(_asynchronous(where, calls, concurrencies, rounds, tell))
        rows += _blocking(where, max(calls // 10, 100), rounds, tell)
        return Report(
            bench="library",
            title="Unchanged, bound resolves a second from one process; ratio to redis-py sending the same EVALSHA",
            rows=rows,
            figures=figures,
            notes=[
                "uvloop for all; redis-py with hiredis, a connection per task; a key of its own per task.",
                "Among tasks redis-py makes a third of Limpet's calls per round, so that its rounds do not last much longer.",
            ],
            axes={"": "tasks at once", "blocking, threads": "threads"},
            machine=machine(version(where.redis)),
        )


async def _asynchronous(
    where: Place, calls: int, concurrencies: Sequence[int], rounds: int, tell: Tell
) -> tuple[list[Row], list[Figure]]:
    most = max(concurrencies)
    keys = [f"conversation {number}" for number in range(most)]
    rows: list[Row] = []
    plain = redis.asyncio.Redis.from_url(where.url, max_connections=most + 8)
    settings: dict[str, Any] = {
        "namespace": where.namespace, "deadline_ms": DEADLINE_MS, "touch_granularity_ms": GRANULARITY_MS, "durability": "none",
    }  # fmt: skip
    async with plain, Limpet.connect(where.url, **settings) as client:
        await asyncio.gather(*(client.resolve(key, session_id="s", bind=Bind(worker="w", commit=True)) for key in keys))
        commands = [
            client.commands.resolve(client.commands.declared(key), session_id="s", bind=Bind(), request_id="r", look_up=False)
            for key in keys
        ]
        words = [call.command() for call in commands]

        async def ours(task: int) -> None:
            await client.resolve(keys[task], session_id="s", bind=True)

        async def theirs(task: int) -> None:
            await plain.execute_command(*words[task])  # type: ignore[no-untyped-call]

        for tasks in concurrencies:
            some = max(calls if tasks > 1 else calls // 4, tasks)
            cases = {
                ONE: lambda tasks=tasks, some=some: drive(theirs, tasks, max(some // 3, tasks)),
                PIPELINE: lambda tasks=tasks, some=some: _pipelines(plain, words[:tasks], max(some // 3, tasks)),
                LIMPET: lambda tasks=tasks, some=some: drive(ours, tasks, some),
            }
            found = await alternate_async(cases, rounds, tell, f"{tasks} tasks")
            rows += rows_of(found, baseline=ONE, unit="/s", group="asyncio", load=tasks)
        figures = _figures(rows, concurrencies)
        hit = await _memo_hit(where, settings, calls, rounds)
        rows += rows_of({"memo hit": hit}, baseline=None, unit="us", group="one process")
        figures.append(figure("memo hit, us", statistics.median(each.value for each in hit), 2, 1, "low"))
    return rows, figures


def _figures(rows: Sequence[Row], concurrencies: Sequence[int]) -> list[Figure]:
    bars = {512: (6.0, 12.0), 1: (1.0, 1.3)}
    return [
        figure(f"library, {row.load} concurrent resolves against redis-py a call at a time", row.ratio or 0, *bars[row.load])
        for row in rows
        if row.case == LIMPET and row.load in bars
    ]


async def drive(step: Step, tasks: int, calls: int) -> Sample:
    """Calls a second of so many tasks, each calling ``step`` with its number again and again."""
    each = max(calls // tasks, 1)
    times: list[float] = []
    clock = time.perf_counter

    async def loop(task: int) -> None:
        for _ in range(each):
            await step(task)

    async def timed(task: int) -> None:
        for _ in range(each):
            began = clock()
            await step(task)
            times.append(clock() - began)

    began = clock()
    await asyncio.gather(*((timed if task < TIMED else loop)(task) for task in range(tasks)))
    took = clock() - began
    times.sort()
    return Sample(each * tasks / took, percentile(times, 0.5) * 1e6, percentile(times, 0.99) * 1e6)


async def _pipelines(client: redis.asyncio.Redis, words: Sequence[tuple[Any, ...]], calls: int) -> Sample:
    """One pipeline after the other, of so many calls each."""
    times, clock = [], time.perf_counter
    rounds = max(calls // len(words), 1)
    for _ in range(rounds):
        began = clock()
        async with client.pipeline(transaction=False) as pipeline:
            for each in words:
                pipeline.execute_command(*each)
            await pipeline.execute()
        times.append(clock() - began)
    times.sort()
    return Sample(rounds * len(words) / sum(times), percentile(times, 0.5) * 1e6, percentile(times, 0.99) * 1e6)


async def _memo_hit(where: Place, settings: dict[str, Any], calls: int, rounds: int) -> list[Sample]:
    """Microseconds of one await of resolve that the memo answers; the loop around it is not counted."""
    found = []
    async with Limpet.connect(where.url, **settings, memo_ttl_ms=60_000) as client:
        until = time.monotonic() + 5
        while client._memo is None or not client._memo.up:
            if time.monotonic() > until:
                raise TimeoutError("The memo's subscription did not come up.")
            await asyncio.sleep(0.001)
        await client.resolve("conversation 0", session_id="s", bind=True)
        for _ in range(rounds):
            numbers = range(calls)
            began = time.perf_counter()
            for _ in numbers:
                await client.resolve("conversation 0", session_id="s", bind=True)
            middle = time.perf_counter()
            for _ in numbers:
                pass
            empty = time.perf_counter() - middle
            found.append(Sample((middle - began - empty) / calls * 1e6))
    return found


def _blocking(where: Place, calls: int, rounds: int, tell: Tell) -> list[Row]:
    """The blocking twin, alone and shared by threads, beside redis-py's blocking client."""
    rows: list[Row] = []
    with (
        sync.Limpet.connect(
            where.url, namespace=where.namespace, deadline_ms=DEADLINE_MS, touch_granularity_ms=GRANULARITY_MS, durability="none"
        ) as client,
        redis.Redis.from_url(where.url) as plain,
    ):
        client.resolve("conversation 0", session_id="s", bind=Bind(worker="w", commit=True))
        commands = client._client.commands
        target = commands.declared("conversation 0")
        words = commands.resolve(target, session_id="s", bind=Bind(), request_id="r", look_up=False).command()
        for threads in (1, 16):
            cases = {
                ONE: lambda threads=threads: _threads(lambda: plain.execute_command(*words), threads, calls),
                LIMPET: lambda threads=threads: _threads(
                    lambda: client.resolve("conversation 0", session_id="s", bind=True), threads, calls
                ),
            }
            found = alternate(cases, rounds, tell, f"{threads} threads")
            rows += rows_of(found, baseline=ONE, unit="/s", group="blocking, threads", load=threads)
    return rows


def _threads(step: Callable[[], object], threads: int, calls: int) -> Sample:
    """Calls a second of so many threads."""
    numbers, times = itertools.count(), list[float]()

    def loop() -> None:
        while next(numbers) < calls:
            began = time.perf_counter()
            step()
            times.append(time.perf_counter() - began)

    workers = [threading.Thread(target=loop) for _ in range(threads)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    took = time.perf_counter() - began
    times.sort()
    return Sample(len(times) / took, percentile(times, 0.5) * 1e6, percentile(times, 0.99) * 1e6)
