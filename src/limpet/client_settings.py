"""How a client behaves, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from limpet.bind import MAX_BIND_TTL_MS, MAX_CLAIM_TTL_MS
from limpet.errors import InvalidRequest
from limpet.validate import check_int, check_namespace, check_text

__all__ = ["Settings"]

MAX_RETENTION_S: Final = 315_360_000
"""Ten years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a client behaves. What ``config`` in the store holds (partitions, touch granularity) wins over these.

    ``deadline_ms``: how long any call may take. ``memo_ttl_ms``: 0 turns the memo off. ``holder``: who makes this replica's
    claims (default: host name and process id). ``durability``: ``replica``, ``aof``, ``none``, or None to choose by what the
    primary has (design, section 4).
    """

    namespace: str = "default"
    partitions: int = 1024
    scope_secret: str | None = None
    retention_s: float = 2_592_000
    touch_granularity_ms: int = 1000
    deadline_ms: int = 250
    memo_ttl_ms: int = 0
    bind_ttl_ms: int = 300_000
    claim_ttl_ms: int = 10_000
    holder: str | None = None
    durability: Literal["replica", "aof", "none"] | None = None
    durable_replicas: int | None = None

    def __post_init__(self) -> None:
        check_namespace(self.namespace)
        check_int(self.partitions, "partitions", 1, 16_384)
        check_int(self.touch_granularity_ms, "touch_granularity_ms", 0, 60_000)
        check_int(self.deadline_ms, "deadline_ms", 1, 60_000)
        check_int(self.memo_ttl_ms, "memo_ttl_ms", 0, 60_000)
        check_int(self.bind_ttl_ms, "bind_ttl_ms", 1000, MAX_BIND_TTL_MS)
        check_int(self.claim_ttl_ms, "claim_ttl_ms", 100, MAX_CLAIM_TTL_MS)
        if not 1 <= self.retention_s <= MAX_RETENTION_S:
            raise InvalidRequest("retention_s must be from 1 second to ten years.", field="retention_s")
        if self.holder is not None:
            check_text(self.holder, "holder")
