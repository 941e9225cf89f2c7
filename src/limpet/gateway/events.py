"""Server-Sent Events on their way through: cut at the blank lines, never held back beyond one."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["EventCutter", "data_of", "split_events", "with_data"]

_BLANK: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n|\r\n\n")
_LINE: Final = re.compile(rb"\r\n|\n|\r")
MAX_EVENT: Final = 4 * 1024 * 1024
"""A longer event is passed on in pieces: it is not ours to limit, but not ours to hold either."""


class EventCutter:
    """Gives back what came, up to the last complete event, so that a stream that breaks can still end with a valid one."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """Complete events (maybe several), or nothing yet."""
        if not self._rest and chunk.endswith(b"\n\n"):
            return chunk
        data = self._rest + chunk
        end = len(data) if len(data) > MAX_EVENT else max(_after(data, b"\n\n"), _after(data, b"\r\n\r\n"), _after(data, b"\r\r"))
        self._rest = data[end:]
        return data[:end]

    def end(self) -> bytes:
        """What came after the last complete event."""
        rest, self._rest = self._rest, b""
        return rest


def _after(data: bytes, blank: bytes) -> int:
    at = data.rfind(blank)
    return 0 if at < 0 else at + len(blank)


def split_events(data: bytes) -> list[bytes]:
    """The events of a piece of stream, each with the blank line that ends it."""
    out: list[bytes] = []
    at = 0
    for match in _BLANK.finditer(data):
        out.append(data[at : match.end()])
        at = match.end()
    if at < len(data):
        out.append(data[at:])
    return out


def data_of(event: bytes) -> bytes:
    """The data of one event; empty if it has none."""
    parts = [line[5:].removeprefix(b" ") for line in _LINE.split(event) if line.startswith(b"data:")]
    return b"\n".join(parts)


def with_data(event: bytes, data: bytes) -> bytes:
    """The event with other data (one line), its other lines as they are."""
    lines = _LINE.split(event)
    ending = b"\r\n" if b"\r\n" in event else b"\n"
    out: list[bytes] = []
    placed = False
    for line in lines:
        if not line.startswith(b"data:"):
            out.append(line)
        elif not placed:
            placed = True
            out.append(b"data: " + data)
    return ending.join(out)
