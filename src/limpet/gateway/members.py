"""The gateways' upstreams in the worker registry, so that everybody sees, counts and drains them as what they are: workers.

Every gateway registers every upstream of its configuration again and again, in each namespace it serves, on the worker's behalf
and without an incarnation: it is always the same worker, whichever gateway says so and however often it restarts (an upstream
that wants a restart to be noticed registers itself, and is then left alone). Nothing is taken out when a gateway stops: what no
gateway names any more is gone when its heartbeat runs out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from limpet.errors import LimpetError
from limpet.gateway.fleet import Fleet
from limpet.gateway.options import Options
from limpet.gateway.upstreams import Upstream
from limpet.gateway.vitals import Vitals
from limpet.service.clients import Client, Clients
from limpet.service.logs import log_unexpected, logger
from limpet.workers import HEARTBEAT_TTL_MS

__all__ = ["Fleets", "Members"]

BEATS_PER_TTL: Final = 3
AT_ONCE: Final = 32


class Fleets:
    """The fleet of each namespace."""

    def __init__(self, options: Options, vitals: Vitals) -> None:
        self._make: Final[Callable[[], Fleet]] = lambda: Fleet(options, vitals)
        self._static: Final = options.upstreams
        self._by_namespace: dict[str, Fleet] = {}

    def of(self, namespace: str) -> Fleet:
        """The fleet of a namespace that is being served."""
        fleet = self._by_namespace.get(namespace)
        if fleet is None:
            fleet = self._by_namespace[namespace] = self._make()
        return fleet

    def all(self) -> list[Fleet]:
        """Those there are."""
        return list(self._by_namespace.values())

    @property
    def upstreams(self) -> list[Upstream]:
        """Every upstream of any of them, each name once."""
        found = {each.name: each for each in self._static}
        for fleet in self._by_namespace.values():
            for each in fleet.all:
                found.setdefault(each.name, each)
        return list(found.values())

    def keep(self, namespaces: set[str]) -> None:
        """Forget all others."""
        for name in self._by_namespace.keys() - namespaces:
            del self._by_namespace[name]


class Members:
    """Keeps the upstreams registered."""

    def __init__(self, options: Options, fleets: Fleets, every_s: float = HEARTBEAT_TTL_MS / 1000 / BEATS_PER_TTL) -> None:
        self._options = options
        self._fleets = fleets
        self._every_s = every_s
        self._wake = asyncio.Event()
        self._joined: set[str] = set()

    def join(self, namespace: str) -> None:
        """A namespace has a turn: if it is new here, its workers are registered now and not at the next beat."""
        if namespace not in self._joined:
            self._joined.add(namespace)
            self._wake.set()

    async def run(self, clients: Clients) -> None:
        """Until cancelled."""
        while True:
            self._wake.clear()
            entries = clients.all()
            names = {entry.namespace for entry in entries}
            self._fleets.keep(names)
            self._joined = names
            for entry in entries:
                entry.active += 1  # so that its client is not closed under us
                try:
                    await self._beat(entry.client)
                except LimpetError as error:  # the next beat tries again; turns do without
                    logger.warning("upstreams not registered", namespace=entry.namespace, code=error.code)
                except Exception as error:  # noqa: BLE001  (whatever it is must not end the heartbeats)
                    log_unexpected("registering upstreams", error)
                finally:
                    entry.active -= 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._wake.wait()

    async def _beat(self, client: Client) -> None:
        options = self._options
        await client.watch_workers()
        upstreams = options.upstreams
        for start in range(0, len(upstreams), AT_ONCE):
            await asyncio.gather(
                *(
                    client.register(
                        each.worker,
                        pool=options.pool,
                        address=each.name,
                        capacity=each.capacity,
                        ttl_ms=HEARTBEAT_TTL_MS,
                        on_behalf=True,
                    )
                    for each in upstreams[start : start + AT_ONCE]
                )
            )
