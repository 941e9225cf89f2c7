"""The asyncio client: what a gateway replica holds (design, sections 5 and 8)."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar

import msgspec
import structlog

from limpet.clock import Clock, SystemClock
from limpet.commands import MAX_BIND_TTL_MS, MAX_CLAIM_TTL_MS, Answer, Bind, Call, Commands, Target
from limpet.errors import InvalidRequest, NotDurable, StaleFence, StoreMismatch, StoreUnavailable
from limpet.events import Event, EventHub
from limpet.executors.aio import AsyncExecutor
from limpet.executors.durable import Promise
from limpet.executors.open import open_topology
from limpet.health import Health, check_health
from limpet.instruments import Instruments, NullMetrics
from limpet.keys import digest
from limpet.maintenance import Drained, Maintenance
from limpet.memo import Memo, MemoEntry
from limpet.memory import EpochMemory
from limpet.policy import NONE, Policy
from limpet.record import SCHEMA
from limpet.registry import Registry
from limpet.results import Advanced, Binding, Forgotten, Resolution, Suspended
from limpet.scripts import script
from limpet.turn import Turn
from limpet.validate import check_epoch, check_int, check_namespace, check_reason, check_request_id, check_text
from limpet.workers import HEARTBEAT_TTL_MS, Worker

__all__ = ["KINDS", "Kind", "Limpet", "Settings"]

log = structlog.get_logger("limpet")
T = TypeVar("T")

Kind = Literal["turn", "fork", "delegate", "tool", "background"]
KINDS: Final = ("turn", "fork", "delegate", "tool", "background")
MAX_LABELS: Final = 32
REPLICAS_EVERY_S: Final = 5.0
MAX_WINDOW_S: Final = 31_536_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a client behaves. What ``config`` in the store holds (partitions, touch granularity) wins over these.

    ``deadline_ms``: how long any call may take. ``memo_ttl_ms``: 0 turns the memo off. ``holder``: who makes this replica's
    claims (default: host name and process id). ``durability``: ``replica``, ``aof``, ``none``, or None to choose by what the
    primary has (design, section 4).
    """

    namespace: str = "default"
    partitions: int = 1024
    scope_secret: str | None = None
    retention_s: float = 2_592_000
    touch_granularity_ms: int = 1000
    deadline_ms: int = 250
    memo_ttl_ms: int = 0
    bind_ttl_ms: int = 300_000
    claim_ttl_ms: int = 10_000
    holder: str | None = None
    durability: Literal["replica", "aof", "none"] | None = None
    durable_replicas: int | None = None

    def __post_init__(self) -> None:
        check_namespace(self.namespace)
        check_int(self.partitions, "partitions", 1, 16_384)
        check_int(self.touch_granularity_ms, "touch_granularity_ms", 0, 60_000)
        check_int(self.deadline_ms, "deadline_ms", 1, 60_000)
        check_int(self.memo_ttl_ms, "memo_ttl_ms", 0, 60_000)
        check_int(self.bind_ttl_ms, "bind_ttl_ms", 1000, MAX_BIND_TTL_MS)
        check_int(self.claim_ttl_ms, "claim_ttl_ms", 100, MAX_CLAIM_TTL_MS)
        if not 1 <= self.retention_s <= 10 * MAX_WINDOW_S:
            raise InvalidRequest("retention_s must be from 1 second to ten years.", field="retention_s")
        if self.holder is not None:
            check_text(self.holder, "holder")


class _Placed(NamedTuple):
    bind: Bind
    incarnation: str = ""
    proposed: str | None = None


