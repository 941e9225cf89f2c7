"""The turn: resolve in all its forms (design, section 5)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, NamedTuple, Protocol

import msgspec
import structlog

from limpet.bind import Bind
from limpet.calls import Answer, Call, Target
from limpet.errors import InvalidRequest, LimpetError, NotDurable, StoreUnavailable
from limpet.executors.durable import Promise
from limpet.executors.lane import Lane, LaneLost, ReplyError
from limpet.keys import digest
from limpet.placing import Placing, unseen
from limpet.policy import NONE, Policy
from limpet.quick import Known
from limpet.results import Resolution
from limpet.schema import NEWEST
from limpet.validate import check_epoch, check_request_id, check_text

__all__ = ["KINDS", "Kind", "Resolving"]

log = structlog.get_logger("limpet")

Kind = Literal["turn", "fork", "delegate", "tool", "background"]
KINDS: Final = ("turn", "fork", "delegate", "tool", "background")


class Build(Protocol):
    """Makes a turn's call. ``again``: the request id is not new."""

    def __call__(self, durable: bool, bind: Bind | None, incarnation: str, again: bool = False) -> Call[Answer]: ...


class Sent(NamedTuple):
    """A turn that went the short way."""

    known: Known
    lane: Lane
    promise: Promise | None
    reply: asyncio.Future[bytes]


