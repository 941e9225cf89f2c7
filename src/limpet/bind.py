"""What a resolve asks for its binding (design, sections 5 and 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from limpet.errors import InvalidRequest
from limpet.validate import check_int, check_text

__all__ = ["MAX_BIND_TTL_MS", "MAX_CLAIM_TTL_MS", "MAX_EXCLUDED", "MAX_WAIT_MS", "Bind"]

MAX_BIND_TTL_MS: Final = 31_536_000_000
MAX_CLAIM_TTL_MS: Final = 3_600_000
MAX_WAIT_MS: Final = 30_000
MAX_EXCLUDED: Final = 64


class Bind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True):
    """What a resolve asks for its binding. Every field is optional.

    ``worker``: the caller's own candidate. ``pool``: let Limpet propose one. ``holder``: who makes the claim (default: this
    replica). ``ttl_ms``: 1 s..1 year, idle and sliding. ``claim_ttl_ms``: 0.1 s..1 h. ``wait_ms``: how long to wait for
    another's claim, at most 30 s. ``commit``: claim and confirm in one, for callers that cannot come back. ``exclude``: up to
    64 workers that are not to be proposed.
    """

    worker: str | None = None
    pool: str | None = None
    holder: str | None = None
    ttl_ms: int | None = None
    claim_ttl_ms: int | None = None
    wait_ms: int = 0
    commit: bool = False
    exclude: tuple[str, ...] = ()

    @staticmethod
    def parse(value: Bind | Mapping[str, object] | bool | None) -> Bind | None:
        """None and False: no binding asked for. True: the defaults. Raises InvalidRequest."""
        if value is None or value is False:
            return None
        if value is True:
            return _BIND_DEFAULTS
        if not isinstance(value, Bind):
            try:
                value = msgspec.convert(value, Bind)
            except msgspec.ValidationError as error:
                raise InvalidRequest(f"bind is not valid: {error}.", field="bind") from None
        for name in ("worker", "pool", "holder"):
            text = getattr(value, name)
            if text is not None:
                check_text(text, f"bind.{name}")
        if value.ttl_ms is not None:
            check_int(value.ttl_ms, "bind.ttl_ms", 1000, MAX_BIND_TTL_MS)
        if value.claim_ttl_ms is not None:
            check_int(value.claim_ttl_ms, "bind.claim_ttl_ms", 100, MAX_CLAIM_TTL_MS)
        check_int(value.wait_ms, "bind.wait_ms", 0, MAX_WAIT_MS)
        if len(value.exclude) > MAX_EXCLUDED:
            raise InvalidRequest(f"bind.exclude names more than {MAX_EXCLUDED} workers.", field="bind.exclude")
        for text in value.exclude:
            check_text(text, "bind.exclude")
        return value


_BIND_DEFAULTS: Final = Bind()
