"""The nemesis for a store of the user's own: it only watches, unless it was told what it may do.

It kills no process. What it sees for itself (a primary that was replaced or restarted) goes into the history too, so that a
failover that happens to fall into the run is judged as one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Final, Literal

import redis.asyncio

from limpet.chaos.history import Fault
from limpet.chaos.recording import now_us
from limpet.errors import InvalidRequest, StoreUnavailable
from limpet.executors.aio import AsyncExecutor
from limpet.executors.open import open_topology
from limpet.executors.urls import StoreUrl, parse_store_url
from limpet.health import parse_info
from limpet.instruments import NullMetrics

__all__ = ["ACTIONS", "Action", "StoreTormentor"]

Action = Literal["script-flush", "client-kill", "client-pause", "failover"]
ACTIONS: Final[tuple[Action, ...]] = ("script-flush", "client-kill", "client-pause", "failover")
LOOK_S: Final = 0.25
SETTLE_US: Final = 12_000_000
"""How long after a failover the store is taken to be uneasy: sentinels need ten seconds to tell an old primary that it is one."""
PAUSE_MS: Final = 300


class StoreTormentor:
    """Args:
    url: the store.
    actions: what it may do, one at a time. ``client-kill`` drops every client of the primaries, not only ours.
    calm_s: the shortest and longest pause between two of them.
    """

    def __init__(self, url: str, actions: tuple[Action, ...] = (), calm_s: tuple[float, float] = (2.0, 5.0)) -> None:
        self._url: StoreUrl = parse_store_url(url)
        self._text = url
        self._actions = actions
        self._calm_s = calm_s
        if "failover" in actions and self._url.kind == "standalone":
            raise InvalidRequest("A single server cannot fail over; name a Sentinel or Cluster URL, or leave failover away.")

    async def torment(self, rng: random.Random, record: Callable[[Fault], None]) -> None:
        """Until cancelled."""
        executor = AsyncExecutor(open_topology(self._text), NullMetrics())
        watching = asyncio.create_task(self._watch(executor, record))
        try:
            while True:
                await asyncio.sleep(rng.uniform(*self._calm_s))
                if self._actions:
                    record(await self._act(executor, rng.choice(self._actions), rng))
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            await executor.close()

    # -- watching ----------------------------------------------------------------------------------------------------

    async def _watch(self, executor: AsyncExecutor, record: Callable[[Fault], None]) -> None:
        known, good, away = await self._primaries(executor), now_us(), False
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                found, now = await self._primaries(executor), now_us()
                if len(found) < len(known):
                    away = True
                    continue
                if away or (found != known and known):
                    record(_seen(good, now, replaced=found != known))
                known, good, away = found, now, False
        finally:
            if away:
                record(_seen(good, now_us(), replaced=True))

    async def _primaries(self, executor: AsyncExecutor) -> frozenset[str]:
        """The run ids of all primaries that answer."""
        try:
            answers = await executor.ask_all("INFO", "server", timeout_s=1.0)
        except StoreUnavailable:
            return frozenset()
        return frozenset(parse_info(answer).get("run_id", "") for answer in answers.values())

    # -- acting ------------------------------------------------------------------------------------------------------

    async def _act(self, executor: AsyncExecutor, action: Action, rng: random.Random) -> Fault:
        start, node = now_us(), ""
        with contextlib.suppress(StoreUnavailable, redis.RedisError, OSError):  # it is away already: that is chaos too
            if action == "script-flush":
                await executor.ask_all("SCRIPT", "FLUSH", timeout_s=1.0)
            elif action == "client-kill":
                await executor.ask_all("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes", timeout_s=1.0)
            elif action == "client-pause":
                await executor.ask_all("CLIENT", "PAUSE", PAUSE_MS, "ALL", timeout_s=1.0)
            else:
                node = await self._fail_over(executor, rng)
        over, lossy = now_us(), action == "failover"
        return Fault(name=action, node=node, start_us=start, over_us=over, healed_us=over + SETTLE_US * lossy, lossy=lossy)

    async def _fail_over(self, executor: AsyncExecutor, rng: random.Random) -> str:
        """SENTINEL FAILOVER, or CLUSTER FAILOVER on a replica of some primary."""
        if self._url.kind == "sentinel":
            host, port = rng.choice(self._url.addresses)
            options = {**self._url.sentinel_options, "host": host, "port": port}
            words: tuple[str, ...] = ("SENTINEL", "FAILOVER", self._url.service)
        else:
            answers = await executor.ask_all("INFO", "replication", timeout_s=1.0)
            replicas = [
                dict(part.split("=", 1) for part in value.split(","))
                for answer in answers.values()
                for name, value in parse_info(answer).items()
                if name.startswith("slave") and "ip=" in value
            ]
            if not replicas:
                return ""
            chosen = rng.choice(replicas)
            options = self._url.arguments((chosen["ip"], int(chosen["port"])))
            words = ("CLUSTER", "FAILOVER")
        options.pop("client_name", None)
        async with redis.asyncio.Redis(**options, socket_timeout=2.0) as client:
            await client.execute_command(*words)  # type: ignore[no-untyped-call]
        return f"{options['host']}:{options['port']}"


def _seen(start: int, end: int, *, replaced: bool) -> Fault:
    if replaced:
        return Fault(
            name="seen: a primary replaced or restarted",
            node="",
            start_us=start,
            over_us=end,
            healed_us=end + SETTLE_US,
            lossy=True,
        )
    return Fault(name="seen: a primary did not answer", node="", start_us=start, over_us=end, healed_us=end)
