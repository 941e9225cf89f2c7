"""Put a turn's scope where the provider wants it (design, section 6, "common rules").

An explicit value from the caller wins; a field that supplied the key, or holds the key's value, is not explicit. Null is no
value. Foreign fields are kept. The input is never mutated. A value beyond a limit is hashed, never cut.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from limpet.context import published
from limpet.results import Resolution
from limpet.wire.body import MISSING, Body, array_of, is_null, object_of, text_of
from limpet.wire.headers import Headers, is_safe
from limpet.wire.owned import KEY_PATHS, Owned
from limpet.wire.profiles import Field, Profile, find_profile
from limpet.wire.turn import TurnLike, TurnValues, turn_values

__all__ = ["Draft", "Stamped", "bounded", "stamp"]

H = TypeVar("H", bound="Mapping[str, str] | Sequence[tuple[str, str]]")
B = TypeVar("B", bound="bytes | Mapping[str, Any] | None")

_REPLACEABLE: Final = "nvext"
"""The one field that is replaced by an object when it is something else; the server would refuse the request anyway."""


class Stamped(msgspec.Struct, Generic[H, B], frozen=True):
    """The request to send. ``headers`` and ``body`` are new, and of the kind that came in (any mapping becomes a dict)."""

    headers: H
    body: B


def stamp(
    profile: str | Profile | Mapping[str, Any],
    headers: H,
    body: B,
    turn: Resolution | TurnLike | Mapping[str, Any],
    owned: Iterable[str] = (),
) -> Stamped[H, B]:
    """Stamp a request for a provider.

    ``profile``: a name, a Profile, or ``{"profile": "dynamo", "value": "session_id"}``. ``headers``: a mapping, or a sequence of
    pairs, of text. ``body``: a dict (also an "extra body" that an SDK merges later), the raw bytes of a JSON object, or None (no
    body: only headers are stamped). ``turn``: see :func:`limpet.wire.turn.turn_values`; a scope published in
    :mod:`limpet.context` goes before its own. ``owned``: the headers and body paths (``body.session_id``) that supplied the key,
    or its value.

    Bytes come back as the very same bytes if nothing changes; else key order and the exact text of every foreign value
    stay. Raises :class:`~limpet.errors.InvalidRequest` (a ValueError) for bytes that are not a JSON object and for a
    malformed turn, :class:`~limpet.errors.UnknownProfile` for a profile that nobody defined.
    """
    values = turn_values(turn)
    return Draft(find_profile(profile), headers, body, values.key, owned).stamp(values)


class Draft:
    """A request that is to be stamped, as far as that can go before it is known with what: a gateway does this while it waits
    for the store. To be stamped once.

    ``headers`` and ``owned`` as in :func:`stamp`; ``key``: what a field may hold a copy of. Raises as :func:`stamp`.
    """

    __slots__ = ("_body", "_copies", "_fields", "_heads", "_model", "_owned", "_profile")

    def __init__(
        self, profile: Profile, headers: Any, body: bytes | Mapping[str, Any] | Body | None, key: str | None, owned: Iterable[str]
    ) -> None:
        self._profile = profile
        self._body = body
        self._heads = headers if isinstance(headers, Headers) else Headers(headers)
        self._fields = body.copy() if isinstance(body, Body) else None if body is None else Body(body)
        self._owned = Owned(owned, self._heads, self._fields, key)
        self._model = self._fields.text(("model",)) if self._fields is not None and _reads_model(profile) else None
        self._copies = _copies(profile, self._heads, self._fields, self._owned)

    def stamp(self, turn: TurnValues) -> Stamped[Any, Any]:
        """Put the turn's values in."""
        values = _published(turn)
        heads, fields, mine, profile = self._heads, self._fields, self._owned, self._profile
        mine.scope = values.scope
        for field in profile.fields:
            value = _value(field, values, self._model)
            if field.header is not None:
                if field.beside is not None and not _carries(heads, field.beside, values):
                    value = None
                _stamp_header(heads, field, field.header, None if value is None else str(value), mine)
            elif fields is not None:
                _stamp_body(fields, field, value, mine)
        if self._copies:
            _drop(self._copies, heads, fields, mine)
        return Stamped(heads.finish(), self._body if fields is None else fields.finish())


def _published(turn: TurnValues) -> TurnValues:
    """Published > resolved (design, section 5, "Context"), but for a fork: its parent may have published, and a fork keeps its
    own bucket (G6)."""
    scope = published()
    if scope is None or scope == turn.scope or turn.parent_scope is not None:
        return turn
    return msgspec.structs.replace(turn, scope=scope)


def bounded(value: str, field: Field) -> str:
    """The value if the field can carry it, else ``gwx_`` and 24 hex digits of its sha256: hashed, never cut, so that two
    long values that begin alike stay two."""
    return value if _fits(value, field) else "gwx_" + hashlib.sha256(value.encode()).hexdigest()[:24]


def _fits(value: str, field: Field) -> bool:
    if field.limit is not None and (len(value.encode()) if field.limit_bytes else len(value)) > field.limit:
        return False
    if field.header is not None and not is_safe(value):
        return False
    return field.charset is None or _charset(field.charset).fullmatch(value) is not None


