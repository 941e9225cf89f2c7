"""Breaks servers that it was given for that, one fault at a time, and waits until all is whole again in between.

One at a time, since that is what ``durable: true`` is promised for: who loses a primary and all its replicas at once has lost
data. The faults themselves are in :mod:`limpet.chaos.faults`.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from limpet.chaos.history import Fault
from limpet.chaos.recording import now_us

__all__ = ["UNFORESEEN", "FaultKind", "Node", "Rig", "Tormentor", "pause"]


UNFORESEEN: Final = "a promotion that nobody asked for"


class Node(Protocol):
    """One server process."""

    name: str
    port: int

    def do(self, *words: str | int | bytes) -> Any:
        """One command; raises redis.RedisError or OSError."""

    def start(self) -> None:
        """Starts it on the data it left, and waits until it answers."""

    def kill(self) -> None:
        """kill -9."""

    def stop(self) -> None:
        """SIGSTOP."""

    def cont(self) -> None:
        """SIGCONT."""


class Rig(Protocol):
    """A set of servers that may be broken."""

    nodes: Sequence[Any]

    def primaries(self) -> list[Any]:
        """The nodes that serve writes, by their own word."""

    def replicas(self, primary: Any) -> list[Any]:
        """Those of one primary."""

    def reign(self) -> object:
        """Something that is another after each promotion of a replica; None where there are no replicas."""

    def settle(self) -> None:
        """Starts and continues what was stopped, and waits until every node agrees and every replica is in sync."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """``act`` breaks something, holds it, and mends what it broke; it names the node. ``lossy`` and ``clock``: see Fault."""

    name: str
    act: Callable[[Any, random.Random], str]
    weight: int = 1
    lossy: bool = False
    clock: bool = False


class Tormentor:
    """The nemesis of a rig. A promotion that no fault asked for (the sentinels lost touch with a primary on a busy machine) is
    recorded too: from the last instant at which all was known to be whole, it may have lost what was not durable.

    Args:
        rig: what to break.
        kinds: the faults to draw from.
        calm_s: the shortest and longest pause between two faults.
    """

    def __init__(self, rig: Any, kinds: Sequence[FaultKind], calm_s: tuple[float, float] = (2.0, 5.0)) -> None:
        self._rig = rig
        self._kinds = list(kinds)
        self._calm_s = calm_s
        self._reign: tuple[object, int] = (None, 0)

    async def torment(self, rng: random.Random, record: Callable[[Fault], None]) -> None:
        """Until cancelled; a fault that has begun is healed and recorded first."""
        self._reign = (await asyncio.to_thread(self._rig.reign), now_us())
        while True:
            try:
                await asyncio.sleep(rng.uniform(*self._calm_s))
            finally:  # also when the run ends here
                unforeseen = await asyncio.to_thread(self._unforeseen)
                if unforeseen is not None:
                    record(unforeseen)
            kind = rng.choices(self._kinds, [each.weight for each in self._kinds])[0]
            doing = asyncio.create_task(asyncio.to_thread(self._once, kind, rng))
            try:
                record(await asyncio.shield(doing))
            except asyncio.CancelledError:
                record(await doing)
                raise

    def _unforeseen(self) -> Fault | None:
        """A promotion since the last fault was healed."""
        start = now_us()
        before, since = self._reign
        if self._rig.reign() == before:
            self._reign = (before, start)
            return None
        self._rig.settle()
        self._reign = (self._rig.reign(), now_us())
        return Fault(name=UNFORESEEN, node="", start_us=since, over_us=start, healed_us=self._reign[1], lossy=True)

    def _once(self, kind: FaultKind, rng: random.Random) -> Fault:
        start = now_us()
        before = self._reign[0]
        node = kind.act(self._rig, rng)
        over = now_us()
        self._rig.settle()
        self._reign = (self._rig.reign(), now_us())
        return Fault(
            name=kind.name,
            node=node,
            start_us=start,
            over_us=over,
            healed_us=self._reign[1],
            lossy=kind.lossy or self._reign[0] != before,
            clock=kind.clock,
        )


def pause(seconds: float) -> None:
    """How long a fault is held."""
    threading.Event().wait(seconds)
