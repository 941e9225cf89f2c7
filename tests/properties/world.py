"""Runs a history: the same call to the real scripts and to the model, side by side, on one injected clock.

The ledger watches what is seen in any case. ``check_model=False`` leaves the model's word out, so that a test can show
that the guarantees alone find a fault.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import redis

from limpet.calls import Answer
from limpet.errors import LimpetError, StaleFence

from .answers import outcome, plain, plain_binding, round_up
from .calls import MS, Told, modelled, real
from .grammar import Step
from .ledger import Broken, Ledger
from .model import Hint, Model, Refused, Slot, TickOutOfRule, last_boundary
from .port import GRANULARITY_MS, RETENTION_MS, Port
from .witness import Witness

START = 150 * 86_400_000_000 + 11 * 3_600_000_000  # 31 May 2026, 11:00 UTC
TEXTS = ("a", "b", "c")
SLOTS = tuple((domain, text) for domain in ("conv", "sess") for text in TEXTS)
TTL_SLACK_MS = 5000  # a PTTL is read later than it was set


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
        self.witness = Witness(self.ledger)
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
            return self.witness.epochs.get((client, slot))
        if how == "newest":
            return max((e for (_, s), e in self.witness.epochs.items() if s == slot), default=None)
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
        epoch = self.witness.epochs.get((client, slot), 7)
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
        known = self.witness.fences[slot]
        if fence == "own":
            number = self.witness.own.get((client, slot), known[-1] if known else 7)
        elif fence == "newest":
            number = known[-1] if known else 7
        elif fence == "older":
            number = known[-2] if len(known) > 1 else 7
        elif fence == "epoch":
            record = self.model.records.get(slot)
            number = record.epoch if record else 7
        else:
            number = next((f[-1] for s, f in self.witness.fences.items() if s != slot and f), 7)
        args: dict[str, Any] = {"fence": number}
        if op == "confirm":
            args.update(worker=worker, dp_rank=dp_rank, ttl_ms=ttl_ms)
        elif op == "renew":
            args.update(ttl_ms=ttl_ms)
        elif op == "rebind":
            args.update(worker=worker, claim_ttl_ms=10_002)
        self._new(op, slot, client, request_id, lost, **args)

    # -- the real call and the model's ------------------------------------------------------------------------------

    def _send(self, told: Told, *, retry: bool) -> None:
        slot = told.slot
        read, records, ttl = self.port.send(real(self.port, told, self.now, retry=retry), slot)
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

        self.outcomes[outcome(told.op, result, refusal)] += 1
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
            self.witness.saw(told, result, self.now, retry=retry, wrote=wrote)

    # -- against the model ------------------------------------------------------------------------------------------

    def _compare(self, told: Told, answer: Answer | None, refusal: LimpetError | None, wrote: bool, ttl: int) -> None:
        slot, model = told.slot, self.model
        old = model.records.get(slot)
        model.hint = Hint(answer.epoch, answer.fence) if answer else Hint()
        expected: Any = None
        refused: Refused | None = None
        try:
            expected = modelled(model, told, self.now)
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
            if isinstance(refusal, StaleFence) and plain_binding(refusal.binding) != refused.binding:
                raise Broken("model", f"a stale {told.op} was told {refusal.binding}, not {refused.binding}")
        elif answer is not None:
            got = plain(told, answer.result)
            want = expected
            if slot[0] == "sess" and told.op == "resolve":
                want = {"binding": expected["binding"]}
            elif "fence" in told.args:
                want = {name: expected[name] for name in got}
            if told.op == "resolve" and not wrote:
                round_up(got["binding"], want["binding"])
            if got != want:
                raise Broken("model", f"{told.op} of {slot} answered {got}, not {want}")
        if wrote != (old != model.records.get(slot)):
            raise Broken("writes", f"{told.op} of {slot} {'wrote' if wrote else 'did not write'} the record")
        if wrote:
            need = model.kept_for(slot, self.now) // MS
            spare = (self.now - model.records[slot].last) // MS + GRANULARITY_MS + TTL_SLACK_MS
            if not need - TTL_SLACK_MS <= ttl <= need + spare:
                raise Broken("ttl", f"{told.op} of {slot} left {ttl} ms, not {need}")
