"""Which workers behind a router served lately, and which did not: where a lost conversation may go at once.

A router may go on choosing a dead worker until its lease ends (Dynamo: about ten seconds), so that a retry without a pin
would fail again as likely as not. This is one replica's own view, and only a proposal: the answer tells who served.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["SeenWorkers"]

FRESH_S = 120.0
LOST_S = 30.0
MOST = 4096


class SeenWorkers:
    """Worker ids by when they last served, and when they were last found lost (monotonic seconds)."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._good: OrderedDict[str, float] = OrderedDict()
        self._lost: OrderedDict[str, float] = OrderedDict()

    def good(self, worker: str) -> None:
        """It served."""
        self._lost.pop(worker, None)
        _note(self._good, worker, self._monotonic())

    def lost(self, worker: str) -> None:
        """It is gone, or refuses us."""
        self._good.pop(worker, None)
        _note(self._lost, worker, self._monotonic())

    def choose(self, text: str, without: str | None) -> str | None:
        """A worker that served lately, the same for the same text; None if none is known."""
        now = self._monotonic()
        fit = [
            worker
            for worker, at in self._good.items()
            if worker != without and now - at < FRESH_S and now - self._lost.get(worker, float("-inf")) > LOST_S
        ]
        return max(fit, key=lambda worker: hashlib.sha256(f"{text}\0{worker}".encode()).digest(), default=None)


def _note(book: OrderedDict[str, float], worker: str, at: float) -> None:
    book[worker] = at
    book.move_to_end(worker)
    if len(book) > MOST:
        book.popitem(last=False)
