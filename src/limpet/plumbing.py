"""What every part of the client stands on: opening, verifying, sending, durability, health."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec
import structlog

from limpet.calls import Answer, Call, Target
from limpet.client_settings import Settings
from limpet.clock import Clock, SystemClock
from limpet.commands import Commands
from limpet.errors import InvalidRequest, LimpetError, NotDurable, StoreUnavailable
from limpet.events import Event, EventHub
from limpet.executors.aio import AsyncExecutor
from limpet.executors.durable import Promise
from limpet.executors.open import open_topology
from limpet.forks import pid
from limpet.health import Health, check_health
from limpet.instruments import Instruments, NullMetrics
from limpet.maintenance import Maintenance
from limpet.memo import Memo, MemoEntry
from limpet.memory import EpochMemory
from limpet.quick import QuickPath
from limpet.registry import Registry
from limpet.schema import NEW_NAMESPACE, Config, read_config
from limpet.scripts import script
from limpet.validate import check_text

__all__ = ["Plumbing"]

log = structlog.get_logger("limpet")
T = TypeVar("T")

WATCH_EVERY_S: Final = 5.0
"""How often replicas are counted, where their number matters, and ``config`` is read again."""


class Plumbing:
    """The coordinator's client. One per process and namespace; its calls may run concurrently by the thousand.

    Use :meth:`connect`, then ``async with``. Every call may raise :class:`~limpet.errors.InvalidRequest` (nothing was sent)
    and, but for :meth:`resolve`, :class:`~limpet.errors.StoreUnavailable`.
    """

    def __init__(
        self, url: str, settings: Settings, *, clock: Clock | None = None, instruments: Instruments | None = None
    ) -> None:
        self._url = url
        self.settings = settings
        self._clock: Clock = clock or SystemClock()
        self._monotonic = self._clock.monotonic
        self._instruments: Instruments = instruments or NullMetrics()
        self._deadline_s = settings.deadline_ms / 1000
        self._holder = settings.holder or f"{socket.gethostname()}:{os.getpid()}"[:256]
        self._nonce = secrets.token_hex(5)
        self._count = itertools.count()
        self._executor: AsyncExecutor | None = None
        self._verifying: asyncio.Lock | None = None
        self._verified = False
        self._pid = 0
        self._hub: EventHub | None = None
        self._memory = EpochMemory(settings.retention_s, self._monotonic)
        self._degraded_untold = 0
        self._degraded_told_at = float("-inf")
        self._memo: Memo | None = None
        self._registry: Registry | None = None
        self._watching: asyncio.Task[None] | None = None
        self._behind: set[asyncio.Task[None]] = set()
        """What is written while nobody waits for it."""
        self.commands = self._make_commands(Config(NEW_NAMESPACE, settings.partitions, settings.touch_granularity_ms))
        self._quick = QuickPath(self.commands)

    @classmethod
    def connect(cls, url: str, *, clock: Clock | None = None, instruments: Instruments | None = None, **settings: Any) -> Self:
        """A client for the store at ``url``; see :class:`Settings` for the rest. Connects on ``async with`` or :meth:`open`.

        Raises InvalidRequest for a setting or URL that is not valid.
        """
        try:
            chosen = Settings(**settings)
        except TypeError as error:
            raise InvalidRequest(f"{error}.") from None
        return cls(url, chosen, clock=clock, instruments=instruments)

    def _make_commands(self, config: Config) -> Commands:
        settings = self.settings
        return Commands(
            namespace=settings.namespace,
            partitions=config.partitions,
            scope_secret=settings.scope_secret,
            granularity_ms=config.granularity_ms,
            writes=config.schema,
            retention_ms=int(settings.retention_s * 1000),
            bind_ttl_ms=settings.bind_ttl_ms,
            claim_ttl_ms=settings.claim_ttl_ms,
            holder=self._holder,
        )

    # -- life ----------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connects and holds the settings against the store's ``config``.

        Raises:
            StoreMismatch: another schema, or another number of partitions.
            StoreUnavailable: the store cannot be reached; a later call tries again.
        """
        self._prepare()
        await self._verify(self._monotonic() + max(self._deadline_s, 2.0))

    def _prepare(self) -> AsyncExecutor:
        if self._executor is not None:
            if self._pid != pid():
                raise RuntimeError("This client was opened before a fork; open one in each process.")
            return self._executor
        self._pid = pid()
        topology = open_topology(self._url, self._instruments.batch_size)
        self._executor = AsyncExecutor(topology, self._instruments)
        self._verifying = asyncio.Lock()
        self._hub = EventHub(self.commands.keyspace.events, topology.client)
        self._hub.listeners.append(self._on_event)
        if self.settings.memo_ttl_ms:
            self._memo = Memo(self.settings.memo_ttl_ms / 1000, self._touch_behind)
            self._hub.on_up.append(self._memo.came_up)
            self._hub.on_down.append(self._memo.down)
            self._hub.start()
        return self._executor

    async def _verify(self, deadline: float) -> None:
        executor = self._prepare()
        assert self._verifying is not None
        async with self._verifying:
            if self._verified:
                return
            settings = self.settings
            config = await self._follow_config(executor, max(deadline - self._monotonic(), 0.001))
            if config.granularity_ms != settings.touch_granularity_ms:
                log.warning(
                    "config_wins",
                    setting="touch_granularity_ms",
                    store=config.granularity_ms,
                    here=settings.touch_granularity_ms,
                )
            await executor.learn_version(max(deadline - self._monotonic(), 0.001))
            if settings.durability in (None, "replica"):
                await executor.count_replicas(max(deadline - self._monotonic(), 0.001))
            if self._promise() is not None:
                await executor.connect_all("durable", max(deadline - self._monotonic(), 0.001))
            if self._watching is None:
                self._watching = asyncio.get_running_loop().create_task(self._watch_store())
            self._verified = True

    async def _follow_config(self, executor: AsyncExecutor, timeout_s: float) -> Config:
        """What ``config`` holds, written where it is missing; from now on this client does as it says.

        Raises StoreMismatch for what it must not touch, and StoreUnavailable.
        """
        settings, now = self.settings, self.commands
        ours = (now.writes, settings.partitions, settings.touch_granularity_ms)
        call = Call(script("config_open"), (now.keyspace.config,), ours, read_config)
        config = await executor.run(call, timeout_s)
        config.require(settings.namespace, settings.partitions)
        if (config.schema, config.granularity_ms * 1000) != (now.writes, now.granularity_us):
            self.commands = self._make_commands(config)
            self._quick = QuickPath(self.commands)
        return config

    async def close(self) -> None:
        """Writes what is still to be written behind, and closes every connection. May be called twice."""
        if self._behind:
            await asyncio.wait(list(self._behind), timeout=self._deadline_s)
        for task in list(self._behind):
            task.cancel()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
            self._watching = None
        if self._registry is not None:
            await self._registry.close()
            self._registry = None
        if self._hub is not None:
            hub, self._hub = self._hub, None
            await hub.close()
        executor, self._executor = self._executor, None
        self._verified = False
        if executor is not None:
            await executor.close()

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    @property
    def executor(self) -> AsyncExecutor:
        """The executor, made on first use in the running loop."""
        return self._prepare()

    @property
    def namespace(self) -> str:
        """The tenant this client speaks for."""
        return self.settings.namespace

    # -- plumbing ------------------------------------------------------------------------------------------------------

    def _request_id(self) -> str:
        """An id for one call of ours and its retries: unique per process by its nonce, per call by its number."""
        return f"{self._nonce}{next(self._count):x}"

    async def _run(self, call: Call[T], deadline: float | None = None) -> T:
        executor = self._executor
        if executor is None or not self._verified:
            await self._verify(self._monotonic() + self._deadline_s if deadline is None else deadline)
            executor = self._prepare()
        left = self._deadline_s if deadline is None else max(deadline - self._monotonic(), 0.001)
        return await executor.run(call, left)

    async def _decide(
        self,
        build: Callable[[bool], Call[Answer]],
        target: Target,
        require_durable: bool,
        *,
        guess_durable: bool = True,
        until: float | None = None,
    ) -> Answer:
        """A call whose effect the guarantees rest on. ``build`` makes it, given whether its answer has to be durable.
        ``guess_durable``: it probably decides something, so it travels with a WAIT from the start. ``until``: the deadline where
        it is not this call's alone."""
        promise = self._promise()
        if promise is None:
            answer = await self._run(build(False), until)
            self._note(target, answer)
            return answer
        executor, deadline = self.executor, until or self._monotonic() + self._deadline_s
        if not self._verified:
            await self._verify(deadline)
        if guess_durable:
            answer, durable = await executor.run_durable(build(True), max(deadline - self._monotonic(), 0.001), promise)
            durable = durable and answer.written
        else:
            answer = await self._run(build(False), deadline)
            self._note(target, answer)
            if not answer.decided:
                return answer
            return await self._settle_durability(answer, target, promise, deadline - self._monotonic(), require_durable)
        self._note(target, answer)
        return self._with_durability(answer, durable, require_durable) if answer.decided else answer

    async def _settle_durability(
        self, answer: Answer, target: Target, promise: Promise, left_s: float, require_durable: bool
    ) -> Answer:
        """A decision that travelled with the turns: its record goes out again where a WAIT covers it."""
        rewrite = self.commands.rewrite(target, answer.epoch, answer.fence)
        try:
            done, kept = await self.executor.run_durable(rewrite, max(left_s, 0.001), promise)
        except StoreUnavailable:
            done = kept = False  # what happened stands; nobody has acknowledged it
        return self._with_durability(answer, done and kept, require_durable)

    def _with_durability(self, answer: Answer, durable: bool, require_durable: bool) -> Answer:
        answer = answer._replace(result=msgspec.structs.replace(answer.result, durable=durable))
        if not durable:
            self._instruments.undurable()
            if require_durable:
                raise NotDurable(
                    "It happened, but was not acknowledged as durable, so a failover may lose it; "
                    "retry with the same request id to ask again.",
                    result=answer.result,
                )
        return answer

    def _promise(self) -> Promise | None:
        """What this namespace's decisions wait for; None where nobody is asked."""
        settings, executor = self.settings, self._executor
        mode = settings.durability
        if mode == "aof":
            return Promise("aof", 0)
        seen = 0 if executor is None else executor.replicas_seen
        if mode == "replica" or (mode is None and seen > 0):
            return Promise("replica", settings.durable_replicas or max(1, seen))
        return None

    async def _watch_store(self) -> None:
        """Replicas come and go; the most that were seen is what a decision waits for. And ``config`` may permit a newer schema,
        or be gone with the rest of the data."""
        told = False
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            try:
                if self.settings.durability in (None, "replica"):
                    await self.executor.count_replicas(self._deadline_s)
                await self._follow_config(self.executor, self._deadline_s)
                told = False
            except StoreUnavailable:
                log.debug("store_not_seen", namespace=self.namespace)
            except LimpetError as error:  # readiness fails by the same; what can be served meanwhile is
                if not told:
                    log.error("config_mismatch", namespace=self.namespace, error=str(error))
                told = True

    def _note(self, target: Target, answer: Answer) -> None:
        if answer.behind:
            self._instruments.clock_behind()
        if target.key is not None and answer.epoch:
            self._memory.saw(target.digest, answer.epoch)

    def _on_event(self, event: Event) -> None:
        if event.domain != "conv":
            return
        if self._memo is not None:
            self._memo.event(event.digest)
        if event.kind == "forget":
            self._memory.forget(event.digest)

    def _changing(self, target: Target) -> None:
        """Our own writes need no event to void our memo."""
        if self._memo is not None and target.key is not None:
            self._memo.event(target.digest)

    def _touch_behind(self, key: str, entry: MemoEntry, bind_ttl_ms: int) -> None:
        """Writes the activity of memo hits behind, within one granularity of the first."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._touch_later(key, entry, bind_ttl_ms, self._monotonic()))
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)

    async def _touch_later(self, key: str, entry: MemoEntry, bind_ttl_ms: int, at: float) -> None:
        memo, epoch = self._memo, entry.resolution.epoch
        if memo is None or epoch is None:
            return
        await asyncio.sleep(self.commands.granularity_us / 2_000_000)
        memo.touched(key)
        age_us = int((self._monotonic() - at) * 1_000_000)
        call = self.commands.touch(self.commands.declared(key), epoch, age_us=age_us, ttl_ms=bind_ttl_ms)
        try:
            await self._run(call)
        except StoreUnavailable:
            log.warning("touch_lost", namespace=self.namespace)  # the next turn that reaches the store is an activity too

    # -- inspection ----------------------------------------------------------------------------------------------------

    def events(self) -> AsyncGenerator[Event, None]:
        """Every event of the namespace from now on; a reader that lags too far behind is dropped (its iteration ends)."""
        self._prepare()
        assert self._hub is not None
        return self._hub.stream()

    async def read_record(self, key: str) -> tuple[str, bytes | None]:
        """The digest of a key and its record as stored (see ``lua/README.md``); for people who look, not for decisions."""
        target = self.commands.declared(check_text(key, "key"))
        await self._verify(self._monotonic() + self._deadline_s)
        name = self.commands.keyspace.record("conv", target.digest)
        return target.digest, await self.executor.command("GET", name, timeout_s=self._deadline_s, key=name)

    async def prune(self) -> int:
        """Takes bindings that are over out of the store's index, in bounded steps; the number removed."""
        return await (await self._maintenance()).prune()

    async def bindings_by_worker(self) -> dict[str, int]:
        """Live claims and bindings per worker, counted in the store; "" stands for claims that name no worker yet."""
        return await (await self._maintenance()).census()

    async def _maintenance(self) -> Maintenance:
        await self._verify(self._monotonic() + self._deadline_s)
        return Maintenance(
            self.executor, self.commands.keyspace, self.commands.granularity_us, max(self._deadline_s, 2.0), self.commands.writes
        )

    async def health(self, *, thorough: bool = False) -> Health:
        """Whether this replica can do its work: for readiness probes and, ``thorough``, for ``limpet doctor``. Never raises for a
        sick store."""
        deadline = self._monotonic() + max(self._deadline_s, 1.0)
        trouble: LimpetError | None = None
        executor = self._prepare()
        try:
            if not thorough:  # doctor only looks: whoever opens a namespace first sets it up
                await self._verify(deadline)
        except LimpetError as error:
            trouble = error
        return await check_health(
            executor,
            self.commands,
            self.settings,
            max(deadline - self._monotonic(), 0.001),
            clock=self._clock,
            promise=self._promise,
            thorough=thorough,
            trouble=trouble,
        )
