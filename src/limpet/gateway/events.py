"""Server-Sent Events on their way through: cut at the blank lines, never held back beyond one."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["EventCutter", "data_of", "split_events", "with_data"]

_BLANK: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n|\r\n\n")
_LINE: Final = re.compile(rb"\r\n|\n|\r")
MAX_EVENT: Final = 1024 * 1024
"""A longer event is passed on as it comes, unread: it is not ours to limit, but not ours to hold either. Every connection may
hold this much."""
_BLANKS: Final = (b"\n\n", b"\n\r\n", b"\r\r")
_OVERLAP: Final = max(map(len, _BLANKS)) - 1


class EventCutter:
    """Gives back what came, up to the last complete event, so that a stream that breaks can still end with a valid one.

    ``unread``: so many of the first bytes of what :meth:`feed` gave back last are pieces of an event that is too long to hold.
    """

    __slots__ = ("_long", "_rest", "_tail", "unread")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._long = False
        self._tail = b""
        self.unread = 0

    @property
    def held(self) -> int:
        """The bytes that came and were not given back."""
        return len(self._rest)

    @property
    def inside(self) -> bool:
        """Whether what was given back ends in the middle of an event."""
        return self._long

    def feed(self, chunk: bytes) -> bytes:
        """Complete events (maybe several), pieces of one that is too long, or nothing yet."""
        self.unread = 0
        if self._long:
            return self._on(chunk)
        rest = self._rest
        if not rest and chunk.endswith(b"\n\n"):
            return chunk
        looked = max(0, len(rest) - _OVERLAP)  # what was held before holds no end but one that this chunk completes
        rest += chunk
        end = _last_end(rest, looked)
        if end == 0 and len(rest) > MAX_EVENT:
            self._long, end = True, len(rest)
            self._tail, self.unread = bytes(rest[-_OVERLAP:]), end
        if end == 0:
            return b""
        out = bytes(memoryview(rest)[:end])
        self._rest = rest[end:]
        return out

    def _on(self, chunk: bytes) -> bytes:
        """More of an event that is too long: on it goes. What follows its end is held again."""
        seen, before = self._tail + chunk, len(self._tail)
        ends = [at + len(blank) for blank in _BLANKS if (at := seen.find(blank)) >= 0]
        if not ends:
            self._tail, self.unread = seen[-_OVERLAP:], len(chunk)
            return chunk
        self._long, self._tail = False, b""
        over = min(ends) - before
        more = self.feed(chunk[over:])
        self.unread += over  # if the next one is too long as well, nothing stands between the two
        return chunk[:over] + more

    def end(self) -> bytes:
        """What came after the last complete event."""
        rest, self._rest = bytes(self._rest), bytearray()
        self.unread = 0
        return rest


def _last_end(data: bytearray, start: int) -> int:
    """Where the last complete event ends that ends after ``start``; 0 if none does."""
    ends = [at + len(blank) for blank in _BLANKS if (at := data.rfind(blank, start)) >= 0]
    return max(ends, default=0)


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
