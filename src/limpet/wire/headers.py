"""Request headers as they come: a mapping, or a sequence of pairs. Names compare without case; spelling and order stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from limpet.errors import InvalidRequest

__all__ = ["PROTOCOL_HEADERS", "TOKEN", "Headers", "is_safe"]

TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What a header name may be (RFC 9110, 5.6.2)."""

_SAFE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")

PROTOCOL_HEADERS: Final = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "authorization",
        "cache-control",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "date",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)
"""Headers of HTTP itself. A key that happens to equal the value of one (``42``, ``close``) does not make it ours."""


def is_safe(value: str) -> bool:
    """Whether a header can carry the value unchanged: printable ASCII, no space at an edge, not empty."""
    return _SAFE.fullmatch(value) is not None


class Headers:
    """A copy of the caller's headers that can be read and changed by name.

    Raises :class:`~limpet.errors.InvalidRequest` for anything but text names and values (None is an absent value).
    """

    __slots__ = ("_kind", "_pairs")

    def __init__(self, source: Mapping[str, str] | Sequence[tuple[str, str]] | None) -> None:
        self._kind: Callable[[list[Any]], Any] = list
        if source is None or isinstance(source, Mapping):
            self._kind = dict
            pairs: list[Any] = list(source.items()) if source else []
        elif isinstance(source, str | bytes) or not isinstance(source, Iterable):
            raise InvalidRequest("headers must be a mapping or a sequence of (name, value) pairs.", field="headers")
        else:
            pairs = list(source)
            if isinstance(source, tuple):
                self._kind = tuple
        for pair in pairs:
            if (
                not isinstance(pair, tuple | list)
                or len(pair) != 2
                or not isinstance(pair[0], str)
                or not isinstance(pair[1], str | None)
            ):
                raise InvalidRequest("headers must be pairs of text; decode bytes as latin-1.", field="headers")
        self._pairs = pairs

    @classmethod
    def of(cls, pairs: list[tuple[str, str]]) -> Headers:
        """Headers that are known to be pairs of text; the list becomes this object's own."""
        headers = cls.__new__(cls)
        headers._kind, headers._pairs = list, pairs
        return headers

    def values(self, name: str) -> list[str]:
        """All values of a header, in order."""
        name = name.lower()
        return [value for other, value in self._pairs if value is not None and other.lower() == name]

    def items(self) -> list[tuple[str, str]]:
        """(lower-case name, value) of every header."""
        return [(name.lower(), value) for name, value in self._pairs if value is not None]

    def set(self, name: str, value: str) -> None:
        """Make this the one header of that name, at the place of the first one there was, else at the end."""
        lower = name.lower()
        pair: Any = [name, value] if self._pairs and isinstance(self._pairs[0], list) else (name, value)
        pairs: list[Any] = []
        placed = False
        for old in self._pairs:
            if old[0].lower() != lower:
                pairs.append(old)
            elif not placed:
                pairs.append(pair)
                placed = True
        self._pairs = pairs if placed else [*pairs, pair]

    def drop(self, name: str, doomed: Callable[[str], bool]) -> None:
        """Take away each header of that name whose value is ``doomed``."""
        lower = name.lower()
        self._pairs = [p for p in self._pairs if p[0].lower() != lower or p[1] is None or not doomed(p[1])]

    def finish(self) -> Any:
        """The headers in the kind that they came in: a dict for any mapping, a tuple for a tuple, else a list."""
        return self._kind(self._pairs)
