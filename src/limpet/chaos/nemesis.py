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
from typing import Any, Protocol

from limpet.chaos.history import Fault
from limpet.chaos.recording import now_us

__all__ = ["FaultKind", "Node", "Rig", "Tormentor", "pause"]


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
    """The nemesis of a rig.

    Args:
        rig: what to break.
        kinds: the faults to draw from.
        calm_s: the shortest and longest pause between two faults.
    """

    def __init__(self, rig: Any, kinds: Sequence[FaultKind], calm_s: tuple[float, float] = (2.0, 5.0)) -> None:
        self._rig = rig
        self._kinds = list(kinds)
        self._calm_s = calm_s

    async def torment(self, rng: random.Random, record: Callable[[Fault], None]) -> None:
        """Until cancelled; a fault that has begun is healed and recorded first."""
        while True:
            await asyncio.sleep(rng.uniform(*self._calm_s))
            kind = rng.choices(self._kinds, [each.weight for each in self._kinds])[0]
            doing = asyncio.create_task(asyncio.to_thread(self._once, kind, rng))
            try:
                record(await asyncio.shield(doing))
            except asyncio.CancelledError:
                record(await doing)
                raise

    def _once(self, kind: FaultKind, rng: random.Random) -> Fault:
        start = now_us()
        node = kind.act(self._rig, rng)
        over = now_us()
        self._rig.settle()
        return Fault(
            name=kind.name, node=node, start_us=start, over_us=over, healed_us=now_us(), lossy=kind.lossy, clock=kind.clock
        )


def pause(seconds: float) -> None:
    """How long a fault is held."""
    threading.Event().wait(seconds)
