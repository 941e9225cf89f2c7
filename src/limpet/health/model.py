"""A check, the verdict over all of them, and the reading of INFO."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

__all__ = ["UNREACHED", "Check", "Health", "Info", "Infos", "Level", "among", "number", "parse_info"]

Info = dict[str, str]
Infos = dict[str, Info]
"""INFO of each primary, by its name; the name of the only one is empty."""
Level = Literal["ok", "warn", "fail"]
UNREACHED: Final = "The store could not be reached within the deadline; retry with the same request id."
"""How a call's error begins; a check leaves it away."""


class Check(msgspec.Struct, frozen=True):
    """One check. ``fail``: not ready. ``warn``: works, but with a risk that the message names."""

    name: str
    level: Level
    message: str


class Health(msgspec.Struct, frozen=True):
    """``ok`` is False when any check failed."""

    ok: bool
    checks: tuple[Check, ...]

    @staticmethod
    def of(checks: Iterable[Check]) -> Health:
        """The verdict over some checks."""
        found = tuple(checks)
        return Health(all(check.level != "fail" for check in found), found)


def parse_info(reply: bytes) -> Info:
    """The fields of an INFO reply."""
    pairs = (line.split(":", 1) for line in reply.decode("utf-8", "replace").splitlines() if ":" in line)
    return {name: value.strip() for name, value in pairs}


def number(info: Info, field: str) -> int:
    """A field as a number, 0 where it is missing or none."""
    text = info.get(field, "")
    return int(text) if text.isdigit() else 0


def among(names: Iterable[str]) -> str:
    """`` (on a, b)`` where there are several primaries, nothing where there is one."""
    named = sorted(name for name in names if name)
    return f" (on {', '.join(named)})" if named else ""
