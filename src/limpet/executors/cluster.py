"""Many primaries, each with some of the 16,384 slots: ``redis+cluster://``.

A key's slot follows from its hash tag, and all keys of one script share one, so a call goes to one node; calls to the same
node share its lane and its batches. The map of slots comes from ``CLUSTER SLOTS`` of a few nodes at once, and the latest view
counts. It is read again when a node redirects us (MOVED, which is also believed at once), refuses, or does not answer.
Replicas are never read: they redirect, and we never say READONLY.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

import hiredis
import structlog
from redis.crc import key_slot

from limpet.errors import StoreUnavailable
from limpet.executors.breaker import Breaker
from limpet.executors.lane import Lane, LaneLost, Unreachable
from limpet.executors.lookout import Lookout, answers
from limpet.executors.node import Kind, Node, NodeClient, OnBatch
from limpet.executors.slots import SLOTS, View, read_redirection, read_view
from limpet.executors.urls import Address, StoreUrl

__all__ = ["Cluster"]

log = structlog.get_logger("limpet.cluster")

ASKED: Final = 3
"""Nodes asked for their view at once."""
ANSWER_S: Final = 0.5
"""How long a node may take to tell its view, connecting included."""
GRACE_S: Final = 0.05
"""How long the others are waited for once one has answered."""
MAX_TAGS: Final = 65_536
"""Hash tags whose slot is remembered: four times the most partitions that a namespace may have."""
_NODE: Final = "node "
"""How the texts of :meth:`Cluster.primaries` begin; no key does."""


class Cluster:
    """See the module."""

    replicas_expected = 0  # there are clusters of primaries alone

    def __init__(self, url: StoreUrl, on_batch: OnBatch = None) -> None:
        self._url = url
        self._on_batch = on_batch
        self._slots: list[Node | None] = [None] * SLOTS
        self._owners: list[Node] = []
        self._nodes: dict[Address, Node] = {}
        self._tags: dict[str, int] = {}
        self._nobody = Breaker(asyncio.get_running_loop().time)
        self._why = "No node of the cluster has been reached yet."
        self._guests: set[Address] = set()
        self._last_client: Node | None = None
        self._lookout = Lookout(self._look)

    # -- what the executor asks ----------------------------------------------------------------------------------------

    def lane(self, key: str, kind: Kind) -> Lane | None:
        """The lane to the primary of the key's slot."""
        slot = self._tags.get(key.partition("}")[0])
        node = self._node_of(key) if slot is None else self._slots[slot]
        if node is None:
            return None
        lane = node.lanes.get(kind)
        return None if lane is None or lane.lost else lane

    def _node_of(self, key: str) -> Node | None:
        if not key:
            return self._any()
        if key.startswith(_NODE):
            return next((node for node in self._owners if node.name == key[len(_NODE) :]), None)
        tag = key.partition("}")[0]
        slot = self._tags.get(tag)
        if slot is None:
            if len(self._tags) >= MAX_TAGS:
                self._tags.clear()
            slot = key_slot(key.encode())
            if "}" in key:
                self._tags[tag] = slot
        return self._slots[slot]

    def _any(self) -> Node | None:
        """A primary, if possible one that is in use and answers."""
        owners = self._owners
        good = [node for node in owners if node.live() and not node.breaker.open] or [node for node in owners if node.live()]
        return random.choice(good or owners) if owners else None

    def breaker(self, key: str) -> Breaker:
        """That of the key's primary: one dead node must not keep calls from the others."""
        node = self._node_of(key)
        return self._nobody if node is None else node.breaker

    async def connect(self, key: str, kind: Kind, timeout_s: float) -> Lane:
        """Connects to the primary of the key's slot, reading the map first where it is not known."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        node = self._node_of(key)
        if node is None:
            self._lookout.suspect()
            await self._lookout.looked(timeout_s)
            node = self._node_of(key)
        if node is None:
            raise Unreachable(self._why)
        try:
            return await node.connect(kind, max(deadline - loop.time(), 0.001))
        except Unreachable:
            self._lookout.suspect()
            raise

    async def redirected(self, key: str, message: str, kind: Kind, lane: Lane | None, timeout_s: float) -> Lane | None:
        """MOVED is believed at once, and the map read again, once; ASK is followed for this call only."""
        asked = next((node for node in self._nodes.values() if lane in node.lanes.values()), None)
        home = asked.address if asked is not None and asked.address is not None else self._url.addresses[0]
        found = read_redirection(message, home)
        if found is None:
            if message.startswith(("CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING")):
                self._lookout.suspect()
            return None
        slot, address = found
        node = self._at(address)
        if message.startswith("MOVED"):
            self._slots[slot] = node
            if node not in self._owners:
                self._owners.append(node)
            self._lookout.once()
        else:
            self._guests.add(address)
        return await node.connect(kind, timeout_s)

    def suspect(self, key: str) -> None:
        """Reads the map, now and often for a while."""
        self._lookout.suspect()

    async def client(self) -> NodeClient:
        """A client to any primary (PUBLISH reaches all nodes), but not twice in a row to the same: it may be the dead one."""
        if not self._owners:
            await self._lookout.looked(2 * ANSWER_S)
        if not self._owners:
            raise Unreachable(self._why)
        others = [node for node in self._owners if node is not self._last_client] or self._owners
        live = [node for node in others if node.live() and not node.breaker.open]
        self._last_client = random.choice(live or others)
        return self._last_client.client()

    def primaries(self) -> list[str]:
        """A text per primary that stands for a key of it."""
        return [_NODE + node.name for node in self._owners] or [""]

    def lanes(self) -> list[Lane]:
        """At most two per node."""
        return [lane for node in self._nodes.values() for lane in node.live()]

    async def close(self) -> None:
        """Closes every lane."""
        await self._lookout.close()
        for node in list(self._nodes.values()):
            await node.close()

    # -- the map -------------------------------------------------------------------------------------------------------

    def _at(self, address: Address) -> Node:
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = Node(self._url, address, self._on_batch)
        return node

    async def _look(self) -> None:
        """Reads the map from whoever answers: nodes in use first, then the others, then those of the URL."""
        known = [node.address for node in self._nodes.values() if node.address is not None]
        random.shuffle(known)
        known.sort(key=lambda address: not self._nodes[address].live() or self._nodes[address].breaker.open)
        candidates = list(dict.fromkeys((*known, *self._url.addresses)))
        views: list[View] = []
        for start in range(0, len(candidates), ASKED):
            some = candidates[start : start + ASKED]
            views += await answers((self._ask(address) for address in some), ANSWER_S, GRACE_S)
            if any(view.works for view in views):
                break
        if not views:
            return
        view = max(views, key=lambda each: each.rank)
        if view.works or not self._owners:  # the view of a side that was cut off is better than none, and than nothing else
            self._apply(view)
        else:
            self._why = "The cluster says that it is down; it waits for a failover, or slots have no primary."

    async def _ask(self, address: Address) -> View | None:
        deadline = asyncio.get_running_loop().time() + ANSWER_S
        try:
            lane = await self._at(address).connect("shared", ANSWER_S)
            replies = [lane.send(("CLUSTER", what), deadline) for what in ("SLOTS", "INFO")]
            slots, info = await asyncio.gather(*replies)
            return read_view(slots, info, address)
        except (StoreUnavailable, LaneLost, hiredis.ReplyError) as error:
            self._why = f"A node of the cluster does not tell its slots: {error or 'the connection was lost'}"
            return None

    def _apply(self, view: View) -> None:
        slots: list[Node | None] = [None] * SLOTS
        owners: dict[Address, Node] = {}
        for first, last, address in view.ranges:
            node = owners[address] = self._at(address)
            slots[first : last + 1] = [node] * (last + 1 - first)
        before, self._slots, self._owners = self._owners, slots, list(owners.values())
        if not owners:
            self._why = "The cluster has no slots yet; create it (redis-cli --cluster create)."
        for address, node in list(self._nodes.items()):
            # A node that is asked for a slot on its way (ASK) may own none yet: it stays while it is connected. Any other, one
            # that lost its slots or follows another now, is left at once, with whatever is stuck there.
            if address not in owners and (address not in self._guests or address in view.replicas or not node.live()):
                del self._nodes[address]
                self._guests.discard(address)
                node.drop()
        if before and set(before) != set(self._owners):
            log.warning("primaries_changed", primaries=len(owners), epoch=view.epoch)
