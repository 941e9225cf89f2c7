"""Which fields of a request are not the caller's explicit choice, because they supplied the conversation key or hold it.

Such a field is replaced or dropped (design, section 6): it may be somebody's phone number, and it would keep the provider on
the bucket of the key when the epoch has moved on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from limpet.errors import InvalidRequest
from limpet.wire.body import MISSING, Body
from limpet.wire.headers import PROTOCOL_HEADERS, Headers

__all__ = ["KEY_PATHS", "Owned"]

KEY_PATHS: Final = (("session_id",), ("prompt_cache_key",))
"""The body fields that a key is read from by default (design, section 7). Only these, and the profile's own, are taken for a
copy of the key by their value: a ``model`` or ``user`` that happens to equal the key is still the caller's."""

_BODY_MARKS: Final = ("body.", "body:", "body ")


class Owned:
    """What ``owned`` means for one request. An entry is, first hit wins: ``body.<path>``; the name of a header that is
    there; the path of a body field that is there; else a value, namely the key's.

    ``scope``: of the turn, once it is known. A request that was stamped before holds the scope where it held the key, and the
    scope is never the key."""

    __slots__ = ("_headers", "_paths", "_values", "scope")

    def __init__(self, entries: Iterable[str], headers: Headers, body: Body | None, key: str | None) -> None:
        self.scope: str | None = None
        self._headers: set[str] = set()
        self._paths: set[tuple[str, ...]] = set()
        values: set[str | None] = {key}
        for entry in (entries,) if isinstance(entries, str) else entries:
            if not isinstance(entry, str):
                raise InvalidRequest("owned must hold names of headers, body paths or the key's value, as text.", field="owned")
            marked = entry.lower().startswith(_BODY_MARKS)
            path = tuple((entry[5:] if marked else entry).split("."))
            there = headers.values(entry)
            if not marked and there:
                self._headers.add(entry.lower())
                values.update(there)
            elif marked or (body is not None and body.get(path) is not MISSING):
                self._paths.add(path)
                values.add(body.text(path) if body is not None else None)
            else:
                values.add(entry)
        self._values = {value for value in values if value}

    @property
    def paths(self) -> frozenset[tuple[str, ...]]:
        """Body paths that supplied the key."""
        return frozenset(self._paths)

    def header(self, name: str, value: str) -> bool:
        """Whether this header supplied the key or holds its value."""
        name = name.lower()
        return name in self._headers or (name not in PROTOCOL_HEADERS and self.value(value))

    def field(self, path: tuple[str, ...], text: str | None) -> bool:
        """Whether this body field supplied the key or, being one of those that may, holds its value."""
        return path in self._paths or self.value(text)

    def value(self, text: str | None) -> bool:
        """Whether a text is the key's value."""
        return text in self._values and text != self.scope
