"""Runs a history: the same call to the real scripts and to the model, side by side, on one injected clock.

The ledger watches what is seen in any case. ``check_model=False`` leaves the model's word out, so that a test can show
that the guarantees alone find a fault.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import redis

from limpet.commands import Answer, Bind, Call
from limpet.errors import LimpetError, StaleFence
from limpet.policy import NONE, Policy
from limpet.results import Binding, Resolution

from .grammar import Step
from .ledger import Broken, Ledger
from .model import Ask, Hint, Model, Refused, Slot, TickOutOfRule, last_boundary
from .port import GRANULARITY_MS, RETENTION_MS, Port

MS = 1000
START = 150 * 86_400_000_000 + 11 * 3_600_000_000  # 31 May 2026, 11:00 UTC
TEXTS = ("a", "b", "c")
SLOTS = tuple((domain, text) for domain in ("conv", "sess") for text in TEXTS)
TTL_SLACK_MS = 5000  # a PTTL is read later than it was set

ASKS = {
    "none": None,
    "short": Ask(60_002 * MS, 10_002 * MS, "w1"),
    "long": Ask(300_002 * MS, 10_002 * MS, None),
    "brief": Ask(60_002 * MS, 2_002 * MS, "w2"),
    "commit": Ask(60_002 * MS, 10_002 * MS, "w3", commit=True),
}
_DAILY = {"at": "04:00", "tz": "UTC"}
POLICIES = {
    "none": NONE,
    "idle": Policy.parse({"idle_s": 300}),
    "daily": Policy.parse({"daily": _DAILY}),
    "both": Policy.parse({"idle_s": 3600, "daily": _DAILY}),
    "long": Policy.parse({"idle_s": 3 * 86_400}),
}
SKEW = {0: timedelta(0), 1: timedelta(hours=20), 2: timedelta(hours=-20)}  # what the clients' own clocks are off by


@dataclass
class Told:
    """One logical call; a retry sends the same."""

    number: int
    op: str
    slot: Slot
    client: int
    request_id: str | None
    args: dict[str, Any]
    lost: bool = False


class World:
    """A namespace, its clients, and the time."""

    def __init__(self, client: redis.Redis, *, texts: Mapping[str, str] | None = None, check_model: bool = True) -> None:
        self.port = Port(client, SLOTS, texts)
        self.check_model = check_model
        self.model = Model(
            partition_of=self.port.partition_of,
            granularity_us=GRANULARITY_MS * MS,
            retention_us=RETENTION_MS * MS,
            strict=check_model,
        )
        self.ledger = Ledger(GRANULARITY_MS * MS)
        self.now = START
        self.calls: list[Told] = []
        self.count = 0
        self.records: dict[Slot, bytes | None] = dict.fromkeys(SLOTS)
        self.expiry: dict[Slot, int] = {}
        self.epochs: dict[tuple[int, Slot], int] = {}
        self.own: dict[tuple[int, Slot], int] = {}
        self.fences: dict[Slot, list[int]] = defaultdict(list)
        self.saved: Any = None
        self.set_back = False
        self.overdue: dict[int, list[bytes]] = defaultdict(list)
        self.log: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self.port.flush()

    def run(self, history: Iterable[Step]) -> None:
        """Raises Broken where a guarantee, or the model, is contradicted; the last calls are in its notes."""
        try:
            for step in history:
                getattr(self, f"_do_{step.kind}")(**step.args)
            self.check_index()
        except AssertionError as error:
            error.add_note("\n".join(self.log[-14:]))
            raise

    # -- time and losses --------------------------------------------------------------------------------------------

    def _move(self, now: int) -> None:
        self.log.append(f"time {(now - self.now) / 1e6:+.3f} s")
        self.now = now
        for slot in [slot for slot, end in self.expiry.items() if end <= now]:
            self._drop(slot)

    def _drop(self, slot: Slot) -> None:
        self.log.append(f"record {slot} is gone")
        self.port.delete(slot)
        self.model.drop(slot)
        self.ledger.record_lost(slot)
        self.records[slot] = None
        self.expiry.pop(slot, None)

    def _do_pass(self, ms: int) -> None:
        self._move(self.now + ms * MS)

    def _do_until(self, key: str, what: str, ms: int) -> None:
        record = self.model.records.get(("conv", key))
        at = None
        if record is not None and what == "binding" and record.binding:
            at = record.binding.deadline
        elif record is not None and what == "resume" and isinstance(record.suspended, int):
            at = record.suspended
        elif record is not None and what == "idle":
            at = record.last + 300_000 * MS
        elif what == "daily":
            at = last_boundary(self.now) + 86_400_000 * MS
        if at is not None and at + ms * MS > self.now:
            self._move(-(-(at + ms * MS) // (4 * MS)) * 4 * MS)

    def _do_back(self, ms: int) -> None:
        self.ledger.clock_set_back()
        self.set_back = True
        self._move(self.now - ms * MS)

    def _do_lose(self, what: str, key: str) -> None:
        if what in ("record", "session"):
            self._drop(("conv" if what == "record" else "sess", key))
            return
        self.log.append(f"lost: {what}")
        self.ledger.clocks_lost()
        if what == "clock":
            partition = self.port.partition_of(("conv", key))
            self.port.delete_clock(partition)
            self.model.clocks.pop(partition, None)
            return
        self.port.flush()
        self.model.restore(({}, {}))
        self.records = dict.fromkeys(SLOTS)
        self.expiry.clear()

    def _do_prune(self, key: str) -> None:
        """The housekeeping of a partition's index. It must leave what lives, also what has come back since it looked."""
        slot = ("conv", key)
        partition = self.port.partition_of(slot)
        removed = self.port.prune(slot, self.now, self.overdue[partition])
        self.overdue[partition] = self.port.overdue(slot, self.now)
        self.log.append(f"pruned {removed}")
        self.check_index()

    def check_index(self) -> None:
        """Whatever is bound or claimed stands in the index with its deadline (design, section 4).

        Not after a clock set back: the record's instants move, those of an index that nobody reads yet do not.
        """
        if self.set_back or not self.check_model:
            return
        for slot, record in self.model.records.items():
            held = record.binding
            if held is None or not held.live(self.now, GRANULARITY_MS * MS):
                continue
            score = self.port.index(slot).get(self.port.member(slot, held.worker))
            if score != held.deadline:
                raise Broken("index", f"the binding of {slot} ends at {held.deadline}, in the index at {score}")

    def _do_save(self) -> None:
        self.log.append("snapshot")
        self.saved = (self.port.save(), self.model.snapshot(), dict(self.records), dict(self.expiry))

    def _do_restore(self) -> None:
        """Restart from the last snapshot; it stays, so the next restart may be from the same."""
        if self.saved is None:
            return
        self.log.append("restart from the snapshot")
        data, model, records, expiry = self.saved
        self.ledger.clocks_lost()
        self.port.restore(data, {slot: (end - self.now) // MS for slot, end in expiry.items()})
        self.model.restore(model)
        self.records, self.expiry = dict(records), dict(expiry)
        self._move(self.now)

    # -- calls ------------------------------------------------------------------------------------------------------

    def _new(self, op: str, slot: Slot, client: int, request_id: bool, lost: bool, **args: Any) -> None:
        self.count += 1
        told = Told(self.count, op, slot, client, f"r{self.count}" if request_id else None, args, lost)
        if request_id:
            self.calls.append(told)
        self._send(told, retry=False)

    def _do_retry(self, back: int) -> None:
        if back < len(self.calls):
            self._send(self.calls[-1 - back], retry=True)

    def _epoch(self, how: str, client: int, slot: Slot) -> int | None:
        """What a caller says that it has seen."""
        limit = self.model.horizon(slot, self.now)
        if how in ("own", "remembered"):
            return self.epochs.get((client, slot))
        if how == "newest":
            return max((e for (_, s), e in self.epochs.items() if s == slot), default=None)
        return {"none": None, "ahead": limit - 30_000_000, "absurd": limit + 1, "absurd_memory": limit + 1}[how]

    def _do_turn(
        self, client: int, key: str, bind: str, policy: str, exempt: bool, seen: str, request_id: bool, lost: bool
    ) -> None:
        slot = ("conv", key)
        epoch = self._epoch(seen, client, slot)
        memory = seen in ("remembered", "absurd_memory")
        self._new(
            "resolve",
            slot,
            client,
            request_id,
            lost,
            bind=bind,
            policy=policy,
            exempt=exempt,
            seen=None if memory else epoch,
            remembered=epoch if memory else None,
        )

    def _do_burst(self, key: str, bind: str, policy: str) -> None:
        """Three callers at the same instant: one is told to bind, at most."""
        for client in (0, 1, 2):
            self._do_turn(client, key, bind, policy, False, "none", True, client == 1)

    def _do_close_call(self, client: int, key: str, bind: str, policy: str, gap_ms: int, what: str, ms: int) -> None:
        def turn() -> None:
            self._do_turn(client, key, bind, policy, False, "none", False, False)

        if what == "daily":
            self._do_until(key, what, -1000)
        turn()
        self._do_pass(gap_ms)
        turn()
        self._do_until(key, what, ms)
        turn()

    def _do_physical(self, client: int, key: str, bind: str, request_id: bool, lost: bool) -> None:
        plain = {"policy": "none", "exempt": False, "seen": None, "remembered": None}
        self._new("resolve", ("sess", key), client, request_id, lost, bind=bind, **plain)

    def _do_advance(self, client: int, key: str, expected: str, request_id: bool, lost: bool) -> None:
        slot = ("conv", key)
        self._new("advance", slot, client, request_id, lost, expected=self._epoch(expected, client, slot))

    def _do_suspend(self, client: int, key: str, window_s: int | None, request_id: bool, lost: bool) -> None:
        self._new("suspend", ("conv", key), client, request_id, lost, window_s=window_s)

    def _do_forget(self, client: int, key: str, expected: str, request_id: bool, lost: bool) -> None:
        slot = ("conv", key)
        self._new("forget", slot, client, request_id, lost, expected=self._epoch(expected, client, slot))

    def _do_peek(self, key: str) -> None:
        self.count += 1
        self._send(Told(self.count, "peek", ("conv", key), 0, None, {}), retry=False)

    def _do_touch(self, client: int, key: str, age_ms: int, bind: str) -> None:
        slot = ("conv", key)
        self.count += 1
        epoch = self.epochs.get((client, slot), 7)
        self._send(Told(self.count, "touch", slot, client, None, {"epoch": epoch, "age_ms": age_ms, "bind": bind}), retry=False)

    def _do_hold(
        self,
        op: str,
        client: int,
        domain: str,
        key: str,
        fence: str,
        worker: str | None,
        dp_rank: int | None,
        ttl_ms: int,
        request_id: bool,
        lost: bool,
    ) -> None:
        slot = (domain, key)
        known = self.fences[slot]
        if fence == "own":
            number = self.own.get((client, slot), known[-1] if known else 7)
        elif fence == "newest":
            number = known[-1] if known else 7
        elif fence == "older":
            number = known[-2] if len(known) > 1 else 7
        elif fence == "epoch":
            record = self.model.records.get(slot)
            number = record.epoch if record else 7
        else:
            number = next((f[-1] for s, f in self.fences.items() if s != slot and f), 7)
        args: dict[str, Any] = {"fence": number}
        if op == "confirm":
            args.update(worker=worker, dp_rank=dp_rank, ttl_ms=ttl_ms)
        elif op == "renew":
            args.update(ttl_ms=ttl_ms)
        elif op == "rebind":
            args.update(worker=worker, claim_ttl_ms=10_002)
        self._new(op, slot, client, request_id, lost, **args)

    # -- the real call and the model's ------------------------------------------------------------------------------

    def _call(self, told: Told, retry: bool) -> Call[Any]:
        commands, target, a = self.port.commands, self.port.target(told.slot), told.args
        common: dict[str, Any] = {"request_id": told.request_id or "", "now_us": self.now}
        durable = told.number % 5 == 0  # asks for a rewrite of what stands; it must change no answer
        match told.op:
            case "resolve":
                ask = ASKS[a["bind"]]
                bind = None
                if ask is not None:
                    bind = Bind(
                        worker=ask.worker,
                        holder=f"replica-{told.client}",
                        ttl_ms=ask.ttl_us // MS,
                        claim_ttl_ms=ask.claim_us // MS,
                        commit=ask.commit,
                    )
                # A caller's own request id is looked up at once; one that the library made only in a retry.
                return commands.resolve(
                    target,
                    session_id=told.slot[1],
                    policy=POLICIES[a["policy"]],
                    now=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.now) + SKEW[told.client],
                    exempt=a["exempt"],
                    seen_epoch=a["seen"] or 0,
                    remembered_epoch=a["remembered"] or 0,
                    bind=bind,
                    look_up=retry or told.number % 2 == 0,
                    durable=durable,
                    **common,
                )
            case "advance":
                return commands.advance(target, "new", expected_epoch=a["expected"] or 0, durable=durable, **common)
            case "suspend":
                return commands.suspend(target, window_ms=(a["window_s"] or 0) * 1000, **common)
            case "forget":
                return commands.forget(target, expected_epoch=a["expected"] or 0, **common)
            case "peek":
                return commands.peek(target, now_us=self.now)
            case "touch":
                ask = ASKS[a["bind"]]
                ttl_ms = ask.ttl_us // MS if ask else 0
                return commands.touch(target, a["epoch"], age_us=a["age_ms"] * MS, ttl_ms=ttl_ms, now_us=self.now)
            case "confirm":
                rank = -1 if a["dp_rank"] is None else a["dp_rank"]
                more = {"worker": a["worker"] or "", "dp_rank": rank, "ttl_ms": a["ttl_ms"], "durable": durable}
                return commands.confirm(target, a["fence"], **more, **common)
            case "renew":
                return commands.renew(target, a["fence"], ttl_ms=a["ttl_ms"], **common)
            case "rebind":
                return commands.rebind(
                    target,
                    a["fence"],
                    "worker_lost",
                    worker=a["worker"] or "",
                    holder=f"replica-{told.client}",
                    claim_ttl_ms=a["claim_ttl_ms"],
                    durable=durable,
                    **common,
                )
        return getattr(commands, told.op)(target, a["fence"], **common)

    def _modelled(self, told: Told) -> Any:
        model, slot, a, rid = self.model, told.slot, told.args, told.request_id
        holder = f"replica-{told.client}"
        match told.op:
            case "resolve":
                ask = ASKS[a["bind"]]
                policy = POLICIES[a["policy"]]
                return model.resolve(
                    slot,
                    self.now,
                    idle=None if policy.idle_s is None else int(policy.idle_s) * 1000 * MS,
                    daily=policy.daily is not None,
                    exempt=a["exempt"],
                    seen=a["seen"],
                    remembered=a["remembered"],
                    ask=ask and Ask(ask.ttl_us, ask.claim_us, ask.worker, holder, ask.commit),
                    request_id=rid,
                )
            case "advance":
                return model.advance(slot, self.now, "new", expected=a["expected"], request_id=rid)
            case "suspend":
                window = None if a["window_s"] is None else a["window_s"] * 1000 * MS
                return model.suspend(slot, self.now, window=window, request_id=rid)
            case "forget":
                return model.forget(slot, self.now, expected=a["expected"], request_id=rid)
            case "peek":
                return model.peek(slot, self.now)
            case "touch":
                ask = ASKS[a["bind"]]
                return model.touch(slot, self.now, a["epoch"], age=a["age_ms"] * MS, ttl=ask.ttl_us if ask else 0)
            case "confirm":
                more = {"worker": a["worker"], "dp_rank": a["dp_rank"], "ttl": a["ttl_ms"] * MS}
                return model.confirm(slot, self.now, a["fence"], request_id=rid, **more)
            case "renew":
                return model.renew(slot, self.now, a["fence"], ttl=a["ttl_ms"] * MS, request_id=rid)
            case "rebind":
                more = {"worker": a["worker"], "holder": holder, "claim": a["claim_ttl_ms"] * MS}
                return model.rebind(slot, self.now, a["fence"], request_id=rid, **more)
        return getattr(model, told.op)(slot, self.now, a["fence"], request_id=rid)

    def _send(self, told: Told, *, retry: bool) -> None:
        slot = told.slot
        read, records, ttl = self.port.send(self._call(told, retry), slot)
        answer: Answer | None = None
        refusal: LimpetError | None = None
        try:
            answer = read()
            if not isinstance(answer, Answer):
                answer = Answer(answer)  # the scripts of the library's own housekeeping say just yes or no
        except LimpetError as error:
            refusal = error
        result = answer.result if answer else None
        self.log.append(
            f"{'retry of ' if retry else ''}call {told.number} at {self.now}: {told.op} {slot} by {told.client} "
            f"{told.request_id} {told.args} -> {refusal.code if refusal else result}"
        )

        self.outcomes[_outcome(told.op, result, refusal)] += 1
        self.outcomes["replayed"] += answer is not None and answer.replayed
        before, self.records = self.records, records
        wrote = before[slot] != records[slot]
        strayed = [other for other in SLOTS if other != slot and before[other] != records[other]]
        if strayed:
            raise Broken("G6", f"{told.op} of {slot} changed {strayed}")
        if wrote:
            self.expiry[slot] = self.now + ttl * MS

        self._compare(told, answer, refusal, wrote, ttl)
        if refusal is not None:
            if wrote:
                raise Broken("G5", f"{told.op} of {slot} was refused and changed the record")
        else:
            getattr(self, f"_saw_{'hold' if 'fence' in told.args else told.op}")(told, result, retry, wrote)

    # -- against the model ------------------------------------------------------------------------------------------

    def _compare(self, told: Told, answer: Answer | None, refusal: LimpetError | None, wrote: bool, ttl: int) -> None:
        slot, model = told.slot, self.model
        old = model.records.get(slot)
        model.hint = Hint(answer.epoch, answer.fence) if answer else Hint()
        expected: Any = None
        refused: Refused | None = None
        try:
            expected = self._modelled(told)
        except Refused as error:
            refused = error
        except TickOutOfRule as error:
            raise Broken("tick", f"{told.op} of {slot}: {error}") from error
        if not self.check_model:
            return
        code, should = refusal.code if refusal else None, refused.code if refused else None
        if code != should:
            raise Broken("model", f"{told.op} of {slot} answered {code or 'a result'}, not {should or expected}")
        if refused is not None:
            if isinstance(refusal, StaleFence) and _binding(refusal.binding) != refused.binding:
                raise Broken("model", f"a stale {told.op} was told {refusal.binding}, not {refused.binding}")
        elif answer is not None:
            got = _plain(told, answer.result)
            want = expected
            if slot[0] == "sess" and told.op == "resolve":
                want = {"binding": expected["binding"]}
            elif "fence" in told.args:
                want = {name: expected[name] for name in got}
            if told.op == "resolve" and not wrote:
                _round_up(got["binding"], want["binding"])
            if got != want:
                raise Broken("model", f"{told.op} of {slot} answered {got}, not {want}")
        if wrote != (old != model.records.get(slot)):
            raise Broken("writes", f"{told.op} of {slot} {'wrote' if wrote else 'did not write'} the record")
        if wrote:
            need = model.kept_for(slot, self.now) // MS
            spare = (self.now - model.records[slot].last) // MS + GRANULARITY_MS + TTL_SLACK_MS
            if not need - TTL_SLACK_MS <= ttl <= need + spare:
                raise Broken("ttl", f"{told.op} of {slot} left {ttl} ms, not {need}")

    # -- for the ledger and the clients' memories -------------------------------------------------------------------

    def _learn(self, told: Told, epoch: int | None, fence: int | None) -> None:
        """What the caller remembers, unless the reply was lost; fences are known to the history in any case."""
        me = (told.client, told.slot)
        if epoch is not None and not told.lost:
            self.epochs[me] = max(epoch, self.epochs.get(me, 0))
        if fence is not None:
            if fence not in self.fences[told.slot]:
                self.fences[told.slot].append(fence)
            if not told.lost:
                self.own[me] = fence

    def _saw_resolve(self, told: Told, result: Resolution, retry: bool, wrote: bool) -> None:
        slot, number, ledger = told.slot, told.number, self.ledger
        ask, policy = ASKS[told.args["bind"]], POLICIES[told.args["policy"]]
        if slot[0] == "conv":
            assert result.epoch is not None
            assert result.ordinal is not None
            expect_scope(result.scope, "gwk_", f"{slot[1]}:{result.epoch}")
            fresh = ledger.trails[slot].epochs.get(result.epoch) != number
            if result.reset is not None and fresh:
                if result.reset.previous_scope is not None:
                    expect_scope(result.reset.previous_scope, "gwk_", f"{slot[1]}:{result.reset.previous_epoch}")
                idle = None if policy.idle_s is None else int(policy.idle_s * 1_000_000)
                ledger.reset(slot, result.reset.reason, self.now, idle)
            if result.created and fresh and ledger.trails[slot].epoch is not None:
                raise Broken("G2", f"{slot} was created although it stood")
            if result.created or result.reset is not None:
                ledger.replaced(slot, result.epoch, number, self.now, ordinal=result.ordinal, created=result.created)
            else:
                ledger.current(slot, result.epoch, number, learn=not retry)
        else:
            expect_scope(result.scope, "gws_", slot[1])
        held = result.binding
        if held is not None and held.fence is not None:
            if held.action == "bind":
                assert ask is not None
                until = self.now + (ask.ttl_us if ask.commit else ask.claim_us)
                ledger.bound_to(slot, held.fence, number, self.now, until, commit=ask.commit)
            else:
                ledger.met(slot, held.fence, self.now, number)
                if held.action == "continue" and ask is not None:
                    ledger.promised(slot, held.fence, self.now + ask.ttl_us)
            self._learn(told, None, held.fence)
        if not retry:
            ledger.active(slot, self.now)
        self._learn(told, result.epoch, None)

    def _saw_advance(self, told: Told, result: Any, retry: bool, wrote: bool) -> None:
        slot, ledger = told.slot, self.ledger
        expect_scope(result.scope, "gwk_", f"{slot[1]}:{result.epoch}")
        if result.applied:
            created = ledger.trails[slot].count is None and result.ordinal == 1
            ledger.replaced(slot, result.epoch, told.number, self.now, ordinal=result.ordinal, created=created)
            if not retry:
                ledger.active(slot, self.now)
        else:
            ledger.current(slot, result.epoch, told.number, learn=False)
        self._learn(told, result.epoch, None)

    def _saw_suspend(self, told: Told, result: Any, retry: bool, wrote: bool) -> None:
        if result.epoch is not None and not retry:
            self.ledger.current(told.slot, result.epoch, told.number, learn=False)

    def _saw_forget(self, told: Told, result: Any, retry: bool, wrote: bool) -> None:
        if result.applied and wrote:
            self.ledger.record_lost(told.slot)

    def _saw_peek(self, told: Told, result: Resolution | None, retry: bool, wrote: bool) -> None:
        if result is not None and result.epoch is not None:
            self.ledger.current(told.slot, result.epoch, told.number, learn=True)

    def _saw_touch(self, told: Told, result: bool, retry: bool, wrote: bool) -> None:
        if result:
            at = self.now - told.args["age_ms"] * MS
            self.ledger.active(told.slot, at)
            ask = ASKS[told.args["bind"]]
            if ask is not None:
                self.ledger.slid(told.slot, at, ask.ttl_us)

    def _saw_hold(self, told: Told, result: Binding, retry: bool, wrote: bool) -> None:
        slot, ledger, fence = told.slot, self.ledger, told.args["fence"]
        if not retry:
            ledger.accepted(slot, fence, told.op)
        match told.op:
            case "confirm" | "renew":
                if not retry:
                    until = self.now + told.args["ttl_ms"] * MS
                    ledger.promised(slot, fence, until, confirmed=told.op == "confirm")
                elif result.expires_in_ms is not None and result.fence is not None:
                    ledger.promised(slot, result.fence, self.now + result.expires_in_ms * MS)
            case "abort" | "release":
                if wrote:
                    ledger.unbound(slot)
            case "rebind":
                assert result.fence is not None
                if ledger.trails[slot].fences.get(result.fence) != told.number:
                    ledger.unbound(slot)
                ledger.bound_to(slot, result.fence, told.number, self.now, self.now + told.args["claim_ttl_ms"] * MS)
                self._learn(told, None, result.fence)
        if wrote and told.op in ("confirm", "renew", "rebind"):
            ledger.active(slot, self.now)


def _outcome(op: str, result: Any, refusal: LimpetError | None) -> str:
    """What came of a call, in a word or two, to see that the histories meet everything."""
    if refusal is not None:
        return f"{op} {refusal.code}"
    if isinstance(result, Resolution):
        held = result.binding
        return f"{op} {result.reset.reason if result.reset else ''} {held.action if held else ''}"
    return f"{op} {getattr(result, 'applied', '')}"


def expect_scope(scope: str | None, prefix: str, text: str) -> None:
    """The scope by the design's formula (section 2), in a namespace that is not the default one."""
    want = prefix + hashlib.sha256(f"histories\0{text}".encode()).hexdigest()[:24]
    if scope != want:
        raise Broken("scope", f"{scope}, not {want} for {text}")


def _binding(held: Binding | None) -> dict[str, Any] | None:
    if held is None:
        return None
    names = ("action", "state", "worker", "holder", "dp_rank", "fence", "expires_in_ms")
    return {name: getattr(held, name) for name in names}


def _round_up(got: dict[str, Any] | None, want: dict[str, Any] | None) -> None:
    """A turn that wrote nothing may be told the remaining time as of the last activity: less than a granularity too much."""
    if got and want and 0 <= got["expires_in_ms"] - want["expires_in_ms"] < GRANULARITY_MS:
        got["expires_in_ms"] = want["expires_in_ms"]


def _plain(told: Told, result: Any) -> Any:
    """A result as the model writes it."""
    if result is None or isinstance(result, bool):
        return result
    if told.op in ("resolve", "peek"):
        if told.slot[0] == "sess":
            return {"binding": _binding(result.binding)}
        reset = result.reset
        return {
            "epoch": result.epoch,
            "ordinal": result.ordinal,
            "created": result.created,
            "epoch_reason": result.epoch_reason,
            "reset": reset
            and {
                "reason": reset.reason,
                "previous_epoch": reset.previous_epoch,
                "new_conversation": reset.new_conversation,
            },
            "binding": _binding(result.binding),
        }
    names = {
        "advance": ("epoch", "ordinal", "previous_epoch", "applied"),
        "suspend": ("epoch", "applied"),
        "forget": ("epoch", "applied"),
    }.get(told.op, ("state", "fence", "worker", "dp_rank"))
    return {name: getattr(result, name) for name in names}
