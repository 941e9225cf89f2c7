"""The one clock of the process. Decisions use the store's clock; this one only bounds waits and dates log lines.

The only module that may read the system's clocks (ruff TID251 refuses it elsewhere).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["EPOCH_UNIX_S", "Clock", "SystemClock", "tick_to_unix_ms"]

EPOCH_UNIX_S = 1_767_225_600
"""2026-01-01T00:00Z in Unix seconds: ticks are microseconds since then (design, section 2)."""


class Clock(Protocol):
    """What the library asks of a clock."""

    def monotonic(self) -> float:
        """Seconds, never going back; for durations."""

    def now(self) -> datetime:
        """The wall time, aware, in UTC."""


class SystemClock:
    """The system's clocks."""

    def monotonic(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def now(self) -> datetime:
        """The wall time in UTC."""
        return datetime.now(UTC)  # noqa: TID251  (this is the one place)


def tick_to_unix_ms(tick: int) -> int:
    """The Unix time, in milliseconds, at which a tick was issued (a tick that ran ahead of the clock reads late)."""
    return EPOCH_UNIX_S * 1000 + tick // 1000
