"""One script call as the executors send it, and one answer as the clients read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from limpet.keys import Domain
from limpet.scripts import Script

__all__ = ["FLAG_BIND", "FLAG_DURABLE", "FLAG_GLANCE", "FLAG_LOOK_UP", "FLAG_NOW", "Answer", "Call", "Target"]

T = TypeVar("T")

FLAG_BIND, FLAG_LOOK_UP, FLAG_DURABLE, FLAG_GLANCE, FLAG_NOW = 1, 2, 4, 8, 16


class Target(NamedTuple):
    """Whose record a call is about: a declared key's, or that of a session id (physical, in a domain of its own)."""

    domain: Domain
    digest: str
    key: str | None
    session_id: str | None


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One script call: what to send, and how to read what comes back. ``flagged``: its first argument opens with flags."""

    script: Script
    keys: tuple[str, ...]
    args: tuple[bytes | str | int, ...]
    parse: Callable[[Any], T]
    flagged: bool = False

    def command(self, *, flags_known: bool = False, again: bool = False) -> tuple[bytes | str | int, ...]:
        """What goes on the wire. ``flags_known``: the server knows script flags. ``again``: an earlier try of this very call may
        have taken effect, so its request id has to be looked up."""
        args = self.args
        if again and self.flagged:
            packed = args[0]
            assert isinstance(packed, bytes)  # flagged calls open with their flags byte
            args = (bytes((packed[0] | FLAG_LOOK_UP,)) + packed[1:], *args[1:])
        sha, _ = self.script.variant(flags_known)
        return ("EVALSHA", sha, len(self.keys), *self.keys, *args)


class Answer(NamedTuple):
    """What a script said, beside the result that the caller sees: for metrics, memory and durability. ``decided``: it reports
    a decision (an advance, reset, claim, confirm, rebind), also one of an earlier try. ``written``: this very call wrote the
    record, so that a WAIT after it means something. ``lapsed``: it took over a claim that had run out unconfirmed."""

    result: Any
    decided: bool = False
    behind: bool = False
    replayed: bool = False
    epoch: int = 0
    fence: int = 0
    written: bool = True
    lapsed: bool = False
