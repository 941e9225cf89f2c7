"""What a gateway replica does without a coordinator: a table of its own, as the peers have it.

On first sight of a conversation the process picks the least loaded worker that *it* knows of and keeps it; what the other
processes picked it cannot know. The affinity scope is made from the id at hand, which may be new with every response.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from limpet.clock import Clock
from limpet.scope import physical

__all__ = ["Table"]


class Table:
    """One process's session table.

    Args:
        workers: what there is to choose from.
        idle_s: an entry older than this, in seconds, is a new conversation.
        seed: settles ties between workers of equal load.
    """

    def __init__(self, workers: Sequence[str], idle_s: float, clock: Clock, seed: int) -> None:
        self._workers = list(workers)
        self._idle_s = idle_s
        self._clock = clock
        self._random = random.Random(seed)
        self._load: Counter[str] = Counter()
        self._entries: dict[str, tuple[str, float]] = {}

    def pick(self, key: str, *, idle: bool) -> tuple[str, bool]:
        """The worker of a conversation, and whether it was picked just now. ``idle``: the idle policy holds for it."""
        now = self._clock.monotonic()
        entry = self._entries.get(key)
        picked = entry is None or (idle and now > entry[1] + self._idle_s)
        if entry is not None and not picked:
            worker = entry[0]
        else:
            least = min(self._load[worker] for worker in self._workers)
            worker = self._random.choice([worker for worker in self._workers if self._load[worker] == least])
            self._load[worker] += 1
        self._entries[key] = (worker, now)
        return worker, picked

    def forget(self, key: str) -> None:
        """``/new`` arrived here: this process starts the conversation anew. The others have not heard of it."""
        self._entries.pop(key, None)

    @staticmethod
    def scope(session_id: str) -> str:
        """The affinity token that goes on the wire: made from the physical session id."""
        return physical(session_id)
