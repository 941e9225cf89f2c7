"""Live bindings by worker, counted in the store and shared for a moment: counting reads the index of all bindings."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from limpet.service.clients import Entry

__all__ = ["Counts"]

FRESH_S: Final = 1.0
SHARE: Final = 20
"""A count that took long is kept so many times that long, so that counting never takes more than a twentieth."""
MAX_NAMESPACES: Final = 64


class _Count:
    __slots__ = ("again_at", "lock", "value")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.again_at = float("-inf")
        self.value: Mapping[str, int] = Counter()


class Counts:
    """One count per namespace."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._counts: OrderedDict[str, _Count] = OrderedDict()

    async def of(self, entry: Entry) -> Mapping[str, int]:
        """Worker -> live claims and bindings; "" stands for claims that name no worker yet. Raises StoreUnavailable."""
        count = self._counts.setdefault(entry.namespace, _Count())
        self._counts.move_to_end(entry.namespace)
        if len(self._counts) > MAX_NAMESPACES:
            self._counts.popitem(last=False)
        async with count.lock:
            start = self._monotonic()
            if start >= count.again_at:
                count.value = await entry.client.bindings_by_worker()
                now = self._monotonic()
                count.again_at = now + max(FRESH_S, SHARE * (now - start))
            return count.value
