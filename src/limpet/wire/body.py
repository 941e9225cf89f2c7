"""A JSON body of which only the touched fields are ever decoded.

The members of an object stay verbatim bytes (:class:`msgspec.Raw`) until somebody asks for one, so key order and the exact
text of every foreign number (integers beyond 64 bits, ``1.0``, ``1e400``, ``0.10``) survive; only white space between the
members of an object that was changed is lost. Of a repeated member the last value is kept, which is the one that was read; the
others go nowhere, changed or not.
A plain ``dict`` goes through the same code: its values are simply decoded already.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from limpet.errors import InvalidRequest

__all__ = ["MISSING", "Body", "array_of", "is_null", "like", "object_of", "text_of"]

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)
_LONE: Final = re.compile("[\ud800-\udfff]")
_WHITE: Final = re.compile(r"[ \t\n\r]*")

MISSING: Final = object()
"""What :meth:`Body.get` answers for a field that is not there (null is there)."""


class Body:
    """The fields of one request body, by path (``("nvext", "session_control")``). Never changes what it was made from.

    Raises :class:`~limpet.errors.InvalidRequest` (a ValueError) for bytes that are not one JSON object in UTF-8.
    """

    __slots__ = ("_changed", "_root", "_source")

    def __init__(self, source: bytes | bytearray | memoryview | Mapping[str, Any]) -> None:
        self._changed = False
        if isinstance(source, Mapping):
            self._source: bytes | None = None
            self._root: dict[str, Any] = dict(source)
            return
        if not isinstance(source, bytes | bytearray | memoryview):
            raise InvalidRequest("The body must be an object, or the bytes of a JSON object.", field="body")
        self._source = bytes(source)
        root = _open_object(self._source)
        if root is None:
            raise InvalidRequest("The body is JSON but not an object, so nothing was sent.", field="body")
        self._root = root

    def copy(self) -> Body:
        """A body that can be changed without this one; what was read is not read again."""
        twin = Body.__new__(Body)
        twin._source, twin._changed, twin._root = (
            self._source,
            self._changed,
            dict(self._root),
        )  # what is nested is copied on the way to it
        return twin

    def get(self, path: tuple[str, ...]) -> Any:
        """The value at ``path``, maybe still raw; :data:`MISSING` if the field or an object on the way is not there."""
        node = self._descend(path)
        return MISSING if node is None else node.get(path[-1], MISSING)

    def text(self, path: tuple[str, ...]) -> str | None:
        """The string at ``path``; None if there is none."""
        return text_of(self.get(path))

    def set(self, path: tuple[str, ...], value: Any) -> None:
        """Put ``value`` at ``path``. Whatever on the way is no object is replaced by one."""
        node = self._root
        for name in path[:-1]:
            child = object_of(node.get(name))
            node[name] = {} if child is None else child
            node = node[name]
        node[path[-1]] = value
        self._changed = True

    def remove(self, path: tuple[str, ...]) -> None:
        """Take the field away if it is there, and each object that this leaves empty."""
        while path:
            node = self._descend(path)
            if node is None or node.pop(path[-1], MISSING) is MISSING:
                return
            self._changed = True
            if node:
                return
            path = path[:-1]

    def finish(self) -> Any:
        """The body in the form that it came in: a new dict, or bytes (the very same if nothing was changed)."""
        if self._source is None:
            return self._root
        if self._changed or self._repeats(self._source):
            return msgspec.json.encode(self._root)
        return self._source

    def _repeats(self, source: bytes) -> bool:
        """Whether ``source`` names a member twice. The last was read; at the first, which may hold the key, nobody looked."""
        root = self._root
        size = len(msgspec.json.encode(root))  # the shortest way to say it
        if len(source) == size:
            return False
        members = [
            b"%b: %b" % (msgspec.json.encode(name), value if isinstance(value, msgspec.Raw) else msgspec.json.encode(value))
            for name, value in root.items()
        ]
        if source == b"{%b}" % b", ".join(members):  # as Python's json says it
            return False
        try:
            return len(_scan(source.decode(), keyed=True)) != len(root)
        except InvalidRequest:  # this way is not as deep as the one that it was read by
            return True

    def _descend(self, path: tuple[str, ...]) -> dict[str, Any] | None:
        """The object that holds the last name of ``path``. Those on the way are replaced by copies of their own."""
        node = self._root
        for name in path[:-1]:
            child = object_of(node.get(name))
            if child is None:
                return None
            node[name] = child
            node = child
        return node


def is_null(value: Any) -> bool:
    """Whether a value, raw or decoded, is null."""
    return value is None or (isinstance(value, msgspec.Raw) and bytes(value) == b"null")


def text_of(value: Any) -> str | None:
    """The string that a value, raw or decoded, is; None if it is something else."""
    if isinstance(value, str):
        return value
    if not isinstance(value, msgspec.Raw):
        return None
    try:
        return _TEXT.decode(value)
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError:  # a string with an escaped lone surrogate, or a value of another type that holds one
        data = bytes(value)
        return str(json.loads(data)) if data.startswith(b'"') else None


def like(old: Any, text: str) -> Any:
    """``text`` as a value for the body that ``old`` came from: half a surrogate pair must stay an escape in bytes."""
    if isinstance(old, msgspec.Raw) and not text.isascii():
        return msgspec.Raw(json.dumps(text).encode()) if _LONE.search(text) else text
    return text


def object_of(value: Any) -> dict[str, Any] | None:
    """A new dict of the members of an object, raw or decoded; None if the value is something else."""
    if isinstance(value, Mapping):
        return dict(value)
    return _open_object(bytes(value)) if isinstance(value, msgspec.Raw) else None


def array_of(value: Any) -> list[Any] | None:
    """A new list of the items of an array, raw or decoded; None if the value is something else."""
    if isinstance(value, list | tuple):
        return list(value)
    if not isinstance(value, msgspec.Raw):
        return None
    try:
        return list(_ARRAY.decode(value))
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError:
        data = bytes(value)
        return [item for _, item in _scan(data.decode(), keyed=False)] if data.startswith(b"[") else None


def _open_object(data: bytes) -> dict[str, Any] | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("The body is not valid UTF-8, so it is no JSON and nothing was sent.", field="body") from None
    try:
        return dict(_OBJECT.decode(data))
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError as error:
        if "\\u" not in text:
            raise InvalidRequest(f"The body is not valid JSON ({error}), so nothing was sent.", field="body") from None
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply, so nothing was sent.", field="body") from None
    # Half of a surrogate pair, escaped, is JSON all the same (a client cut an emoji in two); msgspec refuses it.
    return dict(_scan(text, keyed=True)) if text.lstrip(" \t\n\r").startswith("{") else None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


# Numbers stay text: converting an integer of thousands of digits is refused, and slow before that.
_SCANNER: Final = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_refuse_constant)


def _scan(text: str, *, keyed: bool) -> list[tuple[str, msgspec.Raw]]:
    """The members of the object (``keyed``) or array that ``text`` is, each value verbatim; the slow, lenient way."""
    try:
        return _members(text, keyed=keyed)
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply, so nothing was sent.", field="body") from None
    except ValueError as error:
        raise InvalidRequest(f"The body is not valid JSON ({error}), so nothing was sent.", field="body") from None


def _members(text: str, *, keyed: bool) -> list[tuple[str, msgspec.Raw]]:
    members: list[tuple[str, msgspec.Raw]] = []
    closing = "}" if keyed else "]"
    at = _skip(text, _skip(text, 0) + 1)
    if text[at : at + 1] == closing:
        return _ended(text, at, members)
    while True:
        key = ""
        if keyed:
            if text[at : at + 1] != '"':
                raise ValueError(f"a key is missing at character {at}")
            key, at = _SCANNER.raw_decode(text, at)
            key.encode()  # a key that UTF-8 cannot carry could not be written again
            at = _skip(text, at)
            if text[at : at + 1] != ":":
                raise ValueError(f"a colon is missing at character {at}")
            at = _skip(text, at + 1)
        _, end = _SCANNER.raw_decode(text, at)
        members.append((key, msgspec.Raw(text[at:end].encode())))
        at = _skip(text, end)
        if text[at : at + 1] == closing:
            return _ended(text, at, members)
        if text[at : at + 1] != ",":
            raise ValueError(f"a comma is missing at character {at}")
        at = _skip(text, at + 1)


def _ended(text: str, at: int, members: list[tuple[str, msgspec.Raw]]) -> list[tuple[str, msgspec.Raw]]:
    if _skip(text, at + 1) != len(text):
        raise ValueError(f"more text after the end at character {at + 1}")
    return members


def _skip(text: str, at: int) -> int:
    match = _WHITE.match(text, at)
    return match.end() if match else at
