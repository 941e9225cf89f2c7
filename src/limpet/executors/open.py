"""Which topology a URL means."""

from __future__ import annotations

from collections.abc import Callable

from limpet.executors.cluster import Cluster
from limpet.executors.sentinel import Sentinel
from limpet.executors.topology import Standalone, Topology
from limpet.executors.urls import parse_store_url

__all__ = ["open_topology"]


def open_topology(url: str, on_batch: Callable[[int], None] | None = None) -> Topology:
    """The topology of a URL (:mod:`limpet.executors.urls`); connects to nothing yet. To be called in the running loop.

    Raises InvalidRequest for a URL that is not valid.
    """
    parsed = parse_store_url(url)
    if parsed.kind == "sentinel":
        return Sentinel(parsed, on_batch)
    if parsed.kind == "cluster":
        return Cluster(parsed, on_batch)
    return Standalone(parsed, on_batch)
