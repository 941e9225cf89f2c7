"""What stamping needs to know of a turn, read from any of the forms that a caller may hold (design, section 8)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

import msgspec

from limpet.errors import InvalidRequest
from limpet.results import Action, Binding, Resolution

__all__ = ["DEFAULT_TTL_S", "TurnLike", "TurnValues", "turn_values"]

DEFAULT_TTL_S: Final = 300
"""Seconds. The default bind ttl (design, section 5); used where a turn does not name one."""

_ACTIONS: Final = ("bind", "continue", "wait")


class TurnLike(Protocol):
    """A turn object: it has a resolution, and may have ``binding``, ``final`` and ``ttl_s`` (seconds)."""

    @property
    def resolution(self) -> Resolution: ...


class TurnValues(msgspec.Struct, frozen=True, kw_only=True):
    """The values that profiles write. ``ttl_s`` is whole seconds; ``fence`` is a tick; ``worker`` is opaque text."""

    scope: str
    session_id: str | None = None
    key: str | None = None
    parent_scope: str | None = None
    action: Action | None = None
    worker: str | None = None
    dp_rank: int | None = None
    ttl_s: int = DEFAULT_TTL_S
    final: bool = False
    rebound: bool = False
    fence: int | None = None


def turn_values(turn: Resolution | TurnLike | Mapping[str, Any]) -> TurnValues:
    """Read a Resolution, a turn with a ``resolution``, or a mapping with ``scope, session_id, parent_scope, action, worker,
    dp_rank, ttl_s, final`` (and ``rebound``, ``fence``, ``key``; or a ``binding``, as in a Resolution's JSON).

    A null is an absent value. Raises :class:`~limpet.errors.InvalidRequest` for anything else.
    """
    if isinstance(turn, Mapping):
        return _checked(turn, turn.get("binding"))
    resolution = turn if isinstance(turn, Resolution) else getattr(turn, "resolution", None)
    if not isinstance(resolution, Resolution):
        raise InvalidRequest("turn must be a Resolution, a turn, or a mapping that names its scope.", field="turn")
    binding = getattr(turn, "binding", None) or resolution.binding
    fields = {
        "scope": resolution.scope,
        "session_id": resolution.session_id,
        "key": resolution.key,
        "parent_scope": resolution.parent_scope,
        "ttl_s": getattr(turn, "ttl_s", None),
        "final": getattr(turn, "final", None),
    }
    return _checked(fields, binding)


def _checked(fields: Mapping[str, Any], binding: Mapping[str, Any] | Binding | None) -> TurnValues:
    def get(name: str) -> Any:
        value = fields.get(name)
        if value is not None or binding is None:
            return value
        return binding.get(name) if isinstance(binding, Mapping) else getattr(binding, name)

    if binding is not None and not isinstance(binding, Mapping | Binding):
        raise InvalidRequest("turn.binding must be an object.", field="turn.binding")
    scope = _text(fields.get("scope"), "scope")
    if scope is None:
        raise InvalidRequest("The turn names no scope, so there is nothing to put on the wire.", field="turn.scope")
    action = get("action")
    if action is not None and action not in _ACTIONS:
        raise InvalidRequest("turn.action must be bind, continue or wait.", field="turn.action")
    ttl = fields.get("ttl_s")
    return TurnValues(
        scope=scope,
        session_id=_text(fields.get("session_id"), "session_id"),
        key=_text(fields.get("key"), "key"),
        parent_scope=_text(fields.get("parent_scope"), "parent_scope"),
        action=cast("Action | None", action),
        worker=_worker(get("worker")),
        dp_rank=_whole(get("dp_rank"), "dp_rank"),
        ttl_s=DEFAULT_TTL_S if ttl is None else _seconds(ttl),
        final=_flag(fields.get("final"), "final"),
        rebound=_flag(get("rebound"), "rebound"),
        fence=_whole(get("fence"), "fence"),
    )


def _text(value: Any, name: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"turn.{name} must be non-empty text.", field=f"turn.{name}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"turn.{name} holds a lone surrogate, which UTF-8 cannot carry.", field=f"turn.{name}") from None
    return value


def _worker(value: Any) -> str | None:
    # Dynamo's ids are integers beyond 2^53: an int is exact, a float has lost digits already.
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _text(value, "worker")


def _whole(value: Any, name: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidRequest(f"turn.{name} must be an integer that is not negative.", field=f"turn.{name}")
    return value


def _seconds(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 31_536_000:
        raise InvalidRequest("turn.ttl_s must be a number of seconds, above 0 and at most 31536000.", field="turn.ttl_s")
    return math.ceil(value)


def _flag(value: Any, name: str) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise InvalidRequest(f"turn.{name} must be true or false.", field=f"turn.{name}")
    return value