class Resolving(Placing):
    """Resolves turns: declared or physical, memoised, waiting, degraded."""

    _checked_bind: Bind | None = None

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
        binding = self._checked_bind
        if bind is not binding:  # most callers give one bind in all their turns
            binding = self._checked_bind = Bind.parse(bind)
        seen = 0 if seen_epoch is None else check_epoch(seen_epoch, "seen_epoch")
        if request_id is not None:
            check_request_id(request_id)
        if key is not None and key is not session_id:
            check_text(key, "key")
        if parent_key is not None:
            check_text(parent_key, "parent_key")
        if key is None or kind != "turn":
            return await self._resolve_physical(session_id, parent_key, binding, request_id, require_durable)

        memo = self._memo
        if memo is None:
            return await self._resolve_declared(key, session_id, chosen, exempt, seen, binding, request_id, require_durable)
        if request_id is None and memo.up:
            ttl_ms = 0 if binding is None else binding.ttl_ms or self.settings.bind_ttl_ms
            hit = memo.get(key, self._monotonic(), chosen, ttl_ms, seen, self._clock.now)
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
        until, ours = self._monotonic() + self._deadline_s, request_id is None
        known = self._quick.known(key) if request_id is None and not seen and self._verified else None
        if known is not None and bind is not None and (bind.pool is not None or bind.wait_ms or self._registry is not None):
            resolution = await self._glance(known, policy, exempt, session_id, bind, until)
            if resolution is not None:
                return resolution
        elif known is not None and (template := self._quick.template(policy, exempt, bind)) is not None:
            rid = self._request_id()
            resolution = await self._resolve_quickly(known, template, session_id, bind, rid, require_durable, until)
            if resolution is not None:
                return resolution
            request_id = rid  # it may have taken effect: the long way looks it up
        target = self.commands.declared(key)

        def build(durable: bool, bind: Bind | None, incarnation: str, again: bool = False) -> Call[Answer]:
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
                look_up=again or request_id is not None,
                durable=durable,
                incarnation=incarnation,
            )

        rid = self._request_id() if request_id is None else request_id
        try:
            answer = await self._turn(build, target, bind, require_durable, until, ours)
        except NotDurable:
            raise
        except StoreUnavailable as error:
            return self._degraded(key, session_id, error)
        answered: Resolution = answer.result
        self._count_turn(answered, answer, bind)
        self._quick.learn(key, target)
        return answered

    async def _resolve_quickly(
        self,
        known: Known,
        template: tuple[bytes, bytes],
        session_id: str,
        bind: Bind | None,
        rid: str,
        require_durable: bool,
        until: float,
    ) -> Resolution | None:
        """The short way (:mod:`limpet.quick`); None when the long way has to be gone."""
        sent = self._send_quickly(known, template, rid)
        if sent is None:
            return None
        try:
            try:
                reply: bytes = await sent.reply
            except (LaneLost, ReplyError):
                return None
            except StoreUnavailable as error:
                self.executor.failed(known.record_key, sent.lane)
                if bind is not None:
                    self._return_unseen(lambda: self._ask_again(known.target, session_id, bind, rid), known.target)
                return self._degraded(known.target.key, session_id, error)
            self.executor.answered("conversation_resolve", until - self._deadline_s, sent.lane)
            read = self._read_quickly(sent, reply, session_id, bind)
            return read if isinstance(read, Resolution) else await self._settle_quickly(sent, read, bind, until, require_durable)
        except asyncio.CancelledError:
            if bind is not None:
                self._return_unseen(lambda: self._ask_again(known.target, session_id, bind, rid), known.target)
            raise

    def _ask_again(self, target: Target, session_id: str, bind: Bind, rid: str) -> Awaitable[Answer]:
        """What a turn on the short way was told, for the claim in it."""

        def build(durable: bool) -> Call[Answer]:
            remembered = self._memory.recall(target.digest)
            return self.commands.resolve(
                target, session_id=session_id, remembered_epoch=remembered, bind=bind, request_id=rid, durable=durable
            )

        return self._decide(build, target, False, guess_durable=False)

    async def _glance(
        self, known: Known, policy: Policy, exempt: bool, session_id: str, bind: Bind, until: float
    ) -> Resolution | None:
        """The short way of a turn for which a worker would have to be proposed, or a claim be waited for, were its binding not in
        order. It mostly is, so the store is asked for what is there first. None when something is to be decided, which the store
        has left undone then."""
        view = self._registry
        if bind.pool is not None and (view is None or view.snapshot is None):
            return None
        template = self._quick.template(policy, exempt, bind, True)
        sent = None if template is None else self._send_quickly(known, template, "", glance=True)
        if sent is None:
            return None
        try:
            reply: bytes = await sent.reply
        except (LaneLost, ReplyError):
            return None
        except StoreUnavailable as error:
            self.executor.failed(known.record_key, sent.lane)
            return self._degraded(known.target.key, session_id, error)
        self.executor.answered("conversation_resolve", until - self._deadline_s, sent.lane)
        if not reply:
            return None
        if reply == known.raw and (same := known.resolution) is not None:
            same = same if same.session_id == session_id else msgspec.structs.replace(same, session_id=session_id)
            answer = Answer(same)
        else:
            answer = self.commands.read_resolution(reply, known.target, session_id, True)
            self._keep(known, reply, answer)
        return self._counted(await self._settle_worker(answer, bind, known.target, until), bind)

    def _send_quickly(self, known: Known, template: tuple[bytes, bytes], rid: str, *, glance: bool = False) -> Sent | None:
        executor = self.executor
        lane = executor.topology.lane(known.record_key, "shared")
        if lane is None or lane.full() or lane.breaker.open:
            return None
        promise = self._promise()
        seen = self._memory.recall(known.target.digest)
        if promise is not None and not seen and not glance:
            return None  # likely to decide something: that travels with its WAIT
        now = executor.time()
        reply = lane.send_packed(self._quick.command(known, template, seen, rid), now + self._deadline_s, now)
        return Sent(known, lane, promise, reply)

    def _read_quickly(self, sent: Sent, reply: bytes, session_id: str, bind: Bind | None) -> Resolution | Answer:
        """What a reply means; an Answer where its durability is to be settled first."""
        known = sent.known
        if reply == known.raw and (same := known.resolution) is not None:
            self._instruments.resolution(self.namespace, "declared", "continued")
            if bind is not None:
                self._instruments.bind("continue")
            return same if same.session_id == session_id else msgspec.structs.replace(same, session_id=session_id)
        answer = self.commands.read_resolution(reply, known.target, session_id, bind is not None)
        self._keep(known, reply, answer)
        if sent.promise is not None and answer.decided:
            return answer
        return self._counted(answer, bind)

    def _keep(self, known: Known, reply: bytes, answer: Answer) -> None:
        if reply[0] <= NEWEST:
            known.raw, known.resolution = reply, answer.result
        self._note(known.target, answer)  # also what is then refused as not durable: it happened, and its loss must be noticed

    async def _settle_quickly(
        self, sent: Sent, answer: Answer, bind: Bind | None, until: float, require_durable: bool
    ) -> Resolution:
        assert sent.promise is not None
        left = until - self._monotonic()
        settled = await self._settle_durability(answer, sent.known.target, sent.promise, left, require_durable)
        return self._counted(settled, bind)

    def _counted(self, answer: Answer, bind: Bind | None) -> Resolution:
        resolution: Resolution = answer.result
        self._count_turn(resolution, answer, bind)
        return resolution

    def resolve_soon(
        self,
        key: str,
        session_id: str,
        policy: Policy,
        exempt: bool,
        bind: Bind | None,
        done: Callable[[Resolution | Awaitable[Resolution]], None],
    ) -> bool:
        """:meth:`resolve` without a coroutine, for a server's hottest route: the usual turn costs no task and no switch of one.
        Of the loop's thread, with arguments that were checked.

        Returns:
            Whether it was asked; if not, nothing happened, and :meth:`resolve` is to be called. ``done`` gets the resolution, or
            what is to be awaited for it.
        """
        if not self._verified or (bind is not None and bind.wait_ms):
            return False
        sent: Sent | None = None
        if self._memo is None and (bind is None or (bind.pool is None and self._registry is None)):
            template = self._quick.template(policy, exempt, bind)
            if template is not None:
                known = self._quick.known(key) or self._quick.learn(key, self.commands.declared(key))
                rid = self._request_id()
                began = self._monotonic()
                sent = self._send_quickly(known, template, rid)
        if sent is None:  # a decision that a replica is to acknowledge, a worker to be proposed, a daily policy
            done(self.resolve(key, session_id=session_id, policy=policy, exempt=exempt, bind=bind))
            return True

        def replied(reply: asyncio.Future[bytes]) -> None:
            error = LaneLost() if reply.cancelled() else reply.exception()
            if error is None:
                self.executor.answered("conversation_resolve", began, sent.lane)
                try:
                    read = self._read_quickly(sent, reply.result(), session_id, bind)
                except LimpetError as unreadable:
                    done(_failing(unreadable))
                    return
                until = began + self._deadline_s
                done(read if isinstance(read, Resolution) else self._settle_quickly(sent, read, bind, until, False))
            elif isinstance(error, StoreUnavailable):
                self.executor.failed(known.record_key, sent.lane)
                if bind is not None:
                    self._return_unseen(lambda: self._ask_again(known.target, session_id, bind, rid), known.target)
                done(self._degraded(key, session_id, error))
            else:  # it may have taken effect: the long way looks it up
                done(self.resolve(key, session_id=session_id, policy=policy, exempt=exempt, bind=bind, request_id=rid))

        sent.reply.add_done_callback(replied)
        return True

    async def _resolve_physical(
        self, session_id: str, parent_key: str | None, bind: Bind | None, request_id: str | None, require_durable: bool
    ) -> Resolution:
        if parent_key is None:
            return await self._resolve_session(session_id, bind, request_id, require_durable)
        # Side by side, so that both have the whole deadline.
        asking = asyncio.ensure_future(self.peek(parent_key))
        try:
            resolution = await self._resolve_session(session_id, bind, request_id, require_durable)
            parent = await asking
        except StoreUnavailable as error:
            if isinstance(error, NotDurable):
                raise
            if bind is not None:
                return resolution  # a binding is worth more than the parent's scope, which is None then
            return self._degraded(None, session_id, error)
        finally:
            asking.cancel()
        return resolution if parent is None else msgspec.structs.replace(resolution, parent_scope=parent.scope)

    async def _resolve_session(
        self, session_id: str, bind: Bind | None, request_id: str | None, require_durable: bool
    ) -> Resolution:
        if bind is None:
            self._instruments.resolution(self.namespace, "physical", "continued")
            scope = self.commands.physical_scope(session_id)
            return Resolution(None, session_id, None, None, scope, "physical")
        target = self.commands.physical(session_id)
        rid = self._request_id() if request_id is None else request_id

        def build(durable: bool, bind: Bind | None, incarnation: str, again: bool = False) -> Call[Answer]:
            return self.commands.resolve(
                target,
                session_id=session_id,
                bind=bind,
                request_id=rid,
                look_up=again or request_id is not None,
                durable=durable,
                incarnation=incarnation,
            )

        try:
            answer = await self._turn(
                build, target, bind, require_durable, self._monotonic() + self._deadline_s, request_id is None
            )
        except NotDurable:
            raise
        except StoreUnavailable as error:
            return self._degraded(None, session_id, error)
        resolution: Resolution = answer.result
        self._count_turn(resolution, answer, bind)
        return resolution

    async def _turn(
        self,
        build: Build,
        target: Target,
        bind: Bind | None,
        require_durable: bool,
        until: float,
        ours: bool,
    ) -> Answer:
        """Resolves; with a bind proposes a worker first, waits for another's claim if the caller wants that, and afterwards sees
        to it that the worker can go on. All before ``until`` (monotonic seconds), but for the waiting. ``ours``: the request id
        is known to nobody else."""
        guess = self._memory.recall(target.digest) == 0  # the first turn here is likely to create or claim
        if bind is None:
            return await self._decide(
                lambda durable: build(durable, None, ""), target, require_durable, guess_durable=guess, until=until
            )
        placed = await self._propose(bind, target)
        try:

            async def ask() -> Answer:
                try:
                    return await self._decide(
                        lambda durable: build(durable, placed.bind, placed.incarnation),
                        target,
                        require_durable,
                        guess_durable=guess,
                        until=None if bind.wait_ms else until,
                    )
                except BaseException as error:
                    if ours and unseen(error):
                        self._return_unseen(lambda: again(guess), target)
                    raise

            def again(guess: bool) -> Awaitable[Answer]:
                return self._decide(
                    lambda durable: build(durable, placed.bind, placed.incarnation, True), target, False, guess_durable=guess
                )

            answer = await (self._ask_and_wait(ask, target, bind.wait_ms / 1000) if bind.wait_ms else ask())
        except BaseException:
            self._account(placed, None)
            raise
        if self._registry is None:
            return answer
        self._account(placed, answer.result.binding)
        if bind.wait_ms:
            until = self._monotonic() + self._deadline_s
        return await self._settle_worker(answer, bind, target, until)

    async def _ask_and_wait(self, ask: Callable[[], Awaitable[Answer]], target: Target, wait_s: float) -> Answer:
        """Waits for another's claim: woken by the event and not by polling; at the claim's deadline too, since the claimer may
        have died, and when the subscription comes (back) up, since an event may have been missed."""
        until = self._monotonic() + wait_s
        self._prepare()
        hub = self._hub
        assert hub is not None
        hub.start()
        with hub.watch(target.domain, target.digest) as watch:
            while True:
                watch.clear()
                answer = await ask()
                binding = answer.result.binding
                left = until - self._monotonic()
                if binding is None or binding.action != "wait" or left <= 0:
                    return answer
                await watch.wait(min(left, binding.retry_after_ms / 1000))
                if self._hub is not hub:
                    return answer  # the client was closed meanwhile, and asking again would open it again

    def _degraded(self, key: str | None, session_id: str, error: StoreUnavailable) -> Resolution:
        self._instruments.degraded()
        self._instruments.resolution(self.namespace, "physical", "degraded")
        self._tell_degraded(error)
        scope = self.commands.physical_scope(session_id)
        return Resolution(key, session_id, None, None, scope, "physical", degraded=True)

    def _tell_degraded(self, error: StoreUnavailable) -> None:
        """One log line a second at most, with how many turns it stands for: an outage must not become a flood."""
        now = self._monotonic()
        self._degraded_untold += 1
        if now - self._degraded_told_at >= 1.0:
            log.warning("degraded", namespace=self.namespace, turns=self._degraded_untold, reason=str(error))
            self._degraded_told_at, self._degraded_untold = now, 0

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
        if answer.lapsed:
            instruments.claim_timeout()

    async def peek(self, key: str) -> Resolution | None:
        """The conversation as it is, or None: no touch, no policy, no claim (compaction out of turn, inspection)."""
        answer = await self._run(self.commands.peek(self.commands.declared(check_text(key, "key"))))
        resolution: Resolution | None = answer.result
        return resolution

    async def epoch(self, key: str) -> int | None:
        """The current epoch of a key, or None."""
        resolution = await self.peek(key)
        return None if resolution is None else resolution.epoch


async def _failing(error: LimpetError) -> Resolution:
    raise error
