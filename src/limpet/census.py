"""Counts live bindings by worker, from the store's index of bindings (design, sections 4 and 10)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from limpet.clock import EPOCH_UNIX_S

if TYPE_CHECKING:
    from limpet.coordinator import Limpet

__all__ = ["count_bindings"]

PARTITIONS_AT_ONCE: Final = 64
PAGE: Final = 1000
_PREFIX: Final = len("conv:") + 32 + len(":")
"""A member is ``<conv|sess>:<digest>:<worker>``; the sentinel is empty."""


async def count_bindings(client: Limpet, *, timeout_s: float = 5.0) -> Counter[str]:
    """Worker -> its bindings (and claims that name it) whose deadline has not passed by the store's clock.

    Reads every partition's index in bounded pages, so it is for a scrape now and then and not for a turn. Claims that
    name no worker yet are not counted.

    Raises:
        StoreUnavailable: the store did not answer in time.
    """
    executor = client.executor
    space = client.commands.keyspace
    seconds, micros = await executor.command("TIME", timeout_s=timeout_s)
    now = (int(seconds) - EPOCH_UNIX_S) * 1_000_000 + int(micros)
    total: Counter[str] = Counter()

    async def one(partition: int) -> None:
        key, offset = space.bound(partition), 0
        while True:
            page: list[bytes] = await executor.command(
                "ZRANGEBYSCORE", key, f"({now}", "+inf", "LIMIT", offset, PAGE, timeout_s=timeout_s, key=key
            )
            for member in page:
                worker = member[_PREFIX:]
                if worker:
                    total[worker.decode("utf-8", "replace")] += 1
            if len(page) < PAGE:
                return
            offset += PAGE

    for first in range(0, space.partitions, PARTITIONS_AT_ONCE):
        last = min(first + PARTITIONS_AT_ONCE, space.partitions)
        await asyncio.gather(*(one(partition) for partition in range(first, last)))
    return total
