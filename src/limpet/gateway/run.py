"""``limpet gateway``: the whole of it, from settings to exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from limpet.gateway.build import build
from limpet.gateway.options import Options
from limpet.service.server import Program
from limpet.service.server import run as run_program
from limpet.settings import Settings

__all__ = ["DEFAULT_PORT", "GATEWAY", "run"]

DEFAULT_PORT: Final = 5468
MEMO_TTL_MS: Final = 1000
"""The gateway's memo where nobody set one (design, section 5: Memo)."""

GATEWAY: Final = Program(build, "limpet.gateway.worker", DEFAULT_PORT, "it speaks the API of its upstreams")


def run(settings: Settings, upstreams: Sequence[str] = (), profile: str | None = None) -> int:
    """Serve until SIGTERM or SIGINT.

    Args:
        settings: ``upstreams`` and ``profile`` in it count where the arguments name none.
        upstreams: URLs.
        profile: a wire profile's name, or that of one in ``settings.profiles``.

    Returns:
        0 after a graceful end, 1 when it could not start, 2 when the settings ask for something that is refused.

    Raises:
        InvalidRequest: no upstream or profile, or one that is not valid.
    """
    changes: dict[str, object] = {}
    if upstreams:
        changes["upstreams"] = tuple(upstreams)
    if profile is not None:
        changes["profile"] = profile
    if "memo_ttl_ms" not in settings.model_fields_set:
        changes["memo_ttl_ms"] = MEMO_TTL_MS
    chosen = settings.model_copy(update=changes)
    Options.of(chosen)  # what is wrong with them is said before anything starts
    return run_program(chosen, GATEWAY)
