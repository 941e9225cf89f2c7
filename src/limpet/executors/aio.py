"""The asyncio executor: sends calls over the lanes, within a deadline, retrying what may be retried.

Every writing call carries a request id, made once per call of the public API, so that a retry after a lost reply gets the
first result (design, section 5). redis-py's own retries are off: it never sends our commands.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import hiredis

from limpet.calls import Call
from limpet.clock import SystemClock
from limpet.errors import LimpetError, StoreCorrupt, StoreUnavailable, error_for_word, unwrapped
from limpet.executors.breaker import Breaker, NotTried
from limpet.executors.durable import Committed, GroupCommit, Promise
from limpet.executors.lane import Lane, LaneLost, Unreachable, unheeded
from limpet.executors.topology import Kind, Topology
from limpet.health import parse_info
from limpet.health.model import UNREACHED
from limpet.instruments import Instruments
from limpet.scripts import every_script

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
Send = Callable[[Lane, tuple[Any, ...], float, bool], asyncio.Future[Any]]
MAX_DETOURS: Final = 5
"""Redirections that one call follows at once; after that it pauses first, since two nodes may point at each other for a while."""
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
        self._monotonic = SystemClock().monotonic  # uvloop's own time has the resolution of a millisecond
        self.flags_known = False
        self._closed = False
        self.replicas_seen = topology.replicas_expected
        self._commits: WeakKeyDictionary[Lane, GroupCommit] = WeakKeyDictionary()
        self._loading: WeakKeyDictionary[Lane, asyncio.Task[None]] = WeakKeyDictionary()

    async def run(self, call: Call[T], timeout_s: float) -> T:
        """Sends the call and parses the reply.

        Raises:
            StoreUnavailable: no answer within ``timeout_s`` seconds.
            LimpetError: what the script refused.
        """
        began, start = self._monotonic(), self._loop.time()
        deadline = start + timeout_s
        lane = self.topology.lane(call.keys[0], "shared")
        breaker = lane.breaker if lane is not None else self.topology.breaker(call.keys[0])
        if not breaker.admits():
            self.metrics.store_error("breaker_open")
            raise NotTried("The store has not answered lately; it is tried again every half second.")
        try:
            if lane is None or lane.full():
                reply = await self._persist(call, deadline, "shared", _plain)
            else:
                try:
                    reply = await lane.send(call.command(flags_known=self.flags_known), deadline)
                except (LaneLost, hiredis.ReplyError) as error:
                    reply = await self._persist(call, deadline, "shared", _plain, error, lane)
        except StoreUnavailable:
            self._failed(call.keys[0], breaker)
            raise
        breaker.succeeded()
        self.metrics.store_seconds(call.script.name, self._monotonic() - began)
        return call.parse(reply)

    async def run_durable(self, call: Call[T], timeout_s: float, promise: Promise) -> tuple[T, bool]:
        """Sends the call and waits for its durability; the parsed reply, and whether the promise was kept.

        Raises:
            StoreUnavailable: no answer within ``timeout_s`` seconds.
            LimpetError: what the script refused.
        """
        began, start = self._monotonic(), self._loop.time()
        deadline = start + timeout_s
        breaker = self.topology.breaker(call.keys[0])
        if not breaker.admits():
            self.metrics.store_error("breaker_open")
            raise NotTried("The store has not answered lately; it is tried again every half second.")

        def send(lane: Lane, command: tuple[Any, ...], until: float, asking: bool) -> asyncio.Future[Committed]:
            return self._commit_of(lane).submit(command, until, promise, asking)

        try:
            committed: Committed = await self._persist(call, deadline, "durable", send)
        except StoreUnavailable:
            self._failed(call.keys[0], breaker)
            raise
        breaker.succeeded()
        self.metrics.store_seconds(call.script.name, self._monotonic() - began)
        return call.parse(committed.reply), committed.durable

    def _failed(self, key: str, breaker: Breaker) -> None:
        breaker.failed()
        self.topology.suspect(key)
        self.metrics.store_error("unavailable")

    def _commit_of(self, lane: Lane) -> GroupCommit:
        commit = self._commits.get(lane)
        if commit is None:
            commit = self._commits[lane] = GroupCommit(lane)
        return commit

    async def _persist(
        self,
        call: Call[Any] | _Words,
        deadline: float,
        kind: Kind,
        send: Send,
        error: Exception | None = None,
        lane: Lane | None = None,
    ) -> Any:
        """The slow path: connects, loads scripts, follows redirections, retries with jitter; all within the deadline."""
        key, backoff = call.keys[0], BACKOFF_S
        again, detours = False, 0
        while True:
            if self._closed:
                raise StoreUnavailable("The client was closed while the call was under way; whether it took effect is unknown.")
            again = again or isinstance(error, LaneLost)
            detour: Lane | None = None
            asking = False
            try:
                if isinstance(error, hiredis.ReplyError):
                    message = unwrapped(str(error))
                    word = message.partition(" ")[0]
                    if word == "NOSCRIPT" and lane is not None and isinstance(call, Call):
                        await self._loaded(call, lane, deadline)
                        detour = lane
                    elif word in _TRANSIENT:
                        left = max(deadline - self._loop.time(), 0.001)
                        detour = await self.topology.redirected(key, message, kind, lane, left)
                        asking = word == "ASK"
                    else:
                        raise self._refusal(message) from error
                elif isinstance(error, LaneLost):
                    self.topology.suspect(key)
                detours = detours + 1 if detour is not None else 0
                if error is not None and (detour is None or detours > MAX_DETOURS):
                    self.metrics.store_error("lost" if isinstance(error, LaneLost) else "transient")
                    await self._pause(backoff * (0.5 + random.random()), deadline, error)
                    backoff = min(backoff * 2, MAX_BACKOFF_S)
                left = deadline - self._loop.time()
                if left <= 0:
                    raise StoreUnavailable("The store did not answer within the deadline; retry with the same request id.")
                lane = detour if detour is not None else await self.topology.connect(key, kind, left)
                await lane.room(deadline)
                return await send(lane, call.command(flags_known=self.flags_known, again=again), deadline, asking)
            except (LaneLost, Unreachable, hiredis.ReplyError) as failure:
                if isinstance(failure, Unreachable) and self._loop.time() >= deadline:
                    earlier = error if isinstance(error, Unreachable) else failure  # it knows why
                    raise StoreUnavailable(f"{UNREACHED} {earlier}") from earlier
                error = failure

    async def _pause(self, seconds: float, deadline: float, error: Exception) -> None:
        if self._loop.time() + seconds >= deadline:
            why = f" {error}" if isinstance(error, Unreachable) else ""
            raise StoreUnavailable(f"{UNREACHED}{why}") from error
        await asyncio.sleep(seconds)

    async def _loaded(self, call: Call[Any], lane: Lane, deadline: float) -> None:
        """The node lacks our scripts (new, flushed, or just promoted): gives it all of them, once for all calls that met that."""
        task = self._loading.get(lane)
        if task is None or task.done():
            task = self._loading[lane] = self._loop.create_task(self._load(call, lane, deadline))
        await asyncio.wait({task}, timeout=max(deadline - self._loop.time(), 0.001))
        if task.done():
            task.result()

    async def _load(self, call: Call[Any], lane: Lane, deadline: float) -> None:
        self.metrics.store_error("noscript")
        wanted = [call.script, *every_script()]
        texts = dict.fromkeys(each.variant(self.flags_known)[1] for each in wanted)
        first, *rest = [lane.send(("SCRIPT", "LOAD", text), deadline) for text in texts]
        for future in rest:  # whatever is sent on this lane from here on comes after them
            future.add_done_callback(unheeded)
        try:
            await first
        except hiredis.ReplyError as error:
            raise self._refusal(unwrapped(str(error))) from error

    def _refusal(self, message: str) -> LimpetError:
        typed = error_for_word(message)
        if typed is not None:
            return typed
        word = message.partition(" ")[0]
        self.metrics.store_error("refused")
        if word in _REFUSALS:
            return StoreUnavailable(_REFUSALS[word])
        return StoreCorrupt(f"A script failed in the store, which it never should: {message}")

    async def command(self, verb: str, *words: str | int | bytes, timeout_s: float, key: str = "") -> Any:
        """One plain command that may be repeated (INFO, TIME ...) to the node of ``key``; "" for any primary.

        Raises StoreUnavailable, also when the node refuses it.
        """
        call = _Words((key,), (verb, *words))
        try:
            return await self._persist(call, self._loop.time() + timeout_s, "shared", _plain)
        except StoreUnavailable:
            self.topology.suspect(key)
            raise
        except LimpetError as error:
            raise StoreUnavailable(f"The store refuses {verb}: {error.__cause__ or error}.") from error

    async def ask_all(self, verb: str, *words: str | int, timeout_s: float) -> dict[str, Any]:
        """The same, to every primary at once: what each that answered said, by its text in :meth:`Topology.primaries`.

        Raises StoreUnavailable when none did.
        """
        if self.topology.primaries() == [""]:
            # Perhaps a cluster whose map has not been read yet; one answer later it has been.
            await self.topology.connect("", "shared", timeout_s)
        keys = self.topology.primaries()
        asked = (self.command(verb, *words, timeout_s=timeout_s, key=key) for key in keys)
        replies = await asyncio.gather(*asked, return_exceptions=True)
        answered: dict[str, Any] = {}
        for key, reply in zip(keys, replies, strict=True):
            if not isinstance(reply, BaseException):
                answered[key] = reply
            elif not isinstance(reply, StoreUnavailable):
                raise reply
        if not answered:
            raise next(reply for reply in replies if isinstance(reply, StoreUnavailable))
        return answered

    def time(self) -> float:
        """The loop's time."""
        return self._loop.time()

    def answered(self, command: str, began: float, lane: Lane) -> None:
        """A call that went past :meth:`run`, begun at ``began`` (monotonic seconds), was answered."""
        lane.breaker.succeeded()
        self.metrics.store_seconds(command, self._monotonic() - began)

    def failed(self, key: str, lane: Lane) -> None:
        """A call that went past :meth:`run` was not answered in time."""
        self._failed(key, lane.breaker)

    async def learn_version(self, timeout_s: float) -> None:
        """Finds out whether all servers know script flags (7.0 and later), so that read-only scripts are marked as such."""
        replies = await self.ask_all("INFO", "server", timeout_s=timeout_s)
        infos = [parse_info(reply) for reply in replies.values()]
        versions = [info.get("valkey_version") or info.get("redis_version", "0") for info in infos]
        self.flags_known = all(int(version.partition(".")[0] or 0) >= 7 for version in versions)

    async def count_replicas(self, timeout_s: float) -> int:
        """The most replicas that any primary has had so far. Raises StoreUnavailable when no primary answers."""
        for reply in (await self.ask_all("INFO", "replication", timeout_s=timeout_s)).values():
            self.replicas_seen = max(self.replicas_seen, int(parse_info(reply).get("connected_slaves", 0)))
        return self.replicas_seen

    async def connect_all(self, kind: Kind, timeout_s: float) -> None:
        """Opens what is not open yet of this kind's lanes to all primaries, so that no caller's deadline pays for it.

        Best effort: a primary that cannot be reached is met again, and told, by the first call for it.
        """
        asked = (self.topology.connect(key, kind, timeout_s) for key in self.topology.primaries())
        for lane in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(lane, (Unreachable, StoreUnavailable, LaneLost)):
                self.metrics.store_error("lost")
            elif isinstance(lane, BaseException):
                raise lane

    async def ping(self, timeout_s: float) -> float:
        """Seconds for one round trip to the slowest primary that answers. Raises StoreUnavailable when none does."""
        began = self._monotonic()
        for key in await self.ask_all("PING", timeout_s=timeout_s):
            self.topology.breaker(key).succeeded()
        return self._monotonic() - began

    async def close(self) -> None:
        """Closes every lane. Calls in flight get StoreUnavailable, and connect to nothing any more."""
        self._closed = True
        await self.topology.close()


class _Words(NamedTuple):
    """A plain command, where a script call is expected."""

    keys: tuple[str]
    words: tuple[str | int | bytes, ...]

    def command(self, *, flags_known: bool = False, again: bool = False) -> tuple[str | int | bytes, ...]:
        """What goes on the wire."""
        return self.words


def _plain(lane: Lane, command: tuple[Any, ...], deadline: float, asking: bool) -> asyncio.Future[Any]:
    return lane.send_asking(command, deadline) if asking else lane.send(command, deadline)
