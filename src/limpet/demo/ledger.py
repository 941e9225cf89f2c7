"""What happened, as it was answered: the only thing that the demo's numbers are counted from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from limpet.demo.protocol import TurnDone

__all__ = ["Handover", "Kill", "Ledger", "Replaced", "Seen"]


@dataclass(frozen=True, slots=True)
class Seen:
    """One answered request. ``chapter``: how often the conversation had been replaced, by the driver's own reckoning.
    ``held``: its gateway was killed before it could serve it, so it counts as a claim but not as a request served."""

    gateway: str
    key: str
    chapter: int
    answer: TurnDone
    held: bool = False


@dataclass(frozen=True, slots=True)
class Replaced:
    """A replacement that the driver brought about: ``chapter`` is the one that began. ``epoch``: what ``/new`` was answered."""

    key: str
    chapter: int
    how: Literal["new", "idle"]
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Handover:
    """A claim whose holder was killed. ``fence`` was the dead one's, ``heir_fence`` is that of whoever was told to bind
    next, ``seconds`` after the kill. ``late_refused``: a confirm with the dead one's fence changed nothing."""

    key: str
    fence: int | None
    heir_fence: int | None
    seconds: float
    late_refused: bool


@dataclass(frozen=True, slots=True)
class Kill:
    """The gateway that was killed, with so many claims in its hands."""

    gateway: str
    pid: int
    claims: int


@dataclass(slots=True)
class Ledger:
    """Everything, in the order in which it was answered.

    ``stalled``: conversations with an idle policy during which the machine itself was slower than that policy, so that a
    further reset would have been right; they are left out of the count, and the report says how many.
    """

    turns: list[Seen] = field(default_factory=list)
    replaced: list[Replaced] = field(default_factory=list)
    handovers: list[Handover] = field(default_factory=list)
    stalled: set[str] = field(default_factory=set)
    kill: Kill | None = None
