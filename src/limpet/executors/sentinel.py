"""One primary that sentinels name: ``redis+sentinel://``.

All sentinels are asked at once, and the answer of the latest failover (the highest config epoch) counts, so that neither a
sentinel that hangs nor one that was cut off with the old primary keeps us there. The named server has to call itself a
primary before it is used. Sentinels are asked often while calls fail, and once a second or so otherwise: an old primary that
was cut off from everybody but us would go on answering.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final, NamedTuple

import redis.asyncio
import structlog
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel as SentinelClient
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from limpet.errors import StoreUnavailable
from limpet.executors.breaker import Breaker
from limpet.executors.lane import Lane, Unreachable
from limpet.executors.lookout import Lookout, answers
from limpet.executors.node import Kind, Node, NodeClient, OnBatch, must_be_primary
from limpet.executors.urls import Address, StoreUrl

__all__ = ["Sentinel"]

log = structlog.get_logger("limpet.sentinel")

RARELY_S: Final = 1.0
"""Between two looks while all is well."""
ANSWER_S: Final = 0.5
"""How long a sentinel may take."""
GRACE_S: Final = 0.05
"""How long the others are waited for once one has answered."""
CONNECT_S: Final = 0.5
"""How long a newly named primary may take to prove that it is one."""


class _View(NamedTuple):
    """What one sentinel says: which failover it knows of, and whom it names."""

    config_epoch: int
    address: Address


class Sentinel:
    """See the module. The lanes of the primary that is left are closed at once, so its calls are retried at the new one."""

    replicas_expected = 1  # nobody runs sentinels over a primary alone

    def __init__(self, url: StoreUrl, on_batch: OnBatch = None) -> None:
        self._url = url
        self._on_batch = on_batch
        self._sentinels = SentinelClient(  # type: ignore[no-untyped-call]
            url.addresses,
            sentinel_kwargs={
                **url.sentinel_options,
                "socket_timeout": ANSWER_S,
                "socket_connect_timeout": ANSWER_S,
                "retry": Retry(NoBackoff(), 0),
                "protocol": 2,
                "client_name": "limpet",
            },
        )
        self._node: Node | None = None
        self._config_epoch = -1
        self._no_node = Breaker(asyncio.get_running_loop().time)
        self._why = "No sentinel has named a primary yet."
        self._lookout = Lookout(self._look, RARELY_S)

    # -- what the executor asks ----------------------------------------------------------------------------------------

    def lane(self, key: str, kind: Kind) -> Lane | None:
        """The lane to the primary."""
        node = self._node
        if node is None:
            return None
        lane = node.lanes.get(kind)
        return None if lane is None or lane.lost else lane

    def breaker(self, key: str) -> Breaker:
        """That of the primary, so a new one is tried at once."""
        return self._no_node if self._node is None else self._node.breaker

    async def connect(self, key: str, kind: Kind, timeout_s: float) -> Lane:
        """Connects to whom the sentinels name."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        if self._node is None:
            self._lookout.suspect()
            await self._lookout.looked(timeout_s)
        node = self._node
        if node is None:
            raise Unreachable(self._why)
        try:
            lane = await node.connect(kind, max(deadline - loop.time(), 0.001))
        except Unreachable:
            self._lookout.suspect()
            raise
        self._lookout.mended()
        return lane

    async def redirected(self, key: str, message: str, kind: Kind, lane: Lane | None, timeout_s: float) -> Lane | None:
        """A primary that calls itself a replica is left at once; a loading one may have been replaced."""
        node = self._node
        if node is not None and message.startswith("READONLY") and lane is not None and lane in node.lanes.values():
            node.drop()
        self._lookout.suspect()
        return None

    def suspect(self, key: str) -> None:
        """Asks the sentinels, now and often for a while."""
        self._lookout.suspect()

    async def client(self) -> NodeClient:
        """A client to the primary."""
        if self._node is None:
            await self._lookout.looked(ANSWER_S + CONNECT_S)
        if self._node is None:
            raise Unreachable(self._why)
        return self._node.client()

    def primaries(self) -> list[str]:
        """There is one."""
        return [""]

    def lanes(self) -> list[Lane]:
        """At most two."""
        return [] if self._node is None else self._node.live()

    async def close(self) -> None:
        """Closes every lane and the connections to the sentinels."""
        await self._lookout.close()
        if self._node is not None:
            await self._node.close()
        await self._sentinels.aclose()

    # -- whom the sentinels name ---------------------------------------------------------------------------------------

    async def _look(self) -> None:
        views = await answers((self._ask(each) for each in self._sentinels.sentinels), ANSWER_S, GRACE_S)
        if not views:
            return
        view = max(views, key=lambda each: each.config_epoch)
        if view.config_epoch < self._config_epoch:
            # Behind what we know: a minority that was cut off, unless most agree (they were set up anew).
            votes = Counter(each.address for each in views)
            if votes[view.address] * 2 <= len(self._sentinels.sentinels):
                return
        node = self._node
        if node is not None and node.address == view.address:
            self._config_epoch = view.config_epoch
            return
        named = Node(self._url, view.address, self._on_batch, must_be_primary)
        try:
            await named.connect("shared", CONNECT_S)
        except StoreUnavailable as error:  # named, but gone or not promoted yet: the next look tells
            self._why = f"The sentinels name a primary that cannot be used: {error}"
            await named.close()
            return
        except asyncio.CancelledError:
            await named.close()
            raise
        self._node, self._config_epoch = named, view.config_epoch
        self._lookout.mended()
        if node is not None:
            log.warning("primary_changed", service=self._url.service, config_epoch=view.config_epoch)
            node.drop()

    async def _ask(self, sentinel: redis.asyncio.Redis) -> _View | None:
        service = self._url.service
        try:
            address: Any = await sentinel.sentinel_get_master_addr_by_name(service)
            state: Any = await sentinel.sentinel_master(service) if address else {}
        except (RedisError, OSError) as error:
            self._why = f"A sentinel does not answer: {error}"
            return None
        if not address:
            self._why = f"The sentinels know no service {service!r}; check the URL."
            return None
        host, port = address
        return _View(int(state.get("config-epoch", 0)), (host.decode() if isinstance(host, bytes) else host, int(port)))
