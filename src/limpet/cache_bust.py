"""Cache-bust markers for benchmark replays (design, section 6, "Cache-bust markers").

A replay must not be served from the prefixes that an earlier run left in the cache, so each conversation gets a marker of its
own, always at the same place of its history. Applying twice is applying once: a marker at its edge is not added again (at
the edge, not anywhere, since a user may quote one).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, get_args

from limpet.errors import InvalidRequest
from limpet.wire.body import MISSING, Body, array_of, is_null, like, object_of, text_of

__all__ = ["TARGETS", "Target", "apply", "apply_to_body", "marker_for"]

Target = Literal["none", "system_prefix", "system_suffix", "first_turn_prefix", "first_turn_suffix"]

TARGETS: Final[tuple[str, ...]] = get_args(Target)
"""Where a marker may go; ``none`` is off."""

_GAP: Final = "\n\n"
_SYSTEM_ROLES: Final = ("system", "developer")
_TEXT_TYPES: Final = ("text", "input_text")

B = TypeVar("B", bound="bytes | Mapping[str, Any]")


def marker_for(scope: str) -> str:
    """``[rid:<12 hex>]``, the first 12 hex digits of the scope's sha256."""
    return f"[rid:{hashlib.sha256(scope.encode()).hexdigest()[:12]}]"


def apply(messages: Sequence[Mapping[str, Any]], marker: str, target: str, fork: bool = False) -> list[Mapping[str, Any]]:
    """The messages of a chat request with the marker in place: a new list; the input is not changed.

    ``system_*`` marks the first system (or developer) message, and without one the first user message; ``first_turn_*`` the
    first user message of the history, also when a replay resumes later. A text gets the marker and a blank line, an empty
    one becomes the bare marker, a list of parts gets a text part of its own. A ``fork`` inherits its parent's marked history,
    so nothing is added. Raises :class:`~limpet.errors.InvalidRequest` for an unknown target or an empty marker.
    """
    where = _where(marker, target, fork)
    return list(messages) if where is None else _mark_messages(list(messages), marker, *where, part_type="text")


def apply_to_body(body: B, marker: str, target: str, fork: bool = False) -> B:
    """The body of a request (a dict, or raw JSON bytes) with the marker in place; the input is not changed.

    ``messages`` (chat), ``input`` with ``instructions`` (``/v1/responses``) and a text ``prompt`` (``/v1/completions``) are
    known. ``instructions`` count as the first system message, a text ``input`` or ``prompt`` as the first user turn. A request
    that continues a stored one (``previous_response_id``, ``conversation``) does not hold the first user turn, so only
    a system target can be marked in it. Bytes keep key order and the exact text of every value that is not marked; they
    come back as they are if nothing is. Raises :class:`~limpet.errors.InvalidRequest` as :func:`apply` does, and for bytes that
    are not a JSON object.
    """
    where = _where(marker, target, fork)
    opened = Body(body)
    if where is not None:
        _mark_body(opened, marker, *where)
    marked: B = opened.finish()
    return marked


def _where(marker: str, target: str, fork: bool) -> tuple[bool, bool] | None:
    """(on the system message, at the front), or None if nothing is to be marked."""
    if target not in TARGETS:
        raise InvalidRequest(f"The cache-bust target must be one of {', '.join(TARGETS)}.", field="cache_bust")
    if target == "none" or fork:
        return None
    if not isinstance(marker, str) or not marker:
        raise InvalidRequest("The cache-bust marker must be non-empty text.", field="marker")
    return target.startswith("system_"), target.endswith("_prefix")


def _mark_body(body: Body, marker: str, on_system: bool, front: bool) -> None:
    messages = body.get(("messages",))
    turns = array_of(messages)
    if turns is not None:
        _put(body, "messages", turns, _mark_messages(turns, marker, on_system, front, part_type="text"))
        return
    if on_system and body.text(("instructions",)):
        _put_text(body, "instructions", marker, front)
        return
    continues = any(not _absent(body.get((name,))) for name in ("previous_response_id", "conversation"))
    items = array_of(body.get(("input",)))
    if items is not None:
        here = not continues
        marked = _mark_messages(items, marker, on_system, front, part_type="input_text", first_turn_here=here)
        _put(body, "input", items, marked)
    elif not continues:
        _put_text(body, "input", marker, front)
        _put_text(body, "prompt", marker, front)


def _absent(value: Any) -> bool:
    return value is MISSING or is_null(value)


def _put(body: Body, name: str, old: list[Any], new: list[Any]) -> None:
    if new is not old:
        body.set((name,), new)


def _put_text(body: Body, name: str, marker: str, front: bool) -> None:
    old = body.get((name,))
    text = text_of(old)
    if text is not None and not _at_edge(text, marker, front):
        body.set((name,), like(old, _joined(text, marker, front)))


def _mark_messages(
    messages: list[Any], marker: str, on_system: bool, front: bool, *, part_type: str, first_turn_here: bool = True
) -> list[Any]:
    """A copy with one message marked; the very same list if there is nothing to do."""
    index = _find(messages, on_system, first_turn_here)
    message = None if index is None else object_of(messages[index])
    if index is None or message is None:
        return messages
    content = _mark_content(message.get("content"), marker, front, part_type)
    if content is None:
        return messages
    return [*messages[:index], {**message, "content": content}, *messages[index + 1 :]]


def _find(messages: list[Any], on_system: bool, first_turn_here: bool) -> int | None:
    """The index of the message to mark. No more messages are opened than it takes."""
    first_user: int | None = None
    for index, message in enumerate(messages):
        role = text_of((object_of(message) or {}).get("role"))
        if on_system and role in _SYSTEM_ROLES:
            return index
        if role == "user" and first_user is None and first_turn_here:
            first_user = index
            if not on_system:
                return index
    return first_user


def _mark_content(content: Any, marker: str, front: bool, part_type: str) -> Any:
    """The marked content; None if it is marked already, or is nothing that could be."""
    if is_null(content):
        return marker
    text = text_of(content)
    if text is not None:
        return None if _at_edge(text, marker, front) else like(content, _joined(text, marker, front))
    parts = array_of(content)
    if parts is None:
        return None
    edge = _part_text(parts[0 if front else -1]) if parts else None
    if edge is not None and _at_edge(edge, marker, front):
        return None
    own = {"type": part_type, "text": marker}
    return [own, *parts] if front else [*parts, own]


def _part_text(part: Any) -> str | None:
    fields = object_of(part)
    if fields is None:
        return text_of(part)
    return text_of(fields.get("text")) if text_of(fields.get("type")) in _TEXT_TYPES else None


def _at_edge(text: str, marker: str, front: bool) -> bool:
    return text.startswith(marker) if front else text.endswith(marker)


def _joined(text: str, marker: str, front: bool) -> str:
    if not text:
        return marker
    return marker + _GAP + text if front else text + _GAP + marker
