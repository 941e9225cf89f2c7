"""The asyncio executor: sends calls over the lanes, within a deadline, retrying what may be retried.

Every writing call carries a request id, made once per call of the public API, so that a retry after a lost reply gets the
first result (design, section 5). redis-py's own retries are off: it never sends our commands.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import hiredis

from limpet.commands import Call
from limpet.errors import LimpetError, StoreCorrupt, StoreUnavailable, error_for_word
from limpet.executors.breaker import Breaker
from limpet.executors.durable import Committed, GroupCommit, Promise
from limpet.executors.lane import Lane, LaneLost
from limpet.executors.topology import Kind, Topology
from limpet.health import parse_info
from limpet.instruments import Instruments
from limpet.scripts import NAMES, script

__all__ = ["AsyncExecutor"]

T = TypeVar("T")

_TRANSIENT: Final = (
    "LOADING",
    "READONLY",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "MASTERDOWN",
    "MOVED",
    "ASK",
    "BUSY",
    "NOREPLICAS",
    "UNBLOCKED",
)
_REFUSALS: Final = {
    "OOM": "The store is out of memory and refuses writes; raise maxmemory or free some.",
    "MISCONF": "The store refuses writes because it cannot save to disk; mend its persistence.",
    "NOAUTH": "The store asks for a password; put it into the URL.",
    "WRONGPASS": "The store refuses the credentials in the URL.",
    "NOPERM": "The store's ACL denies this user a command or key of Limpet; grant what `limpet doctor` names.",
}
Send = Callable[[Lane, tuple[Any, ...], float], asyncio.Future[Any]]
BACKOFF_S: Final = 0.01
MAX_BACKOFF_S: Final = 0.25


class AsyncExecutor:
    """Sends calls.

    Args:
        topology: where the keys are.
        metrics: what is counted and timed.
    """

    def __init__(self, topology: Topology, metrics: Instruments) -> None:
        self.topology = topology
        self.metrics = metrics
        self._loop = asyncio.get_running_loop()
        self.breaker = Breaker(self._loop.time)
        self.flags_known = False
        self.replicas_seen = 0
        self._commits: WeakKeyDictionary[Lane, GroupCommit] = WeakKeyDictionary()

    async def run(self, call: Call[T], timeout_s: float) -> T:
        """Sends the call and parses the reply.

        Raises:
            StoreUnavailable: no answer within ``timeout_s`` seconds.
            LimpetError: what the script refused.
        """
        loop_time = self._loop.time
        start = loop_time()
        deadline = start + timeout_s
        if not self.breaker.admits():
            self.metrics.store_error("breaker_open")
            raise StoreUnavailable("The store has not answered lately; it is tried again every half second.")
        lane = self.topology.lane(call.keys[0], "shared")
        try:
            if lane is None or lane.full():
                reply = await self._persist(call, deadline, "shared", _plain)
            else:
                try:
                    reply = await lane.send(call.command(flags_known=self.flags_known), deadline)
                except (LaneLost, hiredis.ReplyError) as error:
                    reply = await self._persist(call, deadline, "shared", _plain, error, lane)
        except StoreUnavailable:
            self.breaker.failed()
            self.metrics.store_error("unavailable")
            raise
        self.breaker.succeeded()
        self.metrics.store_seconds(call.script.name, loop_time() - start)
        return call.parse(reply)

    async def run_durable(self, call: Call[T], timeout_s: float, promise: Promise) -> tuple[T, bool]:
        """Sends the call and waits for its durability; the parsed reply, and whether the promise was kept.

        Raises:
            StoreUnavailable: no answer within ``timeout_s`` seconds.
            LimpetError: what the script refused.
        """
        start = self._loop.time()
        deadline = start + timeout_s
        if not self.breaker.admits():
            self.metrics.store_error("breaker_open")
            raise StoreUnavailable("The store has not answered lately; it is tried again every half second.")

        def send(lane: Lane, command: tuple[Any, ...], until: float) -> asyncio.Future[Committed]:
            return self._commit_of(lane).submit(command, until, promise)

        try:
            committed: Committed = await self._persist(call, deadline, "durable", send)
        except StoreUnavailable:
            self.breaker.failed()
            self.metrics.store_error("unavailable")
            raise
        self.breaker.succeeded()
        self.metrics.store_seconds(call.script.name, self._loop.time() - start)
        return call.parse(committed.reply), committed.durable

    def _commit_of(self, lane: Lane) -> GroupCommit:
        commit = self._commits.get(lane)
        if commit is None:
            commit = self._commits[lane] = GroupCommit(lane)
        return commit

    async def _persist(
        self,
        call: Call[Any],
        deadline: float,
        kind: Kind,
        send: Send,
        error: Exception | None = None,
        lane: Lane | None = None,
    ) -> Any:
        """The slow path: connects, loads scripts, follows redirections, retries with jitter; all within the deadline."""
        key, backoff = call.keys[0], BACKOFF_S
        detour: Lane | None = None
        again = False
        while True:
            again = again or isinstance(error, LaneLost)
            if isinstance(error, hiredis.ReplyError):
                message = str(error)
                word = message.partition(" ")[0]
                if word == "NOSCRIPT" and lane is not None:
                    await self._load(call, lane, deadline)
                    detour = lane
                elif word in _TRANSIENT:
                    detour = await self.topology.redirected(key, message, deadline - self._loop.time())
                    if detour is not None and word == "ASK":
                        detour.send(("ASKING",), deadline).add_done_callback(_seen)
                else:
                    raise self._refusal(message) from error
            if error is not None and detour is None:
                self.metrics.store_error("lost" if isinstance(error, LaneLost) else "transient")
                await self._pause(backoff * (0.5 + random.random()), deadline)
                backoff = min(backoff * 2, MAX_BACKOFF_S)
            try:
                left = deadline - self._loop.time()
                if left <= 0:
                    raise StoreUnavailable("The store did not answer within the deadline; retry with the same request id.")
                lane, detour = detour or await self.topology.connect(key, kind, left), None
                await lane.room(deadline)
                return await send(lane, call.command(flags_known=self.flags_known, again=again), deadline)
            except (LaneLost, hiredis.ReplyError) as failure:
                error = failure

    async def _pause(self, seconds: float, deadline: float) -> None:
        if self._loop.time() + seconds >= deadline:
            raise StoreUnavailable("The store could not be reached within the deadline; retry with the same request id.")
        await asyncio.sleep(seconds)

    async def _load(self, call: Call[Any], lane: Lane, deadline: float) -> None:
        """The node lacks our scripts (new, flushed, or just promoted): gives it all of them."""
        self.metrics.store_error("noscript")
        wanted = [call.script, *(script(name) for name in NAMES)]
        texts = dict.fromkeys(each.variant(self.flags_known)[1] for each in wanted)
        futures = [lane.send(("SCRIPT", "LOAD", text), deadline) for text in texts]
        results = await asyncio.gather(*futures, return_exceptions=True)
        if isinstance(results[0], BaseException):
            if isinstance(results[0], hiredis.ReplyError):
                raise self._refusal(str(results[0]))
            if not isinstance(results[0], LaneLost):
                raise results[0]

    def _refusal(self, message: str) -> LimpetError:
        typed = error_for_word(message)
        if typed is not None:
            return typed
        word = message.partition(" ")[0]
        self.metrics.store_error("refused")
        if word in _REFUSALS:
            return StoreUnavailable(_REFUSALS[word])
        return StoreCorrupt(f"A script failed in the store, which it never should: {message}")

    async def command(self, *words: str | int, timeout_s: float, key: str = "") -> Any:
        """One plain command (INFO, TIME ...) to the node of ``key``. Raises StoreUnavailable, also when the node refuses it."""
        deadline = self._loop.time() + timeout_s
        lane = await self.topology.connect(key, "shared", timeout_s)
        try:
            return await lane.send(words, deadline)
        except LaneLost as error:
            raise StoreUnavailable("The connection to the store was lost; try again.") from error
        except hiredis.ReplyError as error:
            raise StoreUnavailable(f"The store refuses {words[0]}: {error}.") from error

    async def learn_version(self, timeout_s: float) -> None:
        """Finds out whether the server knows script flags (7.0 and later), so that read-only scripts are marked as such."""
        info = parse_info(await self.command("INFO", "server", timeout_s=timeout_s))
        version = info.get("valkey_version") or info.get("redis_version", "0")
        self.flags_known = int(version.partition(".")[0] or 0) >= 7

    async def count_replicas(self, timeout_s: float) -> int:
        """The most replicas that any primary has had so far. Raises StoreUnavailable."""
        for key in self.topology.primaries():
            info = parse_info(await self.command("INFO", "replication", timeout_s=timeout_s, key=key))
            self.replicas_seen = max(self.replicas_seen, int(info.get("connected_slaves", 0)))
        return self.replicas_seen

    async def ping(self, timeout_s: float) -> float:
        """Seconds for one round trip on the shared lane. Raises StoreUnavailable."""
        start = self._loop.time()
        await self.command("PING", timeout_s=timeout_s)
        self.breaker.succeeded()
        return self._loop.time() - start

    async def close(self) -> None:
        """Closes every lane."""
        await self.topology.close()


def _plain(lane: Lane, command: tuple[Any, ...], deadline: float) -> asyncio.Future[Any]:
    return lane.send(command, deadline)


def _seen(future: asyncio.Future[Any]) -> None:
    """Marks a reply that nobody awaits as looked at."""
    if not future.cancelled():
        future.exception()