@lru_cache(maxsize=64)
def _charset(one: str) -> re.Pattern[str]:
    return re.compile(f"(?:{one})+")


def _value(field: Field, turn: TurnValues, model: str | None) -> str | int | None:
    """What belongs in the field on this turn; None for nothing."""
    when = field.when
    if when.action and (turn.action or "none") not in when.action:
        return None
    if when.final is not None and when.final != turn.final:
        return None
    if when.fork is not None and when.fork != (turn.parent_scope is not None):
        return None
    if when.model and not (model is not None and any(fnmatchcase(model.lower(), glob.lower()) for glob in when.model)):
        return None
    if field.literal is not None:
        return field.literal
    if field.value == "ttl":
        return turn.ttl_s
    if field.value == "dp_rank":
        return turn.dp_rank
    if field.value == "worker":  # a hashed worker would name nobody
        return turn.worker if turn.worker is not None and _fits(turn.worker, field) else None
    text: str | None = getattr(turn, field.value)
    if text is not None and field.fenced and turn.rebound and turn.fence is not None:
        text = f"{text}-{turn.fence}"  # a frontend that knows the old binding would answer 400 to the new pin
    return None if text is None else field.prefix + bounded(text, field)


def _carries(headers: Headers, name: str, turn: TurnValues) -> bool:
    return turn.worker is not None and headers.values(name) == [turn.worker]


def _stamp_header(headers: Headers, field: Field, name: str, value: str | None, owned: Owned) -> None:
    there = headers.values(name)
    explicit = not all(owned.header(name, old) for old in there)
    if explicit or value is None or (field.do == "keep" and not there):
        headers.drop(name, lambda old: owned.header(name, old))
    else:
        headers.set(name, value)


def _stamp_body(body: Body, field: Field, value: str | int | None, owned: Owned) -> None:
    path = field.path
    if field.do == "remove":
        body.remove(path)
        return
    if _blocked(body, path):
        return
    old = body.get(path)
    if field.do == "add":
        _add(body, field, old, value, owned)
        return
    text = text_of(old)
    mine = old is not MISSING and owned.field(path, text)
    absent = old is MISSING or is_null(old) or (field.nonempty and text == "")
    if value is None:
        if mine and not absent:
            body.remove(path)
    elif text != value and (mine or (absent and field.do != "keep")):
        body.set(path, value)


def _add(body: Body, field: Field, old: Any, value: str | int | None, owned: Owned) -> None:
    """A list gains the value once. A list item with the same prefix is the caller's own choice, unless it holds the key."""
    prefix = field.prefix
    items = array_of(old)
    if items is None:
        if value is not None and (old is MISSING or is_null(old) or field.path[0] == _REPLACEABLE):
            body.set(field.path, [value])
        return
    kept = [item for item in items if not (prefix and _is_owned(text_of(item), prefix, owned))]
    texts = [text for item in kept if (text := text_of(item)) is not None]
    taken = any(text.startswith(prefix) for text in texts) if prefix else value in texts
    if value is not None and not taken:
        kept.append(value)
    if len(kept) != len(items) or (value is not None and not taken):
        body.set(field.path, kept)


def _is_owned(text: str | None, prefix: str, owned: Owned) -> bool:
    return text is not None and text.startswith(prefix) and owned.value(text[len(prefix) :])


def _blocked(body: Body, path: tuple[str, ...]) -> bool:
    """Whether something of the caller's that is no object stands where the path wants one."""
    if path[0] == _REPLACEABLE:
        return False
    for depth in range(1, len(path)):
        value = body.get(path[:depth])
        if value is MISSING or is_null(value):
            return False
        if object_of(value) is None:
            return True
    return False


@lru_cache(maxsize=64)
def _places(profile: Profile) -> tuple[frozenset[str], frozenset[tuple[str, ...]]]:
    """The header names and the body paths that a profile writes itself."""
    names = frozenset(f.header.lower() for f in profile.fields if f.header is not None)
    return names, frozenset(f.path for f in profile.fields if f.body is not None)


@lru_cache(maxsize=64)
def _reads_model(profile: Profile) -> bool:
    return any(field.when.model for field in profile.fields)


class _Copies(NamedTuple):
    headers: list[str]
    paths: list[tuple[str, ...]]


def _copies(profile: Profile, headers: Headers, body: Body | None, owned: Owned) -> _Copies | None:
    """What holds the key, unless that turns out to be the scope, and is no field of this profile."""
    written, written_paths = _places(profile)
    names = [name for name, value in headers.items() if owned.header(name, value) and name not in written]
    paths: list[tuple[str, ...]] = []
    if body is not None:
        found = owned.paths.union(path for path in KEY_PATHS if owned.value(body.text(path)))
        paths = [path for path in found if path not in written_paths]
    return _Copies(names, paths) if names or paths else None


def _drop(copies: _Copies, headers: Headers, body: Body | None, owned: Owned) -> None:
    """It does not go upstream."""
    for name in copies.headers:
        headers.drop(name, lambda old, name=name: owned.header(name, old))  # type: ignore[misc]
    if body is not None:
        for path in copies.paths:
            if path in owned.paths or owned.value(body.text(path)):
                body.remove(path)
