"""Where a key's primary is. One class per topology; the executor asks it for a lane and tells it what went wrong.

A topology owns its lanes. ``shared`` lanes carry the turns; ``durable`` ones carry the calls that end in a WAIT, which
counts its own connection's writes and blocks it (design, section 4).
"""

from __future__ import annotations

from typing import Protocol

from limpet.executors.breaker import Breaker
from limpet.executors.lane import Lane
from limpet.executors.node import Kind, Node, NodeClient, OnBatch, must_be_primary
from limpet.executors.urls import StoreUrl

__all__ = ["Kind", "Standalone", "Topology"]


class Topology(Protocol):
    """What the executor asks of a topology. ``key`` is a key of ours, a text from :meth:`primaries`, or "" for any primary."""

    replicas_expected: int
    """Replicas that a decision waits for even before any was seen: a client may begin in the middle of a failover."""

    def lane(self, key: str, kind: Kind) -> Lane | None:
        """The live lane to the primary that holds this key, or None if there is none right now."""

    def breaker(self, key: str) -> Breaker:
        """The breaker of that primary (a lane carries its own as ``lane.breaker``)."""

    async def connect(self, key: str, kind: Kind, timeout_s: float) -> Lane:
        """The lane, connecting first where needed.

        Raises Unreachable when another try may help, else StoreUnavailable.
        """

    async def redirected(self, key: str, message: str, kind: Kind, lane: Lane | None, timeout_s: float) -> Lane | None:
        """``lane`` answered with a redirection or a refusal that passes (MOVED, ASK, READONLY, LOADING ...): learns from it.

        A lane means: send it there, once. Raises Unreachable.
        """

    def suspect(self, key: str) -> None:
        """A call for this key got no answer, or its lane was lost: looks, in the background, whether the primary has changed."""

    async def client(self) -> NodeClient:
        """A redis-py client for the rare commands and for pub/sub, on a node that can serve them; the caller closes it.

        Raises Unreachable.
        """

    def primaries(self) -> list[str]:
        """One text that the other methods take for a key per primary, to ask each something."""

    def lanes(self) -> list[Lane]:
        """All live lanes."""

    async def close(self) -> None:
        """Closes every lane."""


class Standalone:
    """One primary at a fixed address: ``redis://``, ``rediss://``, ``unix://``. The name may come to mean another server (DNS,
    a virtual address), so a server that turns out to be a replica is left and the address connected anew."""

    replicas_expected = 0

    def __init__(self, url: StoreUrl, on_batch: OnBatch = None) -> None:
        self._node = Node(url, url.addresses[0] if url.addresses else None, on_batch, must_be_primary)

    def lane(self, key: str, kind: Kind) -> Lane | None:
        """The one lane of that kind."""
        lane = self._node.lanes.get(kind)
        return None if lane is None or lane.lost else lane

    def breaker(self, key: str) -> Breaker:
        """There is one."""
        return self._node.breaker

    async def connect(self, key: str, kind: Kind, timeout_s: float) -> Lane:
        """Connects once for all who wait."""
        return await self._node.connect(kind, timeout_s)

    async def redirected(self, key: str, message: str, kind: Kind, lane: Lane | None, timeout_s: float) -> Lane | None:
        """Nothing to learn, the caller retries; after READONLY over a new connection."""
        if message.startswith("READONLY") and lane is not None and lane in self._node.lanes.values():
            self._node.drop()
        return None

    def suspect(self, key: str) -> None:
        """There is nowhere else to look."""

    async def client(self) -> NodeClient:
        """A plain client to the same server."""
        return self._node.client()

    def primaries(self) -> list[str]:
        """There is one."""
        return [""]

    def lanes(self) -> list[Lane]:
        """At most two."""
        return self._node.live()

    async def close(self) -> None:
        """Closes every lane, also one that is being opened."""
        await self._node.close()
