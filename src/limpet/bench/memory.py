"""``limpet bench memory``: bytes per conversation in the store and per memo entry, and what a great many short ones leave."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import redis
import uvloop

from limpet.bench.model import SILENT, Report, Row, Sample, Tell, figure, machine, rows_of
from limpet.bench.pipe import Pipe
from limpet.bench.place import Place, place, sweep, version
from limpet.bench.seeding import bound, load_scripts, packed, unbound
from limpet.calls import Target
from limpet.commands import Commands
from limpet.coordinator import Limpet
from limpet.keys import digest
from limpet.memo import Memo
from limpet.policy import NONE
from limpet.results import Binding, Resolution

__all__ = ["run"]

SAMPLE: Final = 20_000
SHORT_MS: Final = 50
"""How long a short conversation's record outlives it here. In production it is `retention`, and everything else is the same."""
CHUNK: Final = 10_000
EXPIRED_S: Final = 60.0


def run(*, url: str | None = None, n: int = 1_000_000, tell: Tell = SILENT) -> Report:
    """``n``: short conversations, one after the other, in the store; a tenth of them through a client of this process."""
    rows: list[Row] = []
    with place(url) as where, Pipe(where.redis) as pipe:
        some = min(SAMPLE, n)
        commands = Commands(namespace=where.namespace)
        for name, make in (("conversation", unbound), ("bound conversation", bound)):
            rows += _stored(where, name, some, partial(make, pipe, commands), commands)
        rows += rows_of({"memo entry": [Sample(_memo_entry(min(some, 20_000)))]}, baseline=None, unit="B", group="in the process")
        short = f"{where.namespace}-short"
        try:
            sizes = list(_short_lives(where, short, pipe, n, tell))
            left, others = _left(where, short)
        finally:
            sweep(where.redis, short)
        middle = max(len(sizes) // 2, 1)
        halves = {"first half, most": sizes[:middle], "second half, most": sizes[middle:] or sizes}
        first, last = (max(used for used, _ in half) for half in halves.values())
        rows += rows_of(
            {name: [Sample(float(max(used for used, _ in half)))] for name, half in halves.items()},
            baseline="first half, most", unit="B", group=f"the store's memory during {n:,} short conversations",
            more={name: {"keys at most": max(keys for _, keys in half)} for name, half in halves.items()},
        )  # fmt: skip
        grown = uvloop.run(_process(where, max(n // 10, 1000), tell))
        rows += rows_of(
            {"first half": [Sample(grown[0])], "second half": [Sample(grown[1])]},
            baseline=None, unit="B", group=f"a client's growth during {max(n // 10, 1000):,} conversations",
        )  # fmt: skip
        figures = [
            figure("store memory, second half of the short conversations by the first", last / first, 1.05, 1.0, "low"),
            figure("records left of the short conversations once they expired", left, 0, None, "low"),
        ]
        notes = [f"Left besides: {others} keys, however many conversations there were (a clock per partition and the like)."]
        return Report(
            bench="memory",
            title="Bytes",
            rows=rows,
            figures=figures,
            notes=notes,
            machine=machine(version(where.redis)),
        )


def _used(client: redis.Redis) -> int:
    info: dict[str, Any] = client.info("memory")
    return int(info["used_memory_dataset"]) if "used_memory_dataset" in info else int(info["used_memory"])


def _stored(where: Place, name: str, n: int, make: Callable[[list[Target]], None], commands: Commands) -> Iterator[Row]:
    """Both by MEMORY USAGE of one record, and by what the whole store grew, indexes and hash tables included."""
    targets = [commands.declared(f"telegram:dm:{name}:{number:08d}") for number in range(n)]
    before = int(where.redis.info("memory")["used_memory"])
    make(targets)
    grown = (int(where.redis.info("memory")["used_memory"]) - before) / n
    record = commands.keyspace.record("conv", targets[0].digest)
    usage = int(where.redis.memory_usage(record) or 0)
    more = {name: {"the record alone": usage}}
    yield from rows_of({name: [Sample(grown)]}, baseline=None, unit="B", group="in the store", more=more)


def _memo_entry(n: int) -> float:
    """Bytes of one entry with its resolution and binding, by tracemalloc."""
    memo = Memo(60.0, lambda *_: None, capacity=n)
    memo.came_up()
    from limpet.clock import SystemClock

    now = SystemClock().now()
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(n):
            key = f"telegram:dm:{number:08d}"
            dig = digest(key)
            binding = Binding(
                "continue", "bound", f"worker-{number % 100}", holder="host:1", fence=2**50 + number, expires_in_ms=299_000
            )
            found = Resolution(
                key,
                f"resp_{number}",
                2**50 + number,
                1,
                f"gwk_{dig[:24]}",
                "declared",
                False,
                "new",
                2**40 + number,
                None,
                binding,
            )
            memo.answer(key, dig, memo.ask(dig), found, 1.0, now)
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(memo) == n
    assert memo.get("telegram:dm:00000000", 2.0, NONE, 0, 0, lambda: now) is not None
    return size / n


def _short_lives(where: Place, namespace: str, pipe: Pipe, n: int, tell: Tell) -> Iterator[tuple[int, int]]:
    """(bytes, keys) after every chunk of conversations that live for a moment."""
    commands = Commands(namespace=namespace, retention_ms=SHORT_MS)
    load_scripts(pipe)
    for start in range(0, n, CHUNK):
        tell("short conversations", start, n)
        calls = (
            commands.resolve(commands.declared(f"short {number}"), session_id="s", request_id="r", look_up=False)
            for number in range(start, min(start + CHUNK, n))
        )
        pipe.run([packed(call) for call in calls], 256)
        yield int(where.redis.info("memory")["used_memory"]), int(where.redis.dbsize())


def _left(where: Place, namespace: str) -> tuple[int, int]:
    """(records, other keys) of a namespace, once its records are gone; or after a minute, if they do not go."""
    until, tick = time.monotonic() + EXPIRED_S, threading.Event()
    while True:
        names = list(where.redis.scan_iter(match=f"limpet:{{{namespace}[:}}]*", count=5000))
        records = sum(1 for name in names if b":conv:" in name or b":sess:" in name)
        if not records or time.monotonic() > until:
            return records, len(names) - records
        tick.wait(0.2)


async def _process(where: Place, n: int, tell: Tell) -> tuple[float, float]:
    """By how many bytes this process grew in the first and in the second half of so many first turns."""
    found: list[float] = []
    async with Limpet.connect(where.url, namespace=where.namespace, retention_s=1, deadline_ms=10_000) as client:
        numbers = itertools.count()
        for half in range(2):
            before = _resident()
            for _ in range(max(n // 2 // 500, 1)):
                tell("conversations of one client", half, 2)
                await asyncio.gather(*(client.resolve(f"process {next(numbers)}", session_id="s") for _ in range(500)))
            gc.collect()
            found.append(_resident() - before)
    return found[0], found[1]


def _resident() -> float:
    if sys.platform == "linux":
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096.0
    import resource

    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
