"""Sans-IO: builds each script's call and parses its reply into a typed result. No socket, no clock, no task.

The executors send what is built here; the coordinators (async and blocking) decide when. Units on this side are those of
the public API (milliseconds, seconds); the scripts take microseconds, and all arguments of a script travel in one packed
string (fixed-width fields first, then MessagePack), which costs the server less than one argument each.
"""

from __future__ import annotations

import struct
from datetime import datetime
from functools import partial
from typing import Final, Literal

import msgspec

from limpet import scope as scopes
from limpet.answers import binding_of, read_binding
from limpet.bind import Bind
from limpet.calls import FLAG_BIND, FLAG_DURABLE, FLAG_GLANCE, FLAG_LOOK_UP, FLAG_NOW, Answer, Call, Target
from limpet.clock import EPOCH_UNIX_S, tick_to_unix_ms
from limpet.errors import InvalidRequest
from limpet.keys import Keyspace, digest, keyspace
from limpet.policy import NONE, Policy
from limpet.record import Record, decode_record, fields_of, split_reply
from limpet.results import Advanced, Binding, Forgotten, Reset, Resolution, Suspended
from limpet.schema import NEW_NAMESPACE
from limpet.scripts import script
from limpet.workers import MAX_WORKERS, Snapshot, Worker, read_list, read_worker

__all__ = ["RESPONSE_TTL_MS", "Commands"]

RESPONSE_TTL_MS: Final = 86_400_000
"""How long a response id leads to its conversation: a day (design, section 4)."""


_ACTIONS: Final[tuple[Literal["bind", "continue", "wait"] | None, ...]] = (None, "bind", "continue", "wait")
_BEFORE_SEEN: Final = struct.Struct(">BQQ")
_AFTER_SEEN: Final = struct.Struct(">QQQQQQ")
_HEAD: Final = struct.Struct(">QQ")
_pack: Final = msgspec.msgpack.Encoder().encode


