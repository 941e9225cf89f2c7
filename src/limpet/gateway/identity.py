"""Where a request's conversation key is read from (design, section 7): the first source that holds one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from limpet.errors import InvalidRequest
from limpet.validate import check_text
from limpet.wire.body import Body

__all__ = ["Found", "Sources", "header_text"]

Pairs = Sequence[tuple[bytes, bytes]]


class Found(NamedTuple):
    """A key, and the field that supplied it in the form that :func:`limpet.wire.stamp` takes as ``owned``."""

    key: str
    owned: str


class Sources:
    """The configured sources (``header:<name>``, ``body:<path>``), in order."""

    def __init__(self, sources: Iterable[str]) -> None:
        parts = [source.partition(":") for source in sources]
        self._sources = tuple((kind, name, name.lower().encode(), tuple(name.split("."))) for kind, _, name in parts)
        self.reads_body = any(kind == "body" for kind, *_ in self._sources)

    def find(self, headers: Pairs, body: Body | None) -> Found | None:
        """The key, or None if no source holds one. ``body`` None: only headers are looked at.

        Raises:
            InvalidRequest: the key is longer than 256 bytes (never cut), no UTF-8, holds a control character, or its header is
                there twice with two values.
        """
        for kind, name, wire, path in self._sources:
            if kind == "header":
                value = header_text(headers, wire, name)
                if value:
                    return Found(check_text(value, name), name.lower())
            elif body is not None:
                text = body.text(path)
                if text:
                    return Found(check_text(text, name), f"body.{name}")
        return None


def header_text(headers: Pairs, wire: bytes, name: str) -> str | None:
    """The text of a header; ``wire`` is its name in lower case. None if it is not there.

    Raises:
        InvalidRequest: it is there with two values, or is not UTF-8.
    """
    found: bytes | None = None
    for other, value in headers:
        if other == wire:
            if found is not None and value != found:
                raise InvalidRequest(f"{name} is given twice, with two values.", field=name)
            found = value
    if found is None:
        return None
    try:
        return found.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{name} is not valid UTF-8.", field=name) from None
