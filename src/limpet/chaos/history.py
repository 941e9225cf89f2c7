"""What happened: one record per call with its start and end, the faults, and the stalls of the recording processes.

All times are microseconds of CLOCK_MONOTONIC, which the processes of one machine share; so two calls are ordered only where
one ended before the other began. Files hold one JSON document per line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

import msgspec

__all__ = ["Answer", "Call", "Fault", "History", "Note", "Op", "Stall", "Target", "Writer", "load"]

Op = Literal["resolve", "advance", "suspend", "peek", "forget", "confirm", "abort", "release", "renew", "rebind"]
Target = tuple[Literal["conv", "sess"], str]
MAX_CALLS: Final = 1_000_000


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call was told, flat: of a Resolution, Advanced, Suspended, Forgotten or Binding. ``fence``, ``action`` and
    ``state`` are those of the binding; a ``stale_fence`` carries the binding that holds instead."""

    epoch: int | None = None
    ordinal: int | None = None
    scope: str | None = None
    source: str | None = None
    created: bool = False
    reason: str | None = None
    reset: str | None = None
    previous_epoch: int | None = None
    applied: bool | None = None
    parent_scope: str | None = None
    degraded: bool = False
    durable: bool | None = None
    action: str | None = None
    state: str | None = None
    fence: int | None = None


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call"):
    """One call of the public API.

    ``client``: one client object, which has a memory of its own; ``process`` it lives in. ``allowed_ms``: its deadline, and
    what it was willing to wait. ``outcome``: ``ok``, the code of a LimpetError, or ``crash:<type>``. ``claim_ttl_ms`` and
    ``ttl_ms`` are what the call asked for, its client's defaults filled in. ``fence``: the one it stated.
    """

    client: str
    process: str
    seq: int
    op: Op
    start_us: int
    end_us: int
    allowed_ms: int
    outcome: str = "ok"
    key: str | None = None
    session_id: str | None = None
    kind: str = "turn"
    parent_key: str | None = None
    request_id: str | None = None
    seen_epoch: int | None = None
    expected_epoch: int | None = None
    fence: int | None = None
    bind: bool = False
    commit: bool = False
    wait_ms: int = 0
    claim_ttl_ms: int = 0
    ttl_ms: int = 0
    answer: Answer | None = None

    @property
    def target(self) -> Target | None:
        """The record that the call is about; None for a physical turn, which touches none."""
        if self.key is not None and (self.op != "resolve" or self.kind == "turn"):
            return ("conv", self.key)
        if self.session_id is not None and (self.op != "resolve" or self.bind):
            return ("sess", self.session_id)
        return None

    @property
    def known(self) -> Answer | None:
        """The store's own answer, or None: then whether the call took effect, and when, nobody knows."""
        return None if self.answer is None or self.answer.degraded else self.answer

    @property
    def unknown(self) -> bool:
        """It may have taken effect, or may still do so at any later time."""
        return (self.known is None and self.outcome in ("ok", "store_unavailable")) or self.outcome.startswith("crash:")

    @property
    def accepted(self) -> Answer | None:
        """The answer of a call that was carried out."""
        return self.known if self.outcome in ("ok", "not_durable") else None

    @property
    def durable(self) -> bool:
        """Acknowledged as durable."""
        return self.answer is not None and self.answer.durable is True


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="fault"):
    """Something that was done to the store. ``lossy``: from ``start_us`` until ``healed_us`` (every node agrees again, every
    replica is in sync) what is not durable may be lost, and a deposed primary may still answer. ``clock``: instants moved."""

    name: str
    node: str
    start_us: int
    over_us: int
    healed_us: int
    lossy: bool = False
    clock: bool = False


class Stall(msgspec.Struct, frozen=True, kw_only=True, tag="stall"):
    """A recording process did not get to run for that long: not the store's doing, and not Limpet's."""

    process: str
    start_us: int
    end_us: int


class Note(msgspec.Struct, frozen=True, kw_only=True, tag="note"):
    """What the run was: the seed that repeats its choices, the namespace, the topology."""

    seed: int
    namespace: str
    topology: str


Entry = Call | Fault | Stall | Note
_encode: Final = msgspec.json.Encoder().encode
_decoder: Final = msgspec.json.Decoder(Entry)


@dataclass(slots=True)
class History:
    """Everything that was recorded."""

    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Adds one entry."""
        if isinstance(entry, Call):
            self.calls.append(entry)
        elif isinstance(entry, Fault):
            self.faults.append(entry)
        elif isinstance(entry, Stall):
            self.stalls.append(entry)
        else:
            self.notes.append(entry)


class Writer:
    """Writes a history, up to ``limit`` entries. A history with holes would prove nothing, so whoever writes stops its work
    when ``full`` is True, instead of leaving calls out."""

    def __init__(self, path: Path, limit: int = MAX_CALLS) -> None:
        self._file = path.open("wb", buffering=1 << 16)
        self._left = limit

    @property
    def full(self) -> bool:
        """No further call may be begun. Calls under way still find room."""
        return self._left <= 0

    def write(self, entry: Entry) -> None:
        """Adds one line."""
        self._left -= 1
        self._file.write(_encode(entry) + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()


def load(paths: Iterable[Path]) -> History:
    """Reads the files of one run. Raises msgspec.DecodeError for what is no history."""
    history = History()
    for path in paths:
        with path.open("rb") as lines:
            for line in lines:
                history.add(_decoder.decode(line))
    history.calls.sort(key=lambda call: call.start_us)
    history.faults.sort(key=lambda fault: fault.start_us)
    return history
