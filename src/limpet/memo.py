"""A bounded memory of resolutions in one process, so that a busy conversation's turns cost no round trip (design, section 5).

What makes it safe: an entry lives ``memo_ttl`` at most, and never past the instant at which idle could be due or its binding
over; an event from any replica drops it, also one that races the reply it would come from; while the subscription is
down nothing is kept; and a hit is an activity, which is written behind within one granularity.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from limpet.policy import Policy
from limpet.results import Resolution

__all__ = ["Memo", "MemoEntry"]

CAPACITY: Final = 65_536


class MemoEntry(NamedTuple):
    """A resolution, when it was read (monotonic seconds; wall time), and until when it may be used."""

    resolution: Resolution
    digest: str
    read_at: float
    good_until: float
    read_wall: datetime


class Memo:
    """Key -> resolution.

    Args:
        ttl_s: how long an entry may be used at most, in seconds.
        touch: called with (key, entry, bind_ttl_ms) at the first hit since the last written activity: it is to be written behind.
        capacity: entries kept; the oldest goes first.
    """

    __slots__ = (
        "_by_digest",
        "_downs",
        "_entries",
        "_flights",
        "_touch",
        "_touching",
        "_void",
        "capacity",
        "ttl_s",
        "up",
    )

    def __init__(self, ttl_s: float, touch: Callable[[str, MemoEntry, int], None], capacity: int = CAPACITY) -> None:
        self.ttl_s = ttl_s
        self.capacity = capacity
        self.up = False
        self._touch = touch
        self._entries: OrderedDict[str, MemoEntry] = OrderedDict()
        self._by_digest: dict[str, str] = {}
        self._touching: set[str] = set()
        self._flights: dict[str, int] = {}
        self._void: set[str] = set()
        self._downs = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(
        self, key: str, now: float, policy: Policy, bind_ttl_ms: int, seen_epoch: int, wall: Callable[[], datetime]
    ) -> Resolution | None:
        """The resolution, if it may be used for this very turn; ``now``: monotonic seconds; ``bind_ttl_ms``: 0 without bind."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if now >= entry.good_until:
            self.drop(entry.digest)
            return None
        resolution = entry.resolution
        if (bind_ttl_ms and resolution.binding is None) or seen_epoch > (resolution.epoch or 0):
            return None
        if policy.idle_s is not None and now >= entry.read_at + policy.idle_s:
            return None
        if policy.daily is not None and policy.boundaries(wall())[1] > entry.read_wall:
            return None
        if key not in self._touching:
            self._touching.add(key)
            self._touch(key, entry, bind_ttl_ms)
        return resolution

    def ask(self, digest: str) -> int:
        """To be called before the store is asked; :meth:`answer` ends it. An event in between makes the answer void."""
        self._flights[digest] = self._flights.get(digest, 0) + 1
        return self._downs

    def answer(self, key: str, digest: str, token: int, resolution: Resolution | None, now: float, wall: datetime) -> None:
        """Keeps what was answered if it may be kept: only ``continue`` and unbound answers without a reset, and only if
        nothing happened to the record since :meth:`ask`. None: the ask failed."""
        left = self._flights[digest] - 1
        void = digest in self._void or token != self._downs
        if left:
            self._flights[digest] = left
        else:
            del self._flights[digest]
            self._void.discard(digest)
        if resolution is None or void or not self.up or resolution.reset is not None:
            return
        good_until = now + self.ttl_s
        binding = resolution.binding
        if binding is not None:
            if binding.action != "continue":
                return
            good_until = min(good_until, now + (binding.expires_in_ms or 0) / 1000)
        if len(self._entries) >= self.capacity and key not in self._entries:
            self.drop(self._entries[next(iter(self._entries))].digest)
        self._entries[key] = MemoEntry(resolution, digest, now, good_until, wall)
        self._by_digest[digest] = key

    def touched(self, key: str) -> None:
        """The activity of this key's hits has been written; the next hit asks for another."""
        self._touching.discard(key)

    def drop(self, digest: str) -> None:
        """Forgets one entry."""
        key = self._by_digest.pop(digest, None)
        if key is not None:
            self._entries.pop(key, None)

    def event(self, digest: str) -> None:
        """Something happened to this record, somewhere."""
        if digest in self._flights:
            self._void.add(digest)
        self.drop(digest)

    def came_up(self) -> None:
        """The subscription is there: from now on events are heard."""
        self.up = True

    def down(self) -> None:
        """The subscription is gone: nothing that is kept or on its way can be trusted."""
        self.up = False
        self._downs += 1
        self._entries.clear()
        self._by_digest.clear()
