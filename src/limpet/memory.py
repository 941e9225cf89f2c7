"""What a replica remembers of the epochs it served, so that an advance that the store lost is noticed (design, section 4).

Bounded, and only a help: values of it are passed to the scripts as *remembered*, which drop an implausible one instead of
refusing the turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

__all__ = ["EpochMemory"]

CAPACITY: Final = 65_536


class EpochMemory:
    """digest -> the largest epoch seen.

    Args:
        retention_s: a record may expire after this long without activity; then a memory of it means nothing any more.
        monotonic: seconds, never going back.
        capacity: entries kept; the oldest goes first.
    """

    __slots__ = ("_capacity", "_monotonic", "_retention_s", "_seen")

    def __init__(self, retention_s: float, monotonic: Callable[[], float], capacity: int = CAPACITY) -> None:
        self._retention_s = retention_s
        self._monotonic = monotonic
        self._capacity = capacity
        # Not a dict, whose oldest entry is behind the gaps that earlier ones left: at this size they cost a turn 30 us.
        self._seen: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def saw(self, digest: str, epoch: int) -> None:
        """This epoch of this key was served just now."""
        now = self._monotonic()
        before = self._seen.get(digest)
        if before is None:
            if len(self._seen) >= self._capacity:
                self._seen.popitem(last=False)
        elif before[0] > epoch:
            epoch = before[0]
        self._seen[digest] = (epoch, now)

    def recall(self, digest: str) -> int:
        """The largest epoch seen, or 0."""
        seen = self._seen.get(digest)
        if seen is None:
            return 0
        if self._monotonic() - seen[1] >= self._retention_s:
            del self._seen[digest]
            return 0
        return seen[0]

    def forget(self, digest: str) -> None:
        """The record was forgotten on purpose."""
        self._seen.pop(digest, None)
