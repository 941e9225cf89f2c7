"""A circuit breaker: while the store is known to be away, callers learn it at once instead of after a deadline each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from limpet.errors import StoreUnavailable

__all__ = ["Breaker", "NotTried"]

FAILURES: Final = 5
"""Calls in a row that got no answer before it opens."""
OPEN_S: Final = 0.5
"""How long it stays open before one call may try again."""


class NotTried(StoreUnavailable):
    """Refused by an open breaker: nothing was sent."""


class Breaker:
    """Closed: all pass. Open: none. After ``OPEN_S`` one call at a time tries; its success closes it.

    Args:
        monotonic: seconds, never going back.
    """

    __slots__ = ("_failures", "_monotonic", "_retry_at")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._failures = 0
        self._retry_at = 0.0

    @property
    def open(self) -> bool:
        """Whether calls are being refused."""
        return self._failures >= FAILURES

    def admits(self) -> bool:
        """Whether a call may be sent now. An open breaker admits one trial every ``OPEN_S``."""
        if self._failures < FAILURES:
            return True
        now = self._monotonic()
        if now < self._retry_at:
            return False
        self._retry_at = now + OPEN_S  # the next trial, should this one never report
        return True

    def succeeded(self) -> None:
        """The store answered."""
        self._failures = 0

    def failed(self) -> None:
        """The store did not answer in time, or could not be reached."""
        self._failures += 1
        if self._failures >= FAILURES:
            self._retry_at = self._monotonic() + OPEN_S
