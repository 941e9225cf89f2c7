"""Keeps the ``bound`` sets honest: takes out what is over, in bounded steps, and counts what is there per worker.

The set is an index; the record decides (design, section 4). Any replica may run this at any time: two at once only do the
same work twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from limpet.commands import Call
from limpet.keys import Keyspace
from limpet.scripts import script

if TYPE_CHECKING:
    from limpet.executors.aio import AsyncExecutor

__all__ = ["census", "prune"]

STEP: Final = 64
"""Members looked at in one script call."""
CHUNK: Final = 4096
"""Members read in one command of a census."""


async def prune(executor: AsyncExecutor, keyspace: Keyspace, granularity_us: int, timeout_s: float) -> int:
    """Takes the bindings that are over out of every partition's ``bound``; the number of members removed.

    Raises StoreUnavailable.
    """
    counts = await asyncio.gather(
        *(_prune_partition(executor, keyspace, p, granularity_us, timeout_s) for p in range(keyspace.partitions))
    )
    return sum(counts)


async def _prune_partition(
    executor: AsyncExecutor, keyspace: Keyspace, partition: int, granularity_us: int, timeout_s: float
) -> int:
    bound, removed, offset = keyspace.bound(partition), 0, 0
    seconds, micros = await executor.command("TIME", timeout_s=timeout_s, key=bound)
    now = (int(seconds) - 1_767_225_600) * 1_000_000 + int(micros)
    while True:
        members: list[bytes] = await executor.command(
            "ZRANGEBYSCORE", bound, "-inf", now - granularity_us, "LIMIT", offset, STEP, timeout_s=timeout_s, key=bound
        )
        if not members:
            return removed
        taken = await executor.run(_prune_call(keyspace, bound, members, granularity_us), timeout_s)
        removed += taken
        offset += len(members) - taken if taken else len(members)
        if len(members) < STEP:
            return removed


def _prune_call(keyspace: Keyspace, bound: str, members: list[bytes], granularity_us: int) -> Call[int]:
    prefix = bound.removesuffix("bound").encode()
    records = tuple((prefix + member[:37]).decode() for member in members)
    head = (0).to_bytes(8, "big") + granularity_us.to_bytes(8, "big")
    return Call(script("binding_prune"), (bound, *records), (head, *members), int)


async def census(executor: AsyncExecutor, keyspace: Keyspace, timeout_s: float) -> dict[str, int]:
    """Live claims and bindings per worker ("" for claims that name none yet), by the store's own deadlines.

    Raises StoreUnavailable.
    """
    totals: dict[str, int] = {}
    parts = await asyncio.gather(*(_census_partition(executor, keyspace.bound(p), timeout_s) for p in range(keyspace.partitions)))
    for part in parts:
        for worker, count in part.items():
            totals[worker] = totals.get(worker, 0) + count
    return totals


async def _census_partition(executor: AsyncExecutor, bound: str, timeout_s: float) -> dict[str, int]:
    counts: dict[str, int] = {}
    offset = 0
    while True:
        members: list[Any] = await executor.command(
            "ZRANGE", bound, offset, offset + CHUNK - 1, "WITHSCORES", timeout_s=timeout_s, key=bound
        )
        if not members:
            return counts
        seconds, micros = await executor.command("TIME", timeout_s=timeout_s, key=bound)
        now = (int(seconds) - 1_767_225_600) * 1_000_000 + int(micros)
        for member, score in zip(members[::2], members[1::2], strict=True):
            if member and float(score) >= now:
                worker = member[38:].decode("utf-8", "replace")
                counts[worker] = counts.get(worker, 0) + 1
        if len(members) < 2 * CHUNK:
            return counts
        offset += CHUNK
