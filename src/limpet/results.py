"""What the calls answer: frozen, typed, and encodable to JSON or MessagePack as they are (design, sections 5 and 7).

Units: every ``*_ms`` is milliseconds; ``epoch_started_ms`` is Unix time. Epochs and fences are ticks (design, section 2).
"""

from __future__ import annotations

from typing import Literal

import msgspec

# gc=False: they hold texts, numbers and each other without cycles, and a replica keeps tens of thousands of them.
__all__ = ["Advanced", "Binding", "Forgotten", "Reset", "Resolution", "Suspended"]

Action = Literal["bind", "continue", "wait"]


class Reset(msgspec.Struct, frozen=True, gc=False):
    """A replacement that this very call made. ``new_conversation`` is False only for ``rollback``: the bucket changed,
    the transcript did not."""

    reason: str
    previous_epoch: int | None
    previous_scope: str | None
    new_conversation: bool


class Binding(msgspec.Struct, frozen=True, gc=False):
    """What one epoch of a conversation is bound to.

    ``action`` tells the caller what to do: ``bind`` (you hold the claim: dispatch with the bind marker, then confirm),
    ``continue`` (go to ``worker``), ``wait`` (claimed by another, not yet confirmed). ``state`` is ``unbound``,
    ``claimed`` or ``bound``. ``retry_after_ms`` is set for ``wait`` only.
    """

    action: Action | None
    state: Literal["unbound", "claimed", "bound"]
    worker: str | None = None
    address: str | None = None
    dp_rank: int | None = None
    holder: str | None = None
    fence: int | None = None
    expires_in_ms: int | None = None
    retry_after_ms: int | None = None
    rebound: bool = False
    incarnation: str | None = None
    durable: bool | None = None


class Resolution(msgspec.Struct, frozen=True, gc=False):
    """Where a turn belongs. ``source`` is ``declared`` (the key's scope) or ``physical`` (the session id's).

    ``degraded`` means that the store did not answer in time, so the scope is the physical one (G7); then ``epoch`` is None.
    ``durable`` is None when nobody was asked to acknowledge anything.
    """

    key: str | None
    session_id: str | None
    epoch: int | None
    ordinal: int | None
    scope: str
    source: Literal["declared", "physical"]
    created: bool = False
    epoch_reason: str | None = None
    epoch_started_ms: int | None = None
    reset: Reset | None = None
    binding: Binding | None = None
    parent_scope: str | None = None
    degraded: bool = False
    durable: bool | None = None


class Advanced(msgspec.Struct, frozen=True):
    """``applied`` is False when ``expected_epoch`` was not the current one; ``epoch`` is the current one either way."""

    epoch: int
    ordinal: int
    previous_epoch: int | None
    scope: str
    applied: bool
    durable: bool | None = None


class Suspended(msgspec.Struct, frozen=True):
    """``applied`` is False when there is no record of the key: its next turn starts a conversation anyway."""

    epoch: int | None
    applied: bool
    durable: bool | None = None


class Forgotten(msgspec.Struct, frozen=True):
    """``applied`` is False when there was nothing to forget, or ``expected_epoch`` was not the current one."""

    epoch: int | None
    applied: bool
    durable: bool | None = None
