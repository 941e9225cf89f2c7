"""``limpet serve``: options over settings, then the service's own runner."""

from __future__ import annotations

from typing import Any

from limpet.settings import Settings

__all__ = ["serve"]


def serve(**flags: Any) -> int:
    """Serves until SIGTERM or Ctrl-C. ``flags``: settings by name, None where the option was not given."""
    settings = Settings.load(**flags)
    from limpet.service.server import run

    return run(settings)
