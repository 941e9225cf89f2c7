"""The clocks of the servers against each other and ours, and the partitions' ticks against the clock."""

from __future__ import annotations

import asyncio
from typing import Final

from limpet.clock import EPOCH_UNIX_S, Clock
from limpet.health.asking import Asking
from limpet.health.model import Check
from limpet.keys import Keyspace

__all__ = ["sampled", "skew", "ticks"]

SKEW_S: Final = 1.0
HOPELESS_SKEW_S: Final = 60.0
SAMPLED: Final = 16
"""Partitions looked at."""
FEW_PARTITIONS: Final = 32


def sampled(keyspace: Keyspace, many: int = SAMPLED) -> list[int]:
    """Some partitions, spread evenly; their hash tags spread over the primaries of a cluster."""
    return list(range(0, keyspace.partitions, max(1, -(-keyspace.partitions // many))))


async def skew(asking: Asking, clock: Clock, thorough: bool) -> Check:
    """Only what the time of the question cannot explain counts."""
    before = clock.now().timestamp()
    times = await asking.everywhere("TIME")
    after = clock.now().timestamp()
    stamps = [int(seconds) + int(micros) / 1_000_000 for seconds, micros in times.values()]
    if min(stamps) < EPOCH_UNIX_S:
        text = "The clock of the store is set before 2026, from when ticks count; set it right (NTP)."
        return Check("clocks", "fail", text)
    between = max(0.0, max(stamps) - min(stamps) - (after - before))
    apart = max(0.0, max(stamps) - after, before - min(stamps))
    worst = max(between, apart)
    if worst < SKEW_S:
        whose = "the primaries and of this machine" if len(stamps) > 1 else "the store and of this machine"
        return Check("clocks", "ok", f"The clocks of {whose} are within {max(worst, 0.001) * 1000:.0f} ms.")
    whose = "the primaries" if between >= SKEW_S else "the store and of this machine"
    text = f"The clocks of {whose} are {worst:.1f} s apart; synchronise them (NTP): after a failover that much order may be lost."
    return Check("clocks", "fail" if thorough and worst > HOPELESS_SKEW_S else "warn", text)


async def ticks(asking: Asking, keyspace: Keyspace) -> Check:
    """Ticks run ahead of a clock that was set back, and of one that a partition outruns."""
    partitions = sampled(keyspace)
    ahead = await asyncio.gather(*(_ahead_s(asking, keyspace.clock(partition)) for partition in partitions))
    worst = max(ahead)
    if worst > SKEW_S:
        text = (
            f"Ticks run {worst:.1f} s ahead of the clock, which was set back or outrun; until it has caught up a loss of data "
            "may take epochs back: keep clocks from being set back (NTP that slews)."
        )
        return Check("ticks", "warn", text)
    if keyspace.partitions < FEW_PARTITIONS:
        text = (
            f"LIMPET_PARTITIONS is {keyspace.partitions}, which is few: while a clock is behind, each decision of a partition "
            f"jumps up to a millisecond; set up new namespaces with {FEW_PARTITIONS} or more."
        )
        return Check("ticks", "warn", text)
    return Check("ticks", "ok", f"In {len(partitions)} partitions looked at, no ticks run ahead of the clock.")


async def _ahead_s(asking: Asking, key: str) -> float:
    tick, (seconds, micros) = await asyncio.gather(asking.at(key, "GET", key), asking.at(key, "TIME"))
    if tick is None or not tick.isdigit():
        return 0.0
    return (int(tick) - (int(seconds) - EPOCH_UNIX_S) * 1_000_000 - int(micros)) / 1_000_000
