"""Reads bindings out of what the scripts answer."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from limpet.calls import Answer
from limpet.errors import StaleFence, StoreCorrupt
from limpet.record import BOUND, CLAIMED, UNBOUND, Record, decode_record, split_reply
from limpet.results import Binding

__all__ = ["binding_of", "read_binding"]

_STATES: Final[tuple[Literal["unbound", "claimed", "bound"], ...]] = ("unbound", "claimed", "bound")
_State: TypeAlias = Annotated[int, msgspec.Meta(ge=UNBOUND, le=BOUND)]
_Outcome: TypeAlias = tuple[int, _State, int, str, int, int, int, int]
"""held, state, fence, worker, dp_rank, decided, behind, replayed (lua/README.md)."""


def binding_of(
    record: Record, now: int, grace_us: int, action: Literal["bind", "continue", "wait"] | None = None
) -> Binding | None:
    """The binding as it stands, or None when the epoch is unbound or what it had is over.

    Without an action the record tells it: a bound epoch is continued, a claimed one waited for.
    """
    state = record.state
    if state == UNBOUND or record.remaining_us(now) < 0:
        return None
    body = record.body
    if action is None:
        action = "continue" if state == BOUND else "wait"
    # What is told is the deadline; a binding's granularity of grace on top of it is ours.
    grace = grace_us if state == BOUND else 0
    left_ms = max(0, record.due - grace - max(now, record.last)) // 1000
    return Binding(
        action,
        _STATES[state],
        record.worker or None,
        None,
        body.dp_rank if body.dp_rank >= 0 else None,
        body.holder or None,
        body.fence,
        left_ms,
        left_ms + 1 if action == "wait" else None,
        body.rebound == 1,
        body.incarnation or None,
    )


def read_binding(name: str, fence: int, grace_us: int, reply: bytes) -> Answer:
    """The reply of a binding call. Raises StaleFence, with the binding that holds now."""
    now, raw, outcome = split_reply(reply)
    try:
        held, state, held_fence, worker, dp_rank, decided, behind, replayed = msgspec.convert(outcome, _Outcome)
    except msgspec.ValidationError:
        raise StoreCorrupt("The outcome of a binding call cannot be read; delete that key or restore it.") from None
    record = decode_record(raw)
    current = None if record is None or record.forgotten else binding_of(record, now, grace_us)
    if not held:
        raise StaleFence(
            f"Fence {fence} does not hold this binding now, so {name.removeprefix('binding_')} changed nothing; "
            + (f"fence {current.fence} does: follow it." if current else "the epoch is unbound: resolve again."),
            binding=current,
        )
    rebind = name == "binding_rebind"
    if current is not None and current.fence == held_fence and record is not None and record.state == state:
        action: Literal["bind", "continue"] = "bind" if state == CLAIMED else "continue"
        result = msgspec.structs.replace(current, action=action, retry_after_ms=None, rebound=rebind)
    else:
        # A repeated request whose binding has moved on since, or one that is over: its own first result, without a deadline.
        result = Binding(
            None if state == UNBOUND else "bind" if state == CLAIMED else "continue",
            _STATES[state],
            worker or None,
            None,
            dp_rank if dp_rank >= 0 else None,
            None,
            held_fence,
            rebound=rebind,
        )
    epoch = record.epoch if record else 0
    fence_now = record.body.fence if record else 0
    return Answer(result, bool(decided), bool(behind), bool(replayed), epoch, fence_now, decided == 1)
