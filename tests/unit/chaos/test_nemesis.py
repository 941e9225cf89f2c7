"""The nemesis knows when a replica was promoted, whoever asked for it: that is when something may be lost."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from limpet.chaos.history import Fault
from limpet.chaos.nemesis import UNFORESEEN, FaultKind, Tormentor


class Reigns:
    """A rig of which only the succession matters: who reigns is a number, and faults or nobody may change it."""

    def __init__(self) -> None:
        self.now = 1
        self.settled = 0

    def reign(self) -> object:
        return self.now

    def settle(self) -> None:
        self.settled += 1


async def tormented(rig: Reigns, kind: FaultKind, faults: int, meanwhile: Any = None) -> list[Fault]:
    """What was recorded until there were so many faults; ``meanwhile`` happens after the first one, between faults."""
    found: list[Fault] = []
    enough = asyncio.Event()

    def record(fault: Fault) -> None:
        found.append(fault)
        if len(found) == 1 and meanwhile is not None:
            meanwhile()
        if len(found) >= faults:
            enough.set()

    running = asyncio.create_task(Tormentor(rig, [kind], (0, 0)).torment(random.Random(1), record))
    await asyncio.wait_for(enough.wait(), 10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return found[:faults]


async def test_a_fault_that_promotes_is_lossy() -> None:
    """A fault that should lose nothing, but made the sentinels act, lost what was not durable."""
    rig = Reigns()

    def promotes(_: Any, __: Any) -> str:
        rig.now += 1
        return "d0"

    harmless, promoting = FaultKind("harmless", lambda *_: "d0"), FaultKind("promoting", promotes)
    assert [fault.lossy for fault in await tormented(rig, harmless, 2)] == [False, False]
    assert [fault.lossy for fault in await tormented(rig, promoting, 2)] == [True, True]
    assert rig.settled >= 4


async def test_a_promotion_between_faults_is_a_fault() -> None:
    """One that no fault asked for is recorded, from the last instant at which all was whole."""
    rig = Reigns()

    def succession() -> None:
        rig.now += 1

    first, second = await tormented(rig, FaultKind("harmless", lambda *_: "d0"), 2, succession)
    assert (first.name, first.lossy) == ("harmless", False)
    assert (second.name, second.lossy) == (UNFORESEEN, True)
    assert first.healed_us <= second.start_us <= second.over_us <= second.healed_us


async def test_the_end_of_a_run_looks_too() -> None:
    """A promotion after the last fault is told as well."""
    rig = Reigns()
    found: list[Fault] = []
    begun = asyncio.Event()

    class Rng(random.Random):
        def uniform(self, a: float, b: float) -> float:
            begun.set()
            return 60.0

    running = asyncio.create_task(Tormentor(rig, [FaultKind("x", lambda *_: "")]).torment(Rng(1), found.append))
    await asyncio.wait_for(begun.wait(), 10)
    rig.now += 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [(fault.name, fault.lossy) for fault in found] == [(UNFORESEEN, True)]
