"""The upstreams that one namespace's conversations may go to: those of the configuration, and those of a registered pool.

It is the :class:`limpet.opinion.Opinion` of the namespace's client, so that placement and rebinding are the library's own, over
the registry as this gateway takes it:

- an upstream of its configuration is there whether or not anybody has registered it yet, or lately; a drained one is drained;
- with ``LIMPET_POOL`` the pool's other workers are there too, at the address that they registered;
- without it no other worker is ever proposed, whatever the registry holds: requests carry their callers' credentials.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from limpet.gateway.options import Options
from limpet.gateway.problems import AllDrained, NoUpstream
from limpet.gateway.upstreams import Upstream, of_worker, preferred
from limpet.gateway.vitals import Vitals
from limpet.service.logs import logger
from limpet.workers import HEARTBEAT_TTL_MS, Snapshot, Worker

__all__ = ["Fleet"]

MAX_POOL: Final = 4096
"""Workers of a pool that one gateway sends to; the rest is left to others."""


class Fleet:
    """``seen``: whether the registry has been read at all."""

    def __init__(self, options: Options, vitals: Vitals) -> None:
        self._vitals = vitals
        self._pool: Final = options.pool
        self._open: Final = options.open_pool
        self._static: Final = {each.worker: each for each in options.upstreams}
        self._all: dict[str, Upstream] = dict(self._static)
        self._drained: frozenset[str] = frozenset()
        self._told: set[str] = set()
        self.seen = False

    # -- the opinion ---------------------------------------------------------------------------------------------------

    def amend(self, snapshot: Snapshot) -> Snapshot:
        """The registry as this gateway takes it."""
        workers = dict(snapshot.workers)
        ours = dict(self._static)
        for worker, upstream in self._static.items():
            workers[worker] = self._own(upstream, workers.get(worker))
        if self._open:
            for found in snapshot.workers.values():
                if found.pool == self._pool and found.worker not in ours and found.state != "gone" and len(ours) < MAX_POOL:
                    there = self._of_pool(found)
                    if there is not None:
                        ours[found.worker] = there
        amended = Snapshot(snapshot.tick, workers)
        amended.pools = {self._pool: {name: each.capacity for name, each in ours.items() if workers[name].state == "live"}}
        self._all = ours
        self._drained = frozenset(name for name in ours if workers[name].state == "draining")
        self.seen = True
        return amended

    def _own(self, upstream: Upstream, known: Worker | None) -> Worker:
        """An upstream of the configuration. That nobody beats for it means that no gateway was there, not that it is gone."""
        if known is None or known.state == "damaged":
            return Worker(upstream.worker, self._pool, upstream.name, upstream.capacity, "", {}, HEARTBEAT_TTL_MS, "live", 0, 0)
        if known.state == "gone":
            known = msgspec.structs.replace(known, state="live" if known.draining_for_ms is None else "draining")
        return known

    def _of_pool(self, found: Worker) -> Upstream | None:
        before = self._all.get(found.worker)
        upstream = of_worker(found.worker, found.address, found.capacity)
        if upstream is None:
            if found.worker not in self._told and len(self._told) < MAX_POOL:
                self._told.add(found.worker)
                logger.warning("worker has no address to send to", worker=found.worker, pool=self._pool)
            return None
        same = before is not None and (before.name, before.capacity, before.authorization) == (
            upstream.name,
            upstream.capacity,
            upstream.authorization,
        )
        return before if same else upstream

    def fit(self, worker: str) -> bool:
        """Whether it may be proposed: healthy, as far as this gateway has found."""
        upstream = self._all.get(worker)
        return upstream is not None and self._vitals.is_up(upstream.name)

    # -- the gateway's view --------------------------------------------------------------------------------------------

    @property
    def all(self) -> list[Upstream]:
        """Every upstream, drained or not."""
        return list(self._all.values())

    def get(self, worker: str | None) -> Upstream | None:
        """The upstream that a conversation is bound to; None if it is none of ours."""
        return self._all.get(worker) if worker is not None else None

    def is_up(self, upstream: Upstream) -> bool:
        """Whether this gateway finds it healthy."""
        return self._vitals.is_up(upstream.name)

    def is_drained(self, upstream: Upstream) -> bool:
        """Whether an operator has taken it out of use."""
        return upstream.worker in self._drained

    def open_to(self, without: Collection[Upstream] = (), avoid: Collection[str] = ()) -> list[Upstream]:
        """Those that may be given a conversation: healthy, not drained, not ``without``, no worker of ``avoid``."""
        return [each for each in self._left(without) if each.worker not in avoid and self.is_up(each)]

    def choose(self, text: str, without: Collection[Upstream] = ()) -> Upstream | None:
        """Where to send what the store says nothing about. If none is healthy, any: rather that than nowhere. Never a drained
        one; None if no other is left."""
        return preferred(text, self.open_to(without) or self._left(without))

    def require(self, text: str, without: Collection[Upstream] = ()) -> Upstream:
        """As :meth:`choose`. Raises NoUpstream, AllDrained."""
        chosen = self.choose(text, without)
        if chosen is not None:
            return chosen
        if self._all and len(self._drained) == len(self._all):
            raise AllDrained("Every upstream is being drained; undrain one (limpet drain --undo), or add another.")
        if not self._all:
            raise NoUpstream(f"No worker of the pool {self._pool} is registered with an address to send to.")
        raise NoUpstream("No upstream can be reached.")

    def _left(self, without: Collection[Upstream]) -> Iterable[Upstream]:
        return [each for each in self._all.values() if each.worker not in self._drained and each not in without]

    @property
    def panics(self) -> bool:
        """Whether none is healthy, so that all are used."""
        left = self._left(())
        return bool(left) and not any(self.is_up(each) for each in left)

    def counts(self) -> dict[str, int]:
        """Upstreams by state: healthy, unhealthy, ejected, draining."""
        counts = {"healthy": 0, "unhealthy": 0, "ejected": 0, "draining": 0}
        for each in self._all.values():
            counts["draining" if self.is_drained(each) else self._vitals.state(each.name)] += 1
        return counts

    @property
    def usable(self) -> bool:
        """Whether there is one that could answer: not drained, and not known to refuse connections."""
        return any(not self._vitals.is_unreachable(each.name) for each in self._left(()))
