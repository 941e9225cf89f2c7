"""``limpet bench memory``: bytes per conversation in the store and per memo entry, and what a great many short ones leave."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import redis
import uvloop

from limpet.bench.model import SILENT, Figure, Report, Row, Sample, Tell, figure, machine, rows_of
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

__all__ = ["remaining", "run"]

SAMPLE: Final = 20_000
SHORT_MS: Final = 50
"""How long a short conversation's record outlives it here. In production it is `retention`, and everything else is the same."""
CHUNK: Final = 10_000
STEADY: Final = 100_000
"""Fewer conversations are over before expiry keeps pace and every partition has its clock: halves of them say nothing."""
EXPIRED_S: Final = 30.0


def run(*, url: str | None = None, n: int = 1_000_000, tell: Tell = SILENT) -> Report:
    """``n``: short conversations, one after the other, in the store; a tenth of them through a client of this process."""
    rows: list[Row] = []
    with place(url) as where, Pipe(where.redis) as pipe:
        some = min(SAMPLE, n)
        commands = Commands(namespace=where.namespace)
        for name, make in (("conversation", unbound), ("bound conversation", bound)):
            rows += _stored(where, name, some, partial(make, pipe, commands), commands)
        rows += rows_of({"memo entry": [Sample(_memo_entry(min(some, 20_000)))]}, baseline=None, unit="B", group="in the process")
        short = f"{where.namespace}-short"  # of their own, so that every record in it that stays is a fault
        try:
            sizes = list(_short_lives(where, pipe, short, n, tell))
            left = remaining(where.redis, short, EXPIRED_S)
        finally:
            sweep(where.redis, short)
        middle = max(len(sizes) // 2, 1)
        halves = {"first half, most": sizes[:middle], "second half, most": sizes[middle:] or sizes}
        figures: list[Figure] = []
        for what, unit, bar, field in (("memory", "B", 1.05, 0), ("keys at once", "keys", 1.25, 1)):
            most = {name: [Sample(float(max(each[field] for each in half)))] for name, half in halves.items()}
            made = rows_of(
                most, baseline="first half, most", unit=unit, group=f"the store's {what} during {n:,} short conversations"
            )
            rows += made
            name = f"store's {what}, most in the second half of the short conversations by the first"
            if n >= STEADY:
                figures.append(figure(name, made[1].ratio or 0, bar, 1.0, "low"))
        figures.append(figure("records left once the short conversations expired", left["conv"], 0, better="low"))
        grown = uvloop.run(_process(where, max(n // 10, 1000), tell))
        rows += rows_of(
            {"first half": [Sample(grown[0])], "second half": [Sample(grown[1])]},
            baseline=None, unit="B", group=f"a client's growth during {max(n // 10, 1000):,} conversations",
        )  # fmt: skip
        kinds = ", ".join(f"{many:,} {kind}" for kind, many in sorted(left.items()))
        notes = [f"Left in the namespace of the short conversations once they expired: {kinds} (a clock per partition stays)."]
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


def _short_lives(where: Place, pipe: Pipe, namespace: str, n: int, tell: Tell) -> Iterator[tuple[int, int]]:
    """(bytes of the store, keys more than at first) after every chunk of conversations that live for a moment."""
    commands = Commands(namespace=namespace, retention_ms=SHORT_MS)
    load_scripts(pipe)
    before = int(where.redis.dbsize())
    chunk = min(CHUNK, max(n // 8, 1))
    for start in range(0, n, chunk):
        tell("short conversations", start, n)
        calls = (
            commands.resolve(commands.declared(f"short {number}"), session_id="s", request_id="r", look_up=False)
            for number in range(start, min(start + chunk, n))
        )
        pipe.run([packed(call) for call in calls], 256)
        yield int(where.redis.info("memory")["used_memory"]), int(where.redis.dbsize()) - before


def remaining(client: redis.Redis, namespace: str, wait_s: float) -> Counter[str]:
    """How many keys of each kind (``conv``, ``clock`` ...) a namespace holds, once its records expired or ``wait_s`` is over."""
    until, tick = time.monotonic() + wait_s, threading.Event()
    while True:
        names = client.scan_iter(match=f"limpet:{{{namespace}[:}}]*", count=5000)
        found = Counter(name.decode().partition("}:")[2].partition(":")[0] for name in names)
        if not found["conv"] or time.monotonic() > until:
            return found
        tick.wait(0.1)


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
