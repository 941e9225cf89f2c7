"""Keys that would stay for ever: nothing may be kept per dead conversation (design, section 4)."""

from __future__ import annotations

import redis

__all__ = ["immortal_keys"]

LASTING = (":clock", ":bound", ":config", ":workers")
"""How the keys end that have no TTL by design; their number does not grow with the conversations."""


def immortal_keys(client: redis.Redis) -> list[str]:
    """The keys of ours that have no TTL and should have one."""
    found = [key.decode() for key in client.scan_iter("limpet:*", count=1000)]
    return sorted(key for key in found if not key.endswith(LASTING) and client.pttl(key) == -1)
