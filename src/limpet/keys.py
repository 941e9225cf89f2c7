"""The only place that builds a Redis key (design, section 4).

A raw conversation key or session id never appears in one: only its digest does. All keys that one script touches carry
the hash tag ``{<ns>:<p>}``, so that they lie in one Redis Cluster slot.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

__all__ = ["Domain", "Keyspace", "digest", "keyspace"]

Domain = Literal["conv", "sess"]


def digest(text: str) -> str:
    """sha256 of the UTF-8 text, its first 32 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Keyspace:
    """The key names of one namespace. ``partitions`` is fixed per namespace (``config`` in the store holds it)."""

    namespace: str
    partitions: int = 1024
    _prefixes: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tags = tuple(f"limpet:{{{self.namespace}:{p}}}:" for p in range(self.partitions))
        object.__setattr__(self, "_prefixes", tags)

    def partition(self, dig: str) -> int:
        """The partition of a digest: its first 8 hex digits as a number, modulo ``partitions``."""
        return int(dig[:8], 16) % self.partitions

    def record(self, domain: Domain, dig: str) -> str:
        """``limpet:{<ns>:<p>}:conv:<digest>`` or ``...:sess:<digest>``: the record of a key or of a session id."""
        return f"{self._prefixes[int(dig[:8], 16) % self.partitions]}{domain}:{dig}"

    def clock(self, partition: int) -> str:
        """``limpet:{<ns>:<p>}:clock``: the last tick issued in a partition."""
        return self._prefixes[partition] + "clock"

    def bound(self, partition: int) -> str:
        """``limpet:{<ns>:<p>}:bound``: the sorted set of a partition's bindings by deadline."""
        return self._prefixes[partition] + "bound"

    def resp(self, dig: str) -> str:
        """``limpet:{<ns>:<p>}:resp:<digest>``: response id -> key."""
        return f"{self._prefixes[self.partition(dig)]}resp:{dig}"

    @property
    def config(self) -> str:
        """``limpet:{<ns>}:config``: schema, partitions, touch granularity."""
        return f"limpet:{{{self.namespace}}}:config"

    @property
    def workers(self) -> str:
        """``limpet:{<ns>}:workers``: worker -> state."""
        return f"limpet:{{{self.namespace}}}:workers"

    @property
    def events(self) -> str:
        """``limpet:{<ns>}:events``: the pub/sub channel."""
        return f"limpet:{{{self.namespace}}}:events"


@lru_cache(maxsize=64)
def keyspace(namespace: str, partitions: int) -> Keyspace:
    """A shared :class:`Keyspace`; building one formats every partition's prefix once."""
    return Keyspace(namespace, partitions)
