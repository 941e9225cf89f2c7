"""What the driver and a gateway process say to each other: one JSON document a line, over the process's stdin and stdout."""

from __future__ import annotations

import msgspec

__all__ = [
    "Advance",
    "Advanced",
    "Command",
    "Confirm",
    "Confirmed",
    "Failed",
    "Ready",
    "Reply",
    "Setup",
    "Turn",
    "TurnDone",
]


class Setup(msgspec.Struct, frozen=True):
    """The first line a gateway reads. Times in milliseconds, ``idle_s`` in seconds."""

    name: str
    url: str
    namespace: str
    partitions: int
    workers: list[str]
    claim_ttl_ms: int
    touch_granularity_ms: int
    idle_s: float
    seed: int


class Turn(msgspec.Struct, frozen=True, tag="turn", tag_field="op"):
    """One request of a conversation. ``idle``: with the idle policy. ``hold``: claim, and never get to the confirm."""

    id: int
    key: str
    session_id: str
    idle: bool = False
    hold: bool = False


class Advance(msgspec.Struct, frozen=True, tag="advance", tag_field="op"):
    """``/new``."""

    id: int
    key: str


class Confirm(msgspec.Struct, frozen=True, tag="confirm", tag_field="op"):
    """A confirm with the fence of a dead gateway's claim, as if its packet had been on the way all the time."""

    id: int
    key: str
    fence: int


Command = Turn | Advance | Confirm


class Ready(msgspec.Struct, frozen=True, tag="ready", tag_field="op"):
    """The gateway's client is connected."""

    pid: int


class TurnDone(msgspec.Struct, frozen=True, tag="turned", tag_field="op"):
    """What came of one request: as the coordinator decided it, and (``alone_*``) as this process would have by itself.

    ``bound``: this request confirmed the binding. ``alone_picked``: this process saw the conversation for the first time
    and chose ``alone_worker`` by itself.
    """

    id: int
    epoch: int | None
    scope: str
    created: bool
    reset: str | None
    action: str | None
    worker: str | None
    fence: int | None
    bound: bool
    degraded: bool
    alone_worker: str
    alone_picked: bool
    alone_scope: str


class Advanced(msgspec.Struct, frozen=True, tag="advanced", tag_field="op"):
    """The answer to :class:`Advance`."""

    id: int
    epoch: int
    applied: bool


class Confirmed(msgspec.Struct, frozen=True, tag="confirmed", tag_field="op"):
    """The answer to :class:`Confirm`: ``refused`` if the fence was stale, as it has to be."""

    id: int
    refused: bool


class Failed(msgspec.Struct, frozen=True, tag="failed", tag_field="op"):
    """A command that raised. ``id`` 0: the gateway could not start."""

    id: int
    message: str


Reply = Ready | TurnDone | Advanced | Confirmed | Failed
