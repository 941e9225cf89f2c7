"""What is done to a whole namespace, partition by partition, in bounded steps: pruning, counting, draining.

``bound`` is an index and the record decides (design, section 4), so each step looks at the records first, inside one script.
Any replica may run any of this at any time, and be stopped at any time: the work that is left shows in the index.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from limpet.calls import Call
from limpet.clock import EPOCH_UNIX_S
from limpet.keys import Keyspace
from limpet.scripts import script

if TYPE_CHECKING:
    from limpet.executors.aio import AsyncExecutor

__all__ = ["Drained", "Maintenance"]

log = structlog.get_logger("limpet.maintenance")

STEP: Final = 64
"""Records looked at in one script call."""
DRAIN_STEP: Final = 16
"""Bindings moved in one script call: about a quarter of a millisecond of the store's time, which turns can wait for."""
AT_ONCE: Final = 32
"""Partitions worked on at the same time."""
PAGE: Final = 1000
"""Members read in one command."""

_decode_page: Final = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw]).decode
_decode_counts: Final = msgspec.msgpack.Decoder(dict[str, int] | list[Any]).decode  # an empty Lua table is a list


class Drained(msgspec.Struct, frozen=True):
    """The state of a drain: bindings ``moved`` so far, ``left`` on the worker (claims in flight), and the share ``done`` of the
    partitions in this pass. ``may_stop``: nothing is bound to the worker any more."""

    worker: str
    moved: int
    left: int
    done: float
    may_stop: bool = False


class Maintenance:
    """The work on one namespace.

    Args:
        executor: sends the calls.
        keyspace: whose partitions.
        granularity_us: of the namespace.
        timeout_s: of each single call.
        writes: the schema that records are written in.
    """

    def __init__(self, executor: AsyncExecutor, keyspace: Keyspace, granularity_us: int, timeout_s: float, writes: int) -> None:
        self._executor = executor
        self._keyspace = keyspace
        self._granularity_us = granularity_us
        self._timeout_s = timeout_s
        self._writes = writes

    async def _now(self, key: str) -> int:
        """The clock of the node that holds a key, in ticks."""
        seconds, micros = await self._executor.command("TIME", timeout_s=self._timeout_s, key=key)
        return (int(seconds) - EPOCH_UNIX_S) * 1_000_000 + int(micros)

    def _records(self, bound: str, members: list[bytes]) -> tuple[str, ...]:
        prefix = bound.removesuffix("bound")
        return tuple(prefix + member[:37].decode() for member in members)

    # -- pruning -------------------------------------------------------------------------------------------------------

    async def prune(self) -> int:
        """Takes bindings that are over out of the index; the number removed. Raises StoreUnavailable."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(partition: int) -> int:
            async with gate:
                return await self._prune(self._keyspace.bound(partition))

        return sum(await asyncio.gather(*(one(p) for p in range(self._keyspace.partitions))))

    async def _prune(self, bound: str) -> int:
        removed = offset = 0
        before: list[bytes] = []
        now = await self._now(bound)
        head = struct.pack(">QQ", 0, self._granularity_us)
        while True:
            members: list[bytes] = await self._executor.command(
                "ZRANGEBYSCORE",
                bound,
                "-inf",
                now - self._granularity_us,
                "LIMIT",
                offset,
                STEP,
                timeout_s=self._timeout_s,
                key=bound,
            )
            if not members:
                return removed
            call = Call(script("binding_prune"), (bound, *self._records(bound, members)), (head, *members), int)
            gone = await self._executor.run(call, self._timeout_s)
            removed += gone
            if len(members) < STEP:
                return removed
            # What lives on was given a later score, and left the range as what was taken out did. A page that comes again whole
            # is of records that cannot be read: go past it.
            offset += STEP if members == before else 0
            before = members

    # -- counting ------------------------------------------------------------------------------------------------------

    async def census(self) -> dict[str, int]:
        """Live claims and bindings per worker; "" for claims that name none yet. Raises StoreUnavailable."""
        gate = asyncio.Semaphore(AT_ONCE)
        totals: dict[str, int] = {}

        async def one(bound: str) -> None:
            async with gate:
                offset = 0
                while True:
                    head = struct.pack(">QQQ", 0, self._granularity_us, offset)
                    call = Call(script("binding_census"), (bound,), (head,), _decode_page)
                    offset, raw = await self._executor.run(call, self._timeout_s)
                    try:
                        counts = _decode_counts(raw)
                    except msgspec.MsgspecError:
                        # Not ours, and no reason to know nothing of all the others. Pruned once its record is gone.
                        log.warning("bindings_uncounted", key=bound, reason="a member is not UTF-8")
                        counts = []
                    for worker, count in counts.items() if isinstance(counts, dict) else ():
                        totals[worker] = totals.get(worker, 0) + count
                    if not offset:
                        return

        await asyncio.gather(*(one(self._keyspace.bound(p)) for p in range(self._keyspace.partitions)))
        return totals

    # -- draining ------------------------------------------------------------------------------------------------------

    async def drain(self, worker: str, channel: str) -> AsyncIterator[Drained]:
        """One pass over the namespace that takes every binding off a worker; yields its progress, and last the verdict.

        A binding's next turn is told to bind elsewhere, with a larger fence. Claims in flight are left and counted in ``left``;
        another pass takes them. Raises StoreUnavailable; what was moved stays moved.
        """
        moved = left = 0
        count = self._keyspace.partitions
        for partition in range(count):
            step_moved, step_left = await self._drain(self._keyspace.bound(partition), worker, channel)
            moved, left = moved + step_moved, left + step_left
            if step_moved or partition % 64 == 63:
                yield Drained(worker, moved, left, (partition + 1) / count)
        yield Drained(worker, moved, left, 1.0, may_stop=left == 0)

    async def _drain(self, bound: str, worker: str, channel: str) -> tuple[int, int]:
        moved = left = 0
        tail = b":" + worker.encode()
        head = struct.pack(">QQ", 0, self._granularity_us) + msgspec.msgpack.encode((channel, worker, "drained"))
        # By score and not by rank: what is taken out below, by us or by others' releases, moves the ranks of all above it, and a
        # page by rank would pass over some. A score only grows while a binding lives, so that it stays ahead until it is met.
        low: str | bytes = "-inf"
        met: set[bytes] = set()  # of those with the score ``low``
        skip = 0
        while True:
            flat: list[bytes] = await self._executor.command(
                "ZRANGE", bound, low, "+inf", "BYSCORE", "LIMIT", skip, PAGE, "WITHSCORES", timeout_s=self._timeout_s, key=bound
            )
            page, scores = flat[::2], flat[1::2]
            ours = [member for member in page if member[37:] == tail and member not in met]
            gone = 0
            for start in range(0, len(ours), DRAIN_STEP):
                members = ours[start : start + DRAIN_STEP]
                keys = (bound, *self._records(bound, members))
                call = Call(script("binding_drain", self._writes), keys, (head, *members), tuple)
                step_moved, step_left = await self._executor.run(call, self._timeout_s)
                moved, left, gone = moved + step_moved, left + step_left, gone + len(members) - step_left
            if len(page) < PAGE:
                return moved, left
            stuck = scores[0] == scores[-1]  # a whole page of one score
            skip = skip * (scores[0] == low) + PAGE - gone if stuck else 0
            low = scores[-1]
            met = {member for member, score in zip(page, scores, strict=True) if score == low} | (met if stuck else set())