class Commands:
    """The calls of one namespace.

    Args:
        namespace: see :func:`limpet.validate.check_namespace`.
        partitions: fixed per namespace.
        scope_secret: scopes become HMACs under it.
        granularity_ms: the touch granularity that ``config`` in the store holds.
        retention_ms: how long a record outlives its last activity.
        bind_ttl_ms, claim_ttl_ms: the defaults of the calls that name none.
        holder: who makes claims by default.
        writes: the schema that ``config`` in the store lets us write.
    """

    def __init__(
        self,
        *,
        namespace: str = "default",
        partitions: int = 1024,
        scope_secret: str | None = None,
        granularity_ms: int = 1000,
        retention_ms: int = 2_592_000_000,
        bind_ttl_ms: int = 300_000,
        claim_ttl_ms: int = 10_000,
        holder: str = "limpet",
        writes: int = NEW_NAMESPACE,
    ) -> None:
        self.namespace = namespace
        self.secret = scope_secret
        self.keyspace: Keyspace = keyspace(namespace, partitions)
        self.granularity_us = granularity_ms * 1000
        self.retention_ms = retention_ms
        self.bind_ttl_ms = bind_ttl_ms
        self.claim_ttl_ms = claim_ttl_ms
        self.holder = holder
        self.writes = writes
        self._script = partial(script, writes=writes)
        self._channel = self.keyspace.events
        self._resolve = self._script("conversation_resolve")

    # -- names ---------------------------------------------------------------------------------------------------------

    def declared(self, key: str) -> Target:
        """The target of a conversation key (already checked)."""
        return Target("conv", digest(key), key, None)

    def physical(self, session_id: str) -> Target:
        """The target of a session id (already checked)."""
        return Target("sess", digest(session_id), None, session_id)

    def declared_scope(self, key: str, epoch: int) -> str:
        """The scope of an epoch of a key in this namespace."""
        return scopes.declared(key, epoch, self.namespace, self.secret)

    def physical_scope(self, session_id: str) -> str:
        """The scope of a session id in this namespace."""
        return scopes.physical(session_id, self.namespace, self.secret)

    def _keys(self, target: Target, *, clock: bool = True, bound: bool = True) -> tuple[str, ...]:
        space = self.keyspace
        partition = space.partition(target.digest)
        keys = [space.record(target.domain, target.digest)]
        if clock:
            keys.append(space.clock(partition))
        if bound:
            keys.append(space.bound(partition))
        return tuple(keys)

    # -- the turn ------------------------------------------------------------------------------------------------------

    def resolve(
        self,
        target: Target,
        *,
        session_id: str,
        policy: Policy = NONE,
        now: datetime | None = None,
        exempt: bool = False,
        seen_epoch: int = 0,
        remembered_epoch: int = 0,
        bind: Bind | None = None,
        request_id: str = "",
        look_up: bool = True,
        durable: bool = False,
        incarnation: str = "",
        now_us: int = 0,
    ) -> Call[Answer]:
        """One turn. ``now`` is the caller's wall time, needed for a daily policy only. ``look_up`` is False for a request id
        that was made just now, which no record can hold yet. ``now_us`` overrides the server's clock in tests."""
        flags = self._flags(bind)
        if look_up and request_id:
            flags |= FLAG_LOOK_UP
        if durable:
            flags |= FLAG_DURABLE
        if now_us:
            flags |= FLAG_NOW
        before, after = self._resolve_args(policy, now, exempt, bind, flags, seen_epoch, incarnation, now_us)
        seen = max(seen_epoch, remembered_epoch).to_bytes(8)
        packed = before + seen + after + _pack(request_id)

        def parse(reply: bytes) -> Answer:
            return self._read_resolution(reply, target, session_id, bind is not None)

        return Call(self._resolve, self._keys(target), (packed,), parse, flagged=True)

    @staticmethod
    def _flags(bind: Bind | None) -> int:
        return 0 if bind is None else FLAG_BIND

    def _resolve_args(
        self,
        policy: Policy,
        now: datetime | None,
        exempt: bool,
        bind: Bind | None,
        flags: int,
        stated_epoch: int,
        incarnation: str,
        now_us: int,
    ) -> tuple[bytes, bytes]:
        """The script's one argument, before and after the seen epoch; the request id comes behind it."""
        ttl_us = claim_us = 0
        holder = worker = ""
        commit = False
        if bind is not None:
            ttl_us = (bind.ttl_ms or self.bind_ttl_ms) * 1000
            claim_us = (bind.claim_ttl_ms or self.claim_ttl_ms) * 1000
            holder, worker, commit = bind.holder or self.holder, bind.worker or "", bind.commit
        idle_us = 0 if policy.idle_s is None else int(policy.idle_s * 1_000_000)
        days = (0, 0, 0)
        if policy.daily is not None and not exempt:
            if now is None:
                raise InvalidRequest("a daily policy needs the wall time of the caller.", field="policy")
            earlier, last, following = policy.boundaries(now)
            days = (_tick(earlier), _tick(last), _tick(following))
        keep_ms = max(self.retention_ms, idle_us // 1000)
        tail = _pack((stated_epoch, self._channel, claim_us, holder, worker, -1, incarnation, commit))
        before = _BEFORE_SEEN.pack(flags, self.granularity_us, ttl_us)
        return before, _AFTER_SEEN.pack(keep_ms, now_us, 0 if exempt else idle_us, *days) + tail

    def resolve_template(self, policy: Policy, exempt: bool, bind: Bind | None, glance: bool) -> tuple[bytes, bytes]:
        """The argument of a turn that states no epoch, in two parts, for :class:`limpet.quick.QuickPath`."""
        flags = self._flags(bind) | (FLAG_GLANCE if glance else 0)
        return self._resolve_args(policy, None, exempt, bind, flags, 0, "", 0)

    def resolve_prefix(self, target: Target) -> tuple[str, bytes]:
        """(the record's key, the RESP bytes of a resolve of this target up to the length of its one argument)."""
        keys = self._keys(target)
        words = ("EVALSHA", self._resolve.sha, str(len(keys)), *keys)
        parts = [b"*%d\r\n" % (len(words) + 1)]
        for word in words:
            raw = word.encode()
            parts.append(b"$%d\r\n%b\r\n" % (len(raw), raw))
        return keys[0], b"".join(parts) + b"$"

    def read_resolution(self, reply: bytes, target: Target, session_id: str, wants_bind: bool) -> Answer:
        """The reply of a resolve."""
        return self._read_resolution(reply, target, session_id, wants_bind)

    def _read_resolution(self, reply: bytes, target: Target, session_id: str, wants_bind: bool) -> Answer:
        now, raw, outcome = split_reply(reply)
        record = Record(raw)
        if outcome is None:
            return Answer(
                self._resolution(
                    target,
                    session_id,
                    record.epoch,
                    record.body.ordinal,
                    record.body.reason,
                    binding=binding_of(record, now, self.granularity_us),
                ),
                epoch=record.epoch,
                fence=record.body.fence,
            )
        action, reset_reason, previous, new_conversation, created, epoch, ordinal, reason, *flags = fields_of(outcome, 12)
        decided, behind, replayed, lapsed = map(bool, flags)
        binding = None
        if epoch == record.epoch:
            binding = binding_of(record, now, self.granularity_us, _ACTIONS[action] if wants_bind else None)
        reset = None
        if reset_reason and target.key is not None:
            scope = self.declared_scope(target.key, previous) if previous else None
            reset = Reset(reset_reason, previous or None, scope, bool(new_conversation))
        result = self._resolution(target, session_id, epoch, ordinal, reason, created=bool(created), reset=reset, binding=binding)
        return Answer(result, decided, behind, replayed, record.epoch, record.body.fence, lapsed=lapsed)

    def _resolution(
        self,
        target: Target,
        session_id: str | None,
        epoch: int,
        ordinal: int,
        reason: str,
        *,
        created: bool = False,
        reset: Reset | None = None,
        binding: Binding | None = None,
    ) -> Resolution:
        if target.session_id is not None:  # it has a binding, no generations
            scope = self.physical_scope(target.session_id)
            return Resolution(None, session_id, None, None, scope, "physical", binding=binding)
        assert target.key is not None
        scope = self.declared_scope(target.key, epoch)
        started = tick_to_unix_ms(epoch)
        return Resolution(target.key, session_id, epoch, ordinal, scope, "declared", created, reason, started, reset, binding)

    def peek(self, target: Target, *, now_us: int = 0) -> Call[Answer]:
        """The record as it is. The answer's result is a Resolution, or None."""

        def parse(reply: bytes) -> Answer:
            now, raw, _ = split_reply(reply)
            record = decode_record(raw)
            if record is None or record.forgotten:
                return Answer(None)
            body = record.body
            result = self._resolution(
                target,
                target.session_id,
                record.epoch,
                body.ordinal,
                body.reason,
                binding=binding_of(record, now, self.granularity_us),
            )
            return Answer(result, epoch=record.epoch, fence=body.fence)

        args = (struct.pack(">Q", now_us),)
        return Call(self._script("conversation_peek"), self._keys(target, clock=False, bound=False), args, parse)

    # -- the host's own decisions --------------------------------------------------------------------------------------

    def _packed(self, now_us: int, *args: object) -> tuple[bytes]:
        return (_HEAD.pack(now_us, self.granularity_us) + _pack(args),)

    def advance(
        self,
        target: Target,
        reason: str,
        *,
        expected_epoch: int = 0,
        request_id: str = "",
        durable: bool = False,
        now_us: int = 0,
    ) -> Call[Answer]:
        """A new conversation. The answer's result is an Advanced."""
        key = target.key or ""

        def parse(reply: bytes) -> Answer:
            _, raw, outcome = split_reply(reply)
            applied, epoch, ordinal, previous, decided, behind, replayed = fields_of(outcome, 7)
            result = Advanced(epoch, ordinal, previous or None, self.declared_scope(key, epoch), bool(applied))
            record = Record(raw)
            return Answer(result, bool(decided), bool(behind), bool(replayed), record.epoch, record.body.fence)

        args = self._packed(now_us, request_id, self._channel, self.retention_ms, reason, expected_epoch, durable)
        return Call(self._script("conversation_advance"), self._keys(target), args, parse)

    def suspend(self, target: Target, *, window_ms: int = 0, request_id: str = "", now_us: int = 0) -> Call[Answer]:
        """The next turn resets, or resumes within the window. The answer's result is a Suspended."""

        def parse(reply: bytes) -> Answer:
            _, _, outcome = split_reply(reply)
            applied, epoch, decided, behind, replayed = fields_of(outcome, 5)
            return Answer(Suspended(epoch or None, bool(applied)), bool(decided), bool(behind), bool(replayed), epoch)

        args = self._packed(now_us, request_id, self._channel, window_ms * 1000)
        return Call(self._script("conversation_suspend"), self._keys(target, clock=False, bound=False), args, parse)

    def forget(self, target: Target, *, expected_epoch: int = 0, request_id: str = "", now_us: int = 0) -> Call[Answer]:
        """The record goes. The answer's result is a Forgotten."""

        def parse(reply: bytes) -> Answer:
            _, _, outcome = split_reply(reply)
            applied, epoch, decided, behind, replayed = fields_of(outcome, 5)
            return Answer(Forgotten(epoch or None, bool(applied)), bool(decided), bool(behind), bool(replayed), epoch)

        args = self._packed(now_us, request_id, self._channel, expected_epoch)
        return Call(self._script("conversation_forget"), self._keys(target), args, parse)

    # -- the binding ---------------------------------------------------------------------------------------------------

    def confirm(
        self,
        target: Target,
        fence: int,
        *,
        worker: str = "",
        dp_rank: int = -1,
        incarnation: str = "",
        ttl_ms: int = 0,
        request_id: str = "",
        durable: bool = False,
        now_us: int = 0,
    ) -> Call[Answer]:
        """The claim becomes a binding. As of all binding calls: the parse raises StaleFence."""
        ttl_us = (ttl_ms or self.bind_ttl_ms) * 1000
        args = self._packed(
            now_us, request_id, self._channel, fence, worker, dp_rank, incarnation, ttl_us, self.retention_ms, durable
        )
        return self._binding_call("binding_confirm", target, fence, args)

    def abort(
        self, target: Target, fence: int, *, reason: str = "aborted", request_id: str = "", now_us: int = 0
    ) -> Call[Answer]:
        """The first request failed."""
        return self._binding_call("binding_abort", target, fence, self._packed(now_us, request_id, self._channel, fence, reason))

    def release(
        self, target: Target, fence: int, *, reason: str = "released", request_id: str = "", now_us: int = 0
    ) -> Call[Answer]:
        """The conversation leaves its worker."""
        return self._binding_call(
            "binding_release", target, fence, self._packed(now_us, request_id, self._channel, fence, reason)
        )

    def renew(self, target: Target, fence: int, *, ttl_ms: int = 0, request_id: str = "", now_us: int = 0) -> Call[Answer]:
        """A claim or binding lives on. ``request_id`` is accepted as everywhere and not needed: repeating it does no harm."""
        claim_us, bind_us = (ttl_ms or self.claim_ttl_ms) * 1000, (ttl_ms or self.bind_ttl_ms) * 1000
        args = self._packed(now_us, fence, claim_us, bind_us, self.retention_ms)
        return self._binding_call("binding_renew", target, fence, args)

    def rebind(
        self,
        target: Target,
        fence: int,
        reason: str,
        *,
        worker: str = "",
        dp_rank: int = -1,
        incarnation: str = "",
        holder: str = "",
        claim_ttl_ms: int = 0,
        request_id: str = "",
        durable: bool = False,
        now_us: int = 0,
    ) -> Call[Answer]:
        """Claims anew, by compare-and-set on the fence."""
        claim_us = (claim_ttl_ms or self.claim_ttl_ms) * 1000
        who = holder or self.holder
        args = self._packed(
            now_us,
            request_id,
            self._channel,
            fence,
            reason,
            worker,
            dp_rank,
            incarnation,
            who,
            claim_us,
            self.retention_ms,
            durable,
        )
        return self._binding_call("binding_rebind", target, fence, args, clock=True)

    def _binding_call(self, name: str, target: Target, fence: int, args: tuple[bytes], *, clock: bool = False) -> Call[Answer]:
        def parse(reply: bytes) -> Answer:
            return read_binding(name, fence, self.granularity_us, reply)

        return Call(self._script(name), self._keys(target, clock=clock), args, parse)

    def touch(self, target: Target, epoch: int, *, age_us: int, ttl_ms: int = 0, now_us: int = 0) -> Call[bool]:
        """Writes an activity behind that the memo answered ``age_us`` ago; ``ttl_ms`` slides a binding, 0 does not."""
        args = self._packed(now_us, epoch, age_us, ttl_ms * 1000)
        return Call(self._script("conversation_touch"), self._keys(target, clock=False), args, bool)

    # -- workers -------------------------------------------------------------------------------------------------------

    def register(
        self,
        worker: str,
        pool: str,
        address: str,
        capacity: float,
        incarnation: str,
        labels: dict[str, str],
        ttl_ms: int,
        *,
        on_behalf: bool = False,
        now_us: int = 0,
    ) -> Call[Worker]:
        """A worker comes, or comes back. ``ttl_ms`` 0: static, never gone by itself."""
        ttl_us = ttl_ms * 1000
        args = _pack((worker, pool, address, capacity, incarnation, labels, ttl_us, self._channel, MAX_WORKERS, on_behalf))
        return self._worker_call("worker_register", worker, args, now_us)

    def heartbeat(self, worker: str, incarnation: str = "", *, now_us: int = 0) -> Call[Worker]:
        """A worker is alive."""
        return self._worker_call("worker_heartbeat", worker, _pack((worker, incarnation)), now_us)

    def mark(self, worker: str, verb: Literal["drain", "undrain", "remove"], *, now_us: int = 0) -> Call[Worker]:
        """A worker is to be drained, or no longer, or is taken out."""
        return self._worker_call("worker_mark", worker, _pack((worker, verb, self._channel)), now_us)

    def _worker_call(self, name: str, worker: str, args: bytes, now_us: int) -> Call[Worker]:
        head = struct.pack(">Q", now_us)
        return Call(self._script(name), (self.keyspace.workers,), (head + args,), lambda reply: read_worker(worker, reply))

    def workers(self, *, now_us: int = 0) -> Call[Snapshot]:
        """Every worker."""
        return Call(self._script("worker_list"), (self.keyspace.workers,), (struct.pack(">Q", now_us),), read_list)

    # -- response chains -----------------------------------------------------------------------------------------------

    def link_response(self, response_id: str, key: str) -> Call[bool]:
        """A response belongs to the conversation ``key``, for a day."""
        name = self.keyspace.resp(digest(response_id))
        return Call(self._script("response_link"), (name,), (key, RESPONSE_TTL_MS), bool)

    def find_response(self, response_id: str) -> Call[str | None]:
        """The conversation key of a response, or None."""
        name = self.keyspace.resp(digest(response_id))
        return Call(self._script("response_find"), (name,), (), lambda reply: reply.decode() if reply else None)

    # -- durability ----------------------------------------------------------------------------------------------------

    def rewrite(self, target: Target, epoch: int, fence: int) -> Call[bool]:
        """Stores the record again, if it is still that of this epoch and fence, so that a WAIT covers it."""
        keys = self._keys(target, clock=False, bound=False)
        return Call(self._script("record_rewrite"), keys, (epoch, fence), bool)


def _tick(instant: datetime) -> int:
    """A wall instant as microseconds since 2026; 0 for anything before."""
    seconds = instant.timestamp() - EPOCH_UNIX_S
    return max(0, round(seconds * 1_000_000))