class Limpet:
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
        self._memo: Memo | None = None
        self._registry: Registry | None = None
        self._watching: asyncio.Task[None] | None = None
        self._touches: set[asyncio.Task[None]] = set()
        self.commands = self._make_commands(settings.partitions, settings.touch_granularity_ms)

    @classmethod
    def connect(cls, url: str, *, clock: Clock | None = None, instruments: Instruments | None = None, **settings: Any) -> Limpet:
        """A client for the store at ``url``; see :class:`Settings` for the rest. Connects on ``async with`` or :meth:`open`.

        Raises InvalidRequest for a setting or URL that is not valid.
        """
        try:
            chosen = Settings(**settings)
        except TypeError as error:
            raise InvalidRequest(f"{error}.") from None
        return cls(url, chosen, clock=clock, instruments=instruments)

    def _make_commands(self, partitions: int, granularity_ms: int) -> Commands:
        settings = self.settings
        return Commands(
            namespace=settings.namespace,
            partitions=partitions,
            scope_secret=settings.scope_secret,
            granularity_ms=granularity_ms,
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
            if self._pid != os.getpid():
                raise RuntimeError("This client was opened before a fork; open one in each process.")
            return self._executor
        self._pid = os.getpid()
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
            space = self.commands.keyspace
            settings = self.settings
            call = Call(
                script("config_open"),
                (space.config,),
                (SCHEMA, settings.partitions, settings.touch_granularity_ms),
                _read_config,
            )
            left = deadline - self._monotonic()
            schema, partitions, granularity_ms = await executor.run(call, max(left, 0.001))
            if schema != SCHEMA:
                raise StoreMismatch(
                    f"The store holds schema {schema} for namespace {settings.namespace} and this release uses {SCHEMA}; "
                    "run the release that the store was written by, or upgrade the namespace."
                )
            if partitions != settings.partitions:
                raise StoreMismatch(
                    f"Namespace {settings.namespace} has {partitions} partitions in the store and this replica is set to "
                    f"{settings.partitions}; set LIMPET_PARTITIONS={partitions}, since the number cannot change."
                )
            if granularity_ms != settings.touch_granularity_ms:
                log.warning(
                    "config_wins",
                    setting="touch_granularity_ms",
                    store=granularity_ms,
                    here=settings.touch_granularity_ms,
                )
                self.commands = self._make_commands(partitions, granularity_ms)
            await executor.learn_version(max(deadline - self._monotonic(), 0.001))
            if settings.durability in (None, "replica"):
                await executor.count_replicas(max(deadline - self._monotonic(), 0.001))
                if self._watching is None:
                    self._watching = asyncio.get_running_loop().create_task(self._watch_replicas())
            self._verified = True

    async def close(self) -> None:
        """Writes what is still to be written behind, and closes every connection. May be called twice."""
        if self._touches:
            await asyncio.wait(list(self._touches), timeout=self._deadline_s)
        for task in list(self._touches):
            task.cancel()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
            self._watching = None
        if self._registry is not None:
            await self._registry.close()
            self._registry = None
        if self._hub is not None:
            await self._hub.close()
            self._hub = None
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
        left = self._deadline_s if deadline is None else deadline - self._monotonic()
        return await executor.run(call, left)

    async def _decide(
        self, build: Callable[[bool], Call[Answer]], target: Target, require_durable: bool, *, guess_durable: bool = True
    ) -> Answer:
        """A call whose effect the guarantees rest on. ``build`` makes it, given whether its answer has to be durable.
        ``guess_durable``: it probably decides something, so it travels with a WAIT from the start."""
        promise = self._promise()
        if promise is None:
            answer = await self._run(build(False))
            self._note(target, answer)
            return answer
        if not self._verified:
            await self._verify(self._monotonic() + self._deadline_s)
        executor, deadline = self.executor, self._monotonic() + self._deadline_s
        durable: bool | None
        if guess_durable:
            answer, durable = await executor.run_durable(build(True), self._deadline_s, promise)
            durable = durable and answer.written
        else:
            answer, durable = await self._run(build(False), deadline), False
            if answer.decided:
                # The guess was wrong: the decision travelled with the turns. Its record goes out again where a WAIT covers it.
                rewrite = self.commands.rewrite(target, answer.epoch, answer.fence)
                try:
                    done, kept = await executor.run_durable(rewrite, max(deadline - self._monotonic(), 0.001), promise)
                    durable = done and kept
                except StoreUnavailable:
                    durable = False  # what happened stands; nobody has acknowledged it
        self._note(target, answer)
        if not answer.decided:
            return answer
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

    async def _watch_replicas(self) -> None:
        """Replicas come and go; the most that were seen is what a decision waits for."""
        while True:
            await asyncio.sleep(REPLICAS_EVERY_S)
            try:
                await self.executor.count_replicas(self._deadline_s)
            except StoreUnavailable:
                log.debug("replicas_unknown", namespace=self.namespace)

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

    # -- the turn ------------------------------------------------------------------------------------------------------

    async def resolve(
        self,
        key: str | None = None,
        *,
        session_id: str,
        kind: Kind = "turn",
        parent_key: str | None = None,
        policy: Policy | Mapping[str, object] | None = None,
        exempt: bool = False,
        seen_epoch: int | None = None,
        bind: Bind | Mapping[str, object] | bool | None = None,
        request_id: str | None = None,
        require_durable: bool = False,
    ) -> Resolution:
        """Where this turn belongs: its epoch and scope, and with ``bind`` its worker.

        Never fails because of the store: without an answer within the deadline it gives the physical scope, ``degraded`` (G7).
        Only ``kind="turn"`` with a key uses the declared scope; the rest use the physical one, and touch no store unless
        ``bind`` is asked for.

        Args:
            key: the conversation key, stable over per-response ids.
            session_id: the caller's own, possibly per-response, id.
            kind: turn, fork, delegate, tool or background.
            parent_key: for a fork: whose scope to return beside its own.
            policy: when idleness or a new day begins a new conversation; none by default.
            exempt: an active background process: idle and daily do not fire.
            seen_epoch: the epoch that the caller remembers, so that a lost advance is noticed.
            bind: True, or what the binding is to be like.
            request_id: repeats of one request get its first result.
            require_durable: raise when a decision is not acknowledged by a replica.

        Raises:
            InvalidRequest, ImplausibleEpoch, NotDurable.
        """
        check_text(session_id, "session_id")
        if kind not in KINDS:
            raise InvalidRequest(f"kind must be one of {', '.join(KINDS)}.", field="kind")
        chosen = NONE if policy is None else Policy.parse(policy)
        binding = None if bind is None else Bind.parse(bind)
        seen = 0 if seen_epoch is None else check_epoch(seen_epoch, "seen_epoch")
        if request_id is not None:
            check_request_id(request_id)
        if key is not None:
            check_text(key, "key")
        if parent_key is not None:
            check_text(parent_key, "parent_key")
        if key is None or kind != "turn":
            return await self._resolve_physical(session_id, parent_key, binding, request_id, require_durable)

        memo = self._memo
        if memo is None:
            return await self._resolve_declared(key, session_id, chosen, exempt, seen, binding, request_id, require_durable)
        if request_id is None and memo.up:
            hit = memo.get(key, self._monotonic(), chosen, binding is not None, seen, self._clock.now)
            if hit is not None:
                self._instruments.memo("hit")
                return hit if hit.session_id == session_id else msgspec.structs.replace(hit, session_id=session_id)
        self._instruments.memo("miss" if memo.up else "bypass")
        dig = digest(key)
        token = memo.ask(dig)
        kept: Resolution | None = None
        try:
            resolution = await self._resolve_declared(key, session_id, chosen, exempt, seen, binding, request_id, require_durable)
            if not resolution.degraded:
                kept = msgspec.structs.replace(resolution, created=False) if resolution.created else resolution
            return resolution
        finally:
            memo.answer(key, dig, token, kept, self._monotonic(), self._clock.now())

    async def _resolve_declared(
        self,
        key: str,
        session_id: str,
        policy: Policy,
        exempt: bool,
        seen: int,
        bind: Bind | None,
        request_id: str | None,
        require_durable: bool,
    ) -> Resolution:
        target = self.commands.declared(key)

        def build(durable: bool, bind: Bind | None, incarnation: str) -> Call[Answer]:
            return self.commands.resolve(
                target,
                session_id=session_id,
                policy=policy,
                now=self._clock.now() if policy.daily is not None else None,
                exempt=exempt,
                seen_epoch=seen,
                remembered_epoch=self._memory.recall(target.digest),
                bind=bind,
                request_id=rid,
                look_up=request_id is not None,
                durable=durable,
                incarnation=incarnation,
            )

        rid = self._request_id() if request_id is None else request_id
        try:
            answer = await self._turn(build, target, bind, require_durable)
        except NotDurable:
            raise
        except StoreUnavailable as error:
            return self._degraded(key, session_id, error)
        resolution: Resolution = answer.result
        self._count_turn(resolution, answer, bind)
        return resolution

    async def _resolve_physical(
        self, session_id: str, parent_key: str | None, bind: Bind | None, request_id: str | None, require_durable: bool
    ) -> Resolution:
        parent_scope, degraded = None, False
        if parent_key is not None:
            try:
                parent = await self.peek(parent_key)
                parent_scope = parent.scope if parent is not None else None
            except StoreUnavailable:
                degraded = True
        if bind is None:
            self._instruments.resolution(self.namespace, "physical", "degraded" if degraded else "continued")
            scope = self.commands.physical_scope(session_id)
            return Resolution(None, session_id, None, None, scope, "physical", parent_scope=parent_scope, degraded=degraded)
        target = self.commands.physical(session_id)
        rid = self._request_id() if request_id is None else request_id

        def build(durable: bool, bind: Bind | None, incarnation: str) -> Call[Answer]:
            return self.commands.resolve(
                target,
                session_id=session_id,
                bind=bind,
                request_id=rid,
                look_up=request_id is not None,
                durable=durable,
                incarnation=incarnation,
            )

        try:
            answer = await self._turn(build, target, bind, require_durable)
        except NotDurable:
            raise
        except StoreUnavailable as error:
            return msgspec.structs.replace(self._degraded(None, session_id, error), parent_scope=parent_scope)
        resolution: Resolution = answer.result
        self._count_turn(resolution, answer, bind)
        return msgspec.structs.replace(resolution, parent_scope=parent_scope, degraded=degraded) if parent_key else resolution

    async def _turn(
        self, build: Callable[[bool, Bind | None, str], Call[Answer]], target: Target, bind: Bind | None, require_durable: bool
    ) -> Answer:
        """Resolves; with a bind proposes a worker first, waits for another's claim if the caller wants that, and afterwards sees
        to it that the worker can go on."""
        guess = self._memory.recall(target.digest) == 0  # the first turn here is likely to create or claim
        if bind is None:
            return await self._decide(lambda durable: build(durable, None, ""), target, require_durable, guess_durable=guess)
        placed = await self._propose(bind, target)
        try:

            async def ask() -> Answer:
                return await self._decide(
                    lambda durable: build(durable, placed.bind, placed.incarnation), target, require_durable, guess_durable=guess
                )

            answer = await (self._ask_and_wait(ask, target, bind.wait_ms / 1000) if bind.wait_ms else ask())
        except BaseException:
            self._account(placed, None)
            raise
        if self._registry is None:
            return answer
        self._account(placed, answer.result.binding)
        return await self._settle_worker(answer, bind, target)

    async def _ask_and_wait(self, ask: Callable[[], Awaitable[Answer]], target: Target, wait_s: float) -> Answer:
        """Waits for another's claim: woken by the event and not by polling; at the claim's deadline too, since the claimer may
        have died, and when the subscription comes (back) up, since an event may have been missed."""
        until = self._monotonic() + wait_s
        self._prepare()
        assert self._hub is not None
        self._hub.start()
        with self._hub.watch(target.domain, target.digest) as watch:
            while True:
                watch.clear()
                answer = await ask()
                binding = answer.result.binding
                left = until - self._monotonic()
                if binding is None or binding.action != "wait" or left <= 0:
                    return answer
                await watch.wait(min(left, binding.retry_after_ms / 1000))

    def _degraded(self, key: str | None, session_id: str, error: StoreUnavailable) -> Resolution:
        self._instruments.degraded()
        self._instruments.resolution(self.namespace, "physical", "degraded")
        log.warning("degraded", namespace=self.namespace, reason=str(error))
        scope = self.commands.physical_scope(session_id)
        return Resolution(key, session_id, None, None, scope, "physical", degraded=True)

    def _count_turn(self, resolution: Resolution, answer: Answer, bind: Bind | None) -> None:
        instruments = self._instruments
        reset = resolution.reset
        if reset is not None and not answer.replayed:
            instruments.reset(reset.reason)
            if reset.reason == "rollback":
                instruments.rollback()
                log.warning("rollback", namespace=self.namespace, epoch=resolution.epoch, previous_epoch=reset.previous_epoch)
        outcome = "created" if resolution.created else "reset" if reset is not None else "continued"
        instruments.resolution(self.namespace, resolution.source, outcome)
        if bind is not None and resolution.binding is not None and resolution.binding.action is not None:
            instruments.bind(resolution.binding.action)

    def _touch_behind(self, key: str, entry: MemoEntry) -> None:
        """Writes the activity of memo hits behind, within one granularity of the first."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._touch_later(key, entry, self._monotonic()))
        self._touches.add(task)
        task.add_done_callback(self._touches.discard)

    async def _touch_later(self, key: str, entry: MemoEntry, at: float) -> None:
        memo, epoch = self._memo, entry.resolution.epoch
        if memo is None or epoch is None:
            return
        await asyncio.sleep(self.commands.granularity_us / 2_000_000)
        memo.touched(key)
        ttl_ms = self.settings.bind_ttl_ms if entry.resolution.binding is not None else 0
        age_us = int((self._monotonic() - at) * 1_000_000)
        call = self.commands.touch(self.commands.declared(key), epoch, age_us=age_us, ttl_ms=ttl_ms)
        try:
            await self._run(call)
        except StoreUnavailable:
            log.warning("touch_lost", namespace=self.namespace)  # the next turn that reaches the store is an activity too

    def turn(
        self,
        key: str | None = None,
        *,
        session_id: str,
        bind: Bind | Mapping[str, object] | bool | None = True,
        **options: Any,
    ) -> Turn:
        """One turn as a context manager: resolves with ``bind`` (and any other argument of :meth:`resolve`), publishes the scope,
        renews while it is open; confirms on success, aborts on failure or cancellation."""
        return Turn(self, lambda: self.resolve(key, session_id=session_id, bind=bind, **options), key, session_id)

    # -- the host's own decisions --------------------------------------------------------------------------------------

    async def advance(
        self,
        key: str,
        reason: str,
        *,
        expected_epoch: int | None = None,
        request_id: str | None = None,
        require_durable: bool = False,
    ) -> Advanced:
        """A new conversation begins (``/new``, a switch, a recycled session ...). With ``expected_epoch`` a compare-and-set.

        Raises:
            ImplausibleEpoch: ``expected_epoch`` is more than 60 s ahead of the store's clock.
            StoreUnavailable: whether it happened is unknown; retry with the same ``request_id``.
            NotDurable: ``require_durable`` was set, and no replica has acknowledged it.
        """
        target = self.commands.declared(check_text(key, "key"))
        check_reason(reason)
        expected = 0 if expected_epoch is None else check_epoch(expected_epoch, "expected_epoch")
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        self._changing(target)
        answer = await self._decide(
            lambda durable: self.commands.advance(target, reason, expected_epoch=expected, request_id=rid, durable=durable),
            target,
            require_durable,
        )
        self._changing(target)
        result: Advanced = answer.result
        if result.applied and not answer.replayed:
            self._instruments.reset(reason)
        return result

    async def suspend(self, key: str, *, resume_within_s: float | None = None, request_id: str | None = None) -> Suspended:
        """The next turn begins a new conversation; with ``resume_within_s`` a turn within that time resumes the old one."""
        target = self.commands.declared(check_text(key, "key"))
        window_ms = 0
        if resume_within_s is not None:
            if isinstance(resume_within_s, bool) or not 0.001 <= resume_within_s <= MAX_WINDOW_S:
                raise InvalidRequest(f"resume_within_s must be from 0.001 to {MAX_WINDOW_S} seconds.", field="resume_within_s")
            window_ms = int(resume_within_s * 1000)
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        self._changing(target)
        answer = await self._run(self.commands.suspend(target, window_ms=window_ms, request_id=rid))
        self._changing(target)
        self._note(target, answer)
        suspended: Suspended = answer.result
        return suspended

    async def forget(self, key: str, *, expected_epoch: int | None = None, request_id: str | None = None) -> Forgotten:
        """The record goes, its binding with it; the epoch is not forgotten: the next one is larger (G3)."""
        target = self.commands.declared(check_text(key, "key"))
        expected = 0 if expected_epoch is None else check_epoch(expected_epoch, "expected_epoch")
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        self._changing(target)
        answer = await self._run(self.commands.forget(target, expected_epoch=expected, request_id=rid))
        self._changing(target)
        forgotten: Forgotten = answer.result
        if forgotten.applied:
            self._memory.forget(target.digest)
        return forgotten

    async def peek(self, key: str) -> Resolution | None:
        """The conversation as it is, or None: no touch, no policy, no claim (compaction out of turn, inspection)."""
        answer = await self._run(self.commands.peek(self.commands.declared(check_text(key, "key"))))
        resolution: Resolution | None = answer.result
        return resolution

    async def epoch(self, key: str) -> int | None:
        """The current epoch of a key, or None."""
        resolution = await self.peek(key)
        return None if resolution is None else resolution.epoch

    # -- the binding ---------------------------------------------------------------------------------------------------

    def _named(self, key: str | None, session_id: str | None, fence: int) -> Target:
        check_epoch(fence, "fence")
        if (key is None) == (session_id is None):
            raise InvalidRequest("Name the binding by key or by session_id: exactly one of the two.", field="key")
        if key is not None:
            return self.commands.declared(check_text(key, "key"))
        assert session_id is not None
        return self.commands.physical(check_text(session_id, "session_id"))

    async def _bound(
        self, operation: str, build: Callable[[bool], Call[Answer]], target: Target, require_durable: bool | None = None
    ) -> Binding:
        """A binding call. ``require_durable`` is None for those that the guarantees do not rest on: they wait for nobody."""
        self._changing(target)
        try:
            if require_durable is None:
                answer = await self._run(build(False))
                self._note(target, answer)
            else:
                answer = await self._decide(build, target, require_durable)
        except StaleFence:
            self._instruments.fence_rejection(operation)
            raise
        finally:
            self._changing(target)
        binding: Binding = answer.result
        return binding

    async def confirm(
        self,
        key: str | None = None,
        *,
        session_id: str | None = None,
        fence: int,
        worker: str | None = None,
        dp_rank: int | None = None,
        ttl_ms: int | None = None,
        request_id: str | None = None,
        require_durable: bool = False,
    ) -> Binding:
        """The claim becomes a binding, to the ``worker`` that really served if one is named. Accepted after the claim's ttl too,
        as long as nobody claimed since. As of all binding calls: raises StaleFence when the fence does not hold it."""
        target = self._named(key, session_id, fence)
        who = "" if worker is None else check_text(worker, "worker")
        rank = -1 if dp_rank is None else check_int(dp_rank, "dp_rank", 0, 2**31 - 1)
        ttl = 0 if ttl_ms is None else check_int(ttl_ms, "ttl_ms", 1000, MAX_BIND_TTL_MS)
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        binding = await self._bound(
            "confirm",
            lambda durable: self.commands.confirm(
                target, fence, worker=who, dp_rank=rank, ttl_ms=ttl, request_id=rid, durable=durable
            ),
            target,
            require_durable,
        )
        self._instruments.bind("confirmed")
        return binding

    async def abort(
        self,
        key: str | None = None,
        *,
        session_id: str | None = None,
        fence: int,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> Binding:
        """The first request failed: the claim goes, and the next turn is told to bind."""
        target = self._named(key, session_id, fence)
        why = "aborted" if reason is None else check_reason(reason)
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        binding = await self._bound("abort", lambda _: self.commands.abort(target, fence, reason=why, request_id=rid), target)
        self._instruments.bind("aborted")
        return binding

    async def release(
        self,
        key: str | None = None,
        *,
        session_id: str | None = None,
        fence: int,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> Binding:
        """The conversation leaves its worker. Idempotent."""
        target = self._named(key, session_id, fence)
        why = "released" if reason is None else check_reason(reason)
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        binding = await self._bound("release", lambda _: self.commands.release(target, fence, reason=why, request_id=rid), target)
        self._instruments.bind("released")
        return binding

    async def renew(
        self,
        key: str | None = None,
        *,
        session_id: str | None = None,
        fence: int,
        ttl_ms: int | None = None,
        request_id: str | None = None,
    ) -> Binding:
        """A claim or binding lives on, by ``ttl_ms`` or its default; an activity."""
        target = self._named(key, session_id, fence)
        ttl = 0 if ttl_ms is None else check_int(ttl_ms, "ttl_ms", 100, MAX_BIND_TTL_MS)
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        return await self._bound("renew", lambda _: self.commands.renew(target, fence, ttl_ms=ttl, request_id=rid), target)

    async def rebind(
        self,
        key: str | None = None,
        *,
        session_id: str | None = None,
        fence: int,
        reason: str,
        worker: str | None = None,
        holder: str | None = None,
        claim_ttl_ms: int | None = None,
        request_id: str | None = None,
        require_durable: bool = False,
    ) -> Binding:
        """The worker is lost: claims anew with a larger fence, by compare-and-set on ``fence``. The loser gets StaleFence, whose
        ``binding`` is the winner's to follow."""
        target = self._named(key, session_id, fence)
        check_reason(reason)
        who = "" if worker is None else check_text(worker, "worker")
        claimer = "" if holder is None else check_text(holder, "holder")
        ttl = 0 if claim_ttl_ms is None else check_int(claim_ttl_ms, "claim_ttl_ms", 100, MAX_CLAIM_TTL_MS)
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        binding = await self._bound(
            "rebind",
            lambda durable: self.commands.rebind(
                target, fence, reason, worker=who, holder=claimer, claim_ttl_ms=ttl, request_id=rid, durable=durable
            ),
            target,
            require_durable,
        )
        self._instruments.bind("rebound")
        return binding

    # -- inspection ----------------------------------------------------------------------------------------------------

    def events(self) -> AsyncIterator[Event]:
        """Every event of the namespace from now on; a reader that lags too far behind is dropped (its iteration ends)."""
        self._prepare()
        assert self._hub is not None
        return self._hub.stream()

    async def prune(self) -> int:
        """Takes bindings that are over out of the store's index, in bounded steps; the number removed."""
        return await (await self._maintenance()).prune()

    async def bindings_by_worker(self) -> dict[str, int]:
        """Live claims and bindings per worker, counted in the store; "" stands for claims that name no worker yet."""
        return await (await self._maintenance()).census()

    async def _maintenance(self) -> Maintenance:
        await self._verify(self._monotonic() + self._deadline_s)
        return Maintenance(self.executor, self.commands.keyspace, self.commands.granularity_us, max(self._deadline_s, 2.0))

    # -- workers -------------------------------------------------------------------------------------------------------

    async def register(
        self,
        worker: str,
        *,
        pool: str,
        address: str = "",
        capacity: float = 1.0,
        incarnation: str = "",
        labels: Mapping[str, str] | None = None,
        ttl_ms: int = HEARTBEAT_TTL_MS,
    ) -> Worker:
        """A worker comes, or comes back: under another ``incarnation`` it is another worker. ``ttl_ms`` 0: a static one, which
        needs no heartbeat. Raises QuotaExceeded when the namespace has too many."""
        check_text(worker, "worker")
        check_text(pool, "pool")
        for name, text in (("address", address), ("incarnation", incarnation)):
            if text:
                check_text(text, name)
        if isinstance(capacity, bool) or not isinstance(capacity, int | float) or not 0 < capacity <= 1_000_000:
            raise InvalidRequest("capacity must be a number above 0 and up to 1,000,000.", field="capacity")
        if ttl_ms:
            check_int(ttl_ms, "ttl_ms", 100, MAX_CLAIM_TTL_MS)
        marks = dict(labels or {})
        if len(marks) > MAX_LABELS:
            raise InvalidRequest(f"labels has more than {MAX_LABELS} entries.", field="labels")
        for name, text in marks.items():
            check_text(name, "labels")
            check_text(text, "labels")
        return await self._run(self.commands.register(worker, pool, address, float(capacity), incarnation, marks, ttl_ms))

    async def heartbeat(self, worker: str, *, incarnation: str | None = None) -> Worker:
        """A worker is alive. Raises UnknownWorker, and OtherIncarnation when it has been registered anew since."""
        who = "" if incarnation is None else check_text(incarnation, "incarnation")
        return await self._run(self.commands.heartbeat(check_text(worker, "worker"), who))

    async def undrain(self, worker: str) -> Worker:
        """The worker may be proposed again. Raises UnknownWorker."""
        return await self._run(self.commands.mark(check_text(worker, "worker"), "undrain"))

    async def remove_worker(self, worker: str) -> Worker:
        """The worker is taken out; its conversations are rebound in their next turns. Raises UnknownWorker."""
        return await self._run(self.commands.mark(check_text(worker, "worker"), "remove"))

    async def mark_draining(self, worker: str) -> Worker:
        """The worker is proposed no more, and its conversations are rebound in their next turns. Raises UnknownWorker."""
        return await self._run(self.commands.mark(check_text(worker, "worker"), "drain"))

    async def drain(self, worker: str) -> AsyncIterator[Drained]:
        """Marks the worker as draining and takes its bindings off it in bounded batches; yields the progress of one pass, last
        with ``may_stop`` where nothing is left. Resumable: what is left shows in the store. Raises UnknownWorker,
        StoreUnavailable."""
        await self.mark_draining(worker)
        maintenance = await self._maintenance()
        async for progress in maintenance.drain(worker, self.commands.keyspace.events):
            yield progress

    async def workers(self, *, counts: bool = False) -> list[Worker]:
        """Every registered worker; with ``counts`` how many live bindings each has, counted in the store."""
        snapshot = await self._run(self.commands.workers())
        listed = sorted(snapshot.workers.values(), key=lambda each: (each.pool, each.worker))
        if not counts:
            return listed
        loads = await self.bindings_by_worker()
        return [msgspec.structs.replace(each, bindings=loads.get(each.worker, 0)) for each in listed]

    def _workers_view(self) -> Registry:
        """The view of the workers, kept fresh from its first use on."""
        if self._registry is None:
            self._prepare()
            assert self._hub is not None
            self._registry = Registry(lambda: self._run(self.commands.workers()), self.bindings_by_worker, self._monotonic)
            self._hub.listeners.append(self._registry.on_event)
            self._hub.start()
        return self._registry

    async def _propose(self, bind: Bind, target: Target, exclude: tuple[str, ...] = ()) -> _Placed:
        """The bind with a worker of its pool proposed, and the incarnation that worker has now. The caller's candidate stays."""
        if bind.pool is None:
            return _Placed(bind)
        view = self._workers_view()
        await view.ready(self._deadline_s / 2)
        proposed = None
        if bind.worker is None:
            proposed = view.propose(bind.pool, target.digest, (*bind.exclude, *exclude))
            if proposed is None:
                return _Placed(bind)
            bind = msgspec.structs.replace(bind, worker=proposed)
        known = view.snapshot.workers.get(bind.worker or "") if view.snapshot is not None else None
        return _Placed(bind, known.incarnation if known else "", proposed)

    def _account(self, placed: _Placed, binding: Binding | None) -> None:
        """What was proposed counts only if it became a binding; what was bound without a proposal counts too."""
        view = self._registry
        if view is None:
            return
        bound = binding.worker if binding is not None and binding.action == "bind" else None
        if placed.proposed is not None and bound != placed.proposed:
            view.unbound(placed.proposed)
        if bound is not None and bound != placed.proposed:
            view.bound(bound)

    async def _settle_worker(self, answer: Answer, bind: Bind, target: Target) -> Answer:
        """After the store's decision: counts our own bind, moves a binding off a worker that is gone, draining or reincarnated,
        and says where the worker is."""
        view = self._registry
        resolution: Resolution = answer.result
        binding = resolution.binding
        if view is None or view.snapshot is None or binding is None:
            return answer
        if binding.action == "continue":
            why = view.snapshot.condemns(binding, bind.pool)
            if why is not None:
                binding = await self._move(binding, bind, target, why)
        known = view.snapshot.workers.get(binding.worker or "")
        if known is not None and known.address:
            binding = msgspec.structs.replace(binding, address=known.address)
        if binding is resolution.binding:
            return answer
        return answer._replace(result=msgspec.structs.replace(resolution, binding=binding))

    async def _move(self, binding: Binding, bind: Bind, target: Target, why: str) -> Binding:
        """Rebinds, by compare-and-set; the loser follows the winner."""
        fence = binding.fence or 0
        own = msgspec.structs.replace(bind, worker=None) if bind.worker == binding.worker else bind
        placed = await self._propose(own, target, (binding.worker or "",))
        rid = self._request_id()

        def build(durable: bool) -> Call[Answer]:
            return self.commands.rebind(
                target,
                fence,
                why,
                worker=placed.bind.worker or "",
                incarnation=placed.incarnation,
                holder=bind.holder or "",
                claim_ttl_ms=bind.claim_ttl_ms or 0,
                request_id=rid,
                durable=durable,
            )

        try:
            moved: Binding = (await self._decide(build, target, False)).result
        except StaleFence as lost:
            self._account(placed, None)
            return lost.binding or binding
        except BaseException:
            self._account(placed, None)
            raise
        self._account(placed, moved)
        self._instruments.bind("rebound")
        if bind.commit and moved.fence is not None:
            confirm = self.commands.confirm(target, moved.fence, ttl_ms=bind.ttl_ms or 0, request_id=self._request_id())
            committed: Binding = (await self._run(confirm)).result
            moved = msgspec.structs.replace(committed, action="bind", rebound=True)
        return moved

    async def health(self) -> Health:
        """Whether this replica can do its work: for readiness probes and ``limpet doctor``. Never raises for a sick store."""
        deadline = self._monotonic() + max(self._deadline_s, 1.0)
        try:
            await self._verify(deadline)
        except (StoreUnavailable, StoreMismatch) as error:
            return Health.failed(error)
        return await check_health(self._prepare(), self.commands.keyspace, max(deadline - self._monotonic(), 0.001))


def _read_config(reply: list[bytes]) -> tuple[int, int, int]:
    try:
        schema, partitions, granularity_ms = (int(value) for value in reply)
    except ValueError:
        raise StoreMismatch("The namespace's config in the store holds what is no number; mend or remove that hash.") from None
    return schema, partitions, granularity_ms
