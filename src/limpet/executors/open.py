"""Which topology a URL means."""

from __future__ import annotations

from collections.abc import Callable

from limpet.errors import InvalidRequest
from limpet.executors.topology import Standalone, Topology

__all__ = ["open_topology"]


def open_topology(url: str, on_batch: Callable[[int], None] | None = None) -> Topology:
    """``redis://``, ``rediss://``, ``unix://``: one primary.

    Raises InvalidRequest for a URL that is none of them.
    """
    scheme = url.partition("://")[0]
    if scheme in ("redis", "rediss", "unix"):
        return Standalone(url, on_batch)
    raise InvalidRequest(f"The store's URL begins with {scheme!r}; it must be redis://, rediss:// or unix://.", field="url")
