"""Profiles that users add in configuration (design, section 6).

{"my-router": {"fields": [{"header": "X-Affinity", "value": "scope", "limit": 64},
                          {"body": "routing.session", "charset": "[a-z0-9_]", "when": {"model": "acme/*"}}]},
 "dynamo-verbatim": {"profile": "dynamo", "value": "session_id"}}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from limpet.errors import InvalidRequest
from limpet.wire.headers import PROTOCOL_HEADERS, TOKEN
from limpet.wire.profiles import PROFILES, Field, Profile, Value, When, find_profile

__all__ = ["load_profiles"]

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_CLASS: Final = re.compile(r"(\[\^?(?:[^\[\]\\]|\\.)+\])\+?")
_SET_OPERATION: Final = re.compile(r"--|&&|\|\||~~")
_SEGMENT: Final = re.compile(r"[^.\x00-\x1f\x7f]+")
_HASHED: Final = "gwx_0123456789abcdef89abcdef"
"""The shape of a hashed value: a field that could not carry even this one would have no way out."""
_DEEPEST: Final = 8
_READ_ONLY: Final = frozenset({"model", "messages", "input", "prompt"})


class _FieldConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    header: str | None = None
    body: str | None = None
    value: Value = "scope"
    limit: int | None = None
    charset: str | None = None
    when: When = When()


def load_profiles(data: Mapping[str, Any] | None) -> dict[str, Profile]:
    """The user's own profiles by name, from configuration: an object of name -> profile.

    A profile is ``{"fields": [...]}`` or a built-in one with options, ``{"profile": name, "value": ..., "open": ...}``. A field
    has ``header`` or ``body`` (a path with dots), ``value`` (scope, session_id, parent_scope, worker, dp_rank, ttl; scope by
    default), ``limit`` (characters, at least 28), ``charset`` (a character class such as ``[A-Za-z0-9_-]``) and ``when``
    (``model``: one glob or several, ``action``: one or several of bind, continue, wait, none, ``final``, ``fork``).

    Raises :class:`~limpet.errors.InvalidRequest`, naming the profile and the field, for anything else.
    """
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise InvalidRequest("Profiles must be an object of name -> profile.", field="profiles")
    return {_name(name): _profile(name, spec) for name, spec in data.items()}


def _name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequest("A profile's name must be 1 to 63 of a-z, 0-9, _ and -.", field="profiles")
    if name in PROFILES:
        raise InvalidRequest(f"The profile {name} comes with Limpet; give yours another name.", field=f"profiles.{name}")
    return name


def _profile(name: str, spec: object) -> Profile:
    where = f"profiles.{name}"
    if not isinstance(spec, Mapping):
        raise InvalidRequest(f"{where} must be an object with fields, or with profile and its options.", field=where)
    if "profile" in spec:
        return msgspec.structs.replace(find_profile(spec), name=name)
    if set(spec) != {"fields"} or not isinstance(spec["fields"], list | tuple) or not spec["fields"]:
        raise InvalidRequest(f"{where} must have a list of fields, of at least one, and nothing else.", field=where)
    fields = tuple(_field(f"{where}.fields[{n}]", field) for n, field in enumerate(spec["fields"]))
    places = [(f.header or "").lower() or f.path for f in fields if f.when == When()]
    if len(set(places)) != len(places):
        raise InvalidRequest(f"{where} writes one place twice without a condition.", field=where)
    return Profile(name, fields)


def _field(where: str, spec: object) -> Field:
    if not isinstance(spec, Mapping):
        raise InvalidRequest(f"{where} must be an object.", field=where)
    try:
        config = msgspec.convert({**spec, "when": _when(spec.get("when"))}, _FieldConfig)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{where} is not a field of a profile: {error}.", field=where) from None
    if (config.header is None) == (config.body is None):
        raise InvalidRequest(f"{where} must name a header or a body path, exactly one of the two.", field=where)
    if config.header is not None:
        _check_header(where, config.header)
    else:
        _check_path(where, config.body or "")
    if config.limit is not None and config.limit < len(_HASHED):
        raise InvalidRequest(f"{where}.limit must be at least {len(_HASHED)}, the length of a hashed value.", field=where)
    return Field(
        header=config.header,
        body=config.body,
        value=config.value,
        limit=config.limit,
        charset=_charset(where, config.charset),
        when=config.when,
    )


def _when(when: object) -> object:
    """One glob or action may stand for a list of one."""
    if when is None:
        return {}
    if not isinstance(when, Mapping):
        return when
    return {k: (v,) if k in ("model", "action") and isinstance(v, str) else v for k, v in when.items() if v is not None}


def _check_header(where: str, name: str) -> None:
    if not TOKEN.fullmatch(name):
        raise InvalidRequest(f"{where}.header is not a header name.", field=where)
    if name.lower() in PROTOCOL_HEADERS:
        raise InvalidRequest(f"{where}.header is a header of HTTP itself; a profile cannot write it.", field=where)


def _check_path(where: str, path: str) -> None:
    names = path.split(".")
    if len(names) > _DEEPEST or not all(_SEGMENT.fullmatch(name) for name in names):
        raise InvalidRequest(f"{where}.body must be 1 to {_DEEPEST} names with dots between them.", field=where)
    if names[0] in _READ_ONLY:
        raise InvalidRequest(f"{where}.body would overwrite the request's own {names[0]}.", field=where)


def _charset(where: str, charset: str | None) -> str | None:
    if charset is None:
        return None
    # Only a class of characters: a free pattern could take exponential time on a key that somebody else chose. And none
    # whose meaning Python reserves the right to change.
    match = _CLASS.fullmatch(charset)
    try:
        if match and not _SET_OPERATION.search(charset) and re.fullmatch(f"(?:{match[1]})+", _HASHED):
            return match[1]
    except re.error:
        pass
    raise InvalidRequest(
        f"{where}.charset must be a character class such as [A-Za-z0-9_-] that holds a-z, 0-9 and _.", field=where
    )
