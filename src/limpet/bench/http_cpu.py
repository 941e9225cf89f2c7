"""The CPU of a server's processes: on two cores, where load generator, server and store share them, the honest ratio."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["cpu_us"]

_PROC: Final = Path("/proc")
_TICK_US: Final = 1e6 / os.sysconf("SC_CLK_TCK")


def cpu_us(pid: int) -> float | None:
    """Microseconds of CPU that a process and its children have used so far; None where the system does not tell (not Linux)."""
    total = None
    for each in _family(pid):
        try:
            fields = (_PROC / str(each) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # no such system, or gone meanwhile
        total = (total or 0.0) + (int(fields[11]) + int(fields[12])) * _TICK_US
    return total


def _family(pid: int) -> Iterator[int]:
    yield pid
    for children in (_PROC / str(pid) / "task").glob("*/children"):
        for child in children.read_text().split():
            yield from _family(int(child))
