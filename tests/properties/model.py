"""A plain model of one namespace: what the scripts promise, in ordinary Python, with no store and no clock of its own.

Written from the design (sections 2 to 5), not from the scripts, so that the two can disagree. Instants are
microseconds since 2026-01-01, as in ticks; a ``Slot`` is a record's domain and its text. The one thing that the model
cannot know is the ten random bits of a tick taken while the clock stands still, so a tick is a ``Hint`` from the reply
that must fit the rule (``TickOutOfRule`` otherwise).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

RING = 8
GRACE_US = 60_000_000  # a seen epoch may be this far ahead of the clock
FOREVER = "forever"
DAY_US = 86_400_000_000
TOMBSTONE_US = 3_600_000_000

Slot = tuple[str, str]


class Refused(Exception):
    """The call is answered with the typed error of this code, and nothing is changed."""

    def __init__(self, code: str, binding: dict[str, Any] | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.binding = binding


class TickOutOfRule(AssertionError):
    """A tick is neither the server's time nor within the 1024 above the last one."""


@dataclass
class Hint:
    """What was seen of the real call: the ticks in its reply."""

    epoch: int | None = None
    fence: int | None = None


@dataclass(frozen=True)
class Ask:
    """The ``bind`` of a resolve."""

    ttl_us: int
    claim_us: int
    worker: str | None = None
    holder: str | None = None
    commit: bool = False


@dataclass
class Binding:
    state: str  # claimed | bound
    fence: int
    deadline: int
    worker: str | None = None
    holder: str | None = None
    dp_rank: int | None = None

    def live(self, now: int, granularity: int) -> bool:
        """A claim ends at its deadline; a binding one granularity later, since slides may be unwritten that long."""
        return now <= self.deadline + (granularity if self.state == "bound" else 0)


@dataclass
class Entry:
    """One line of the ring: what a request id has already done."""

    request_id: str
    op: str
    result: dict[str, Any]
    fence: int | None = None
    committed: bool = False


@dataclass
class Record:
    epoch: int
    ordinal: int
    last: int
    reason: str
    suspended: int | str | None = None
    binding: Binding | None = None
    fence: int = 0  # the last one of this epoch; it outlives a release, so that a repeated one knows its own work
    forgotten: bool = False
    ring: list[Entry] = field(default_factory=list)
    policy_idle: int = 0


class Model:
    """The namespace. Every call takes ``now`` and a ``Hint``, and returns what the answer must say."""

    def __init__(self, *, partition_of: Any, granularity_us: int, retention_us: int, strict: bool = True) -> None:
        self.partition_of = partition_of
        self.granularity = granularity_us
        self.retention = retention_us
        self.records: dict[Slot, Record] = {}
        self.clocks: dict[int, int] = {}
        self.hint = Hint()
        self.strict = strict

    # -- losing data ------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[Slot, Record], dict[int, int]]:
        return copy.deepcopy((self.records, self.clocks))

    def restore(self, saved: tuple[dict[Slot, Record], dict[int, int]]) -> None:
        self.records, self.clocks = copy.deepcopy(saved)

    def drop(self, slot: Slot) -> None:
        self.records.pop(slot, None)

    # -- the parts --------------------------------------------------------------------------------------------------

    def _tick(self, slot: Slot, now: int, seen: int, which: str) -> int:
        """Issue a tick: the time if that is above all before it, else within 1024 above them."""
        partition = self.partition_of(slot)
        record = self.records.get(slot)
        known = (record.epoch, record.fence) if record else ()
        floor = max(self.clocks.get(partition, 0), seen, *known)
        hinted = self.hint.epoch if which == "epoch" else self.hint.fence
        value = hinted if hinted is not None else max(now, floor + 1)
        fits = value == now if now > floor else floor < value <= floor + 1024
        if self.strict and not fits:
            raise TickOutOfRule(f"tick {value} issued at {now}, last tick {floor}")
        self.clocks[partition] = value
        return value

    def _begin(self, slot: Slot, now: int) -> tuple[Record | None, bool]:
        """A copy of the record, moved back if the clock was set back, and whether it was."""
        stored = self.records.get(slot)
        if stored is None:
            return None, False
        record = copy.deepcopy(stored)
        back = record.last - now
        if back <= 0:
            return record, False
        record.last = now
        if isinstance(record.suspended, int):
            record.suspended -= back
        if record.binding:
            record.binding.deadline -= back
        return record, True

    def horizon(self, slot: Slot, now: int) -> int:
        """The largest epoch that anybody can plausibly have seen."""
        return max(now + GRACE_US, self.clocks.get(self.partition_of(slot), 0))

    def _lost(self, slot: Slot, now: int, record: Record | None, stated: int | None, remembered: int | None = None) -> int:
        """The epoch that somebody has seen and the store has lost, or 0. A stated one that is implausible is refused, a
        remembered one dropped."""
        epoch = record.epoch if record else 0
        limit = self.horizon(slot, now)
        stated, remembered = stated or 0, remembered or 0
        if stated > max(epoch, limit):
            raise Refused("implausible_epoch")
        return max((seen for seen in (stated, remembered) if epoch < seen <= limit), default=0)

    @staticmethod
    def _find(record: Record | None, op: str, request_id: str | None) -> Entry | None:
        if record is None or request_id is None:
            return None
        return next((e for e in record.ring if e.op == op and e.request_id == request_id), None)

    @staticmethod
    def _note(record: Record, op: str, request_id: str | None, result: dict[str, Any], **more: Any) -> None:
        if request_id is None:
            return
        record.ring = [e for e in record.ring if (e.op, e.request_id) != (op, request_id)]
        record.ring = [*record.ring, Entry(request_id, op, copy.deepcopy(result), **more)][-RING:]

    def _claim_lives(self, record: Record, told: Entry, now: int) -> bool:
        """Whether the claim that this entry made is still the caller's: unconfirmed, or made with commit and still bound."""
        held = record.binding
        if held is None or held.fence != told.fence or not held.live(now, self.granularity):
            return False
        return held.state == "claimed" or told.committed

    def _again(self, slot: Slot, record: Record, moved: bool, told: Entry, view: dict[str, Any] | None) -> dict[str, Any]:
        """The first result of a repeated turn, with what is left of its claim. It decides nothing and is no activity."""
        if moved:
            self.records[slot] = record
        return {**told.result, "binding": view}

    @staticmethod
    def _fresh(old: Record | None, now: int, tick: int, reason: str) -> Record:
        """The record of a new epoch. The ring outlives it; the ordinal too, unless the key was unknown."""
        count = 1 if old is None or old.forgotten else old.ordinal + 1
        return Record(tick, count, now, reason, ring=list(old.ring) if old else [])

    def view(self, record: Record, now: int, action: str | None = None) -> dict[str, Any] | None:
        """The binding as an answer shows it; None when the epoch is unbound."""
        held = record.binding
        if held is None or not held.live(now, self.granularity):
            return None
        if action is None:
            action = "continue" if held.state == "bound" else "wait"
        return {
            "action": action,
            "state": held.state,
            "worker": held.worker,
            "holder": held.holder,
            "dp_rank": held.dp_rank,
            "fence": held.fence,
            "expires_in_ms": max(0, held.deadline - now) // 1000,
        }

    def kept_for(self, slot: Slot, now: int) -> int:
        """How long the store must keep the record from ``now`` (design, section 4: its TTL)."""
        record = self.records[slot]
        if record.forgotten:
            return TOMBSTONE_US
        spans = [self.retention, record.policy_idle]
        if record.binding:
            spans.append(record.binding.deadline - now)
        if isinstance(record.suspended, int):
            spans.append(record.suspended - now)
        return max(spans)

    # -- turns ------------------------------------------------------------------------------------------------------

    def _due(self, record: Record, now: int, idle: int | None, daily: bool, exempt: bool) -> str | None:
        """The reason for which this turn replaces the conversation, if any."""
        if record.suspended == FOREVER:
            return "suspended"
        if isinstance(record.suspended, int):
            return None if now <= record.suspended else "resume_expired"
        if exempt:
            return None
        if idle is not None and now > record.last + self.granularity + idle:
            return "idle"
        if daily and record.last + self.granularity < last_boundary(now):
            return "daily"
        return None

    def resolve(
        self,
        slot: Slot,
        now: int,
        *,
        idle: int | None = None,
        daily: bool = False,
        exempt: bool = False,
        seen: int | None = None,
        remembered: int | None = None,
        ask: Ask | None = None,
        request_id: str | None = None,
    ) -> dict[str, Any]:
        """One turn of a key (domain ``conv``), or a bind of a session id (domain ``sess``: no policy, no suspension)."""
        record, moved = self._begin(slot, now)
        told = self._find(record, "resolve", request_id)
        repeated = None
        if told is not None and record is not None:
            same = told.result["epoch"] == record.epoch
            if told.fence is None:
                return self._again(slot, record, moved, told, self.view(record, now) if same else None)
            if self._claim_lives(record, told, now):
                return self._again(slot, record, moved, told, self.view(record, now, "bind"))
            repeated = told.result if same else None

        changed = moved or (record is not None and (idle or 0) > max(record.policy_idle, self.retention))
        reset = None
        created = False
        lost = self._lost(slot, now, record, seen, remembered)
        if record is None or record.forgotten:
            tick = self._tick(slot, now, lost, "epoch")
            record = self._fresh(record, now, tick, "rollback" if lost else "new")
            created = True
            if lost:
                reset = {"reason": "rollback", "previous_epoch": lost, "new_conversation": False}
        else:
            reason = "rollback" if lost else self._due(record, now, idle, daily, exempt)
            if reason is not None:
                previous = lost or record.epoch
                record = self._fresh(record, now, self._tick(slot, now, lost, "epoch"), reason)
                reset = {"reason": reason, "previous_epoch": previous, "new_conversation": not lost}
            elif record.suspended is not None:
                record.suspended = None
                changed = True
        decided = replaced = created or reset is not None
        changed = changed or decided

        view = self.view(record, now)
        fence = None
        if ask is not None:
            if view is None:
                fence = record.epoch if replaced else self._tick(slot, now, 0, "fence")
                state, span = ("bound", ask.ttl_us) if ask.commit else ("claimed", ask.claim_us)
                record.binding = Binding(state, fence, now + span, ask.worker, ask.holder)
                record.fence = fence
                view = self.view(record, now, "bind")
                decided = changed = True
            elif view["action"] == "continue":
                held = record.binding
                assert held is not None
                behind = now + ask.ttl_us - held.deadline
                if behind > self.granularity or (behind > 0 and now - record.last >= self.granularity):
                    held.deadline += behind
                    changed = True
                    view = self.view(record, now)

        result = {
            "epoch": record.epoch,
            "ordinal": record.ordinal,
            "created": created,
            "epoch_reason": record.reason,
            "reset": reset,
            "binding": view,
        }
        if repeated is not None and not replaced:
            result.update(created=repeated["created"], reset=repeated["reset"])
        if decided:
            committed = bool(ask and ask.commit and fence is not None)
            self._note(record, "resolve", request_id, result, fence=fence, committed=committed)
        touched = changed or now - record.last >= self.granularity
        if touched:
            record.last = now
            record.policy_idle = max(record.policy_idle, idle or 0)
            self.records[slot] = record
        return result

    def peek(self, slot: Slot, now: int) -> dict[str, Any] | None:
        """Reads: no touch, no policy, no claim."""
        record, _ = self._begin(slot, now)
        if record is None or record.forgotten:
            return None
        return {
            "epoch": record.epoch,
            "ordinal": record.ordinal,
            "created": False,
            "epoch_reason": record.reason,
            "reset": None,
            "binding": self.view(record, now),
        }

    def touch(self, slot: Slot, now: int, epoch: int, *, age: int, ttl: int) -> bool:
        """A turn that a memo answered ``age`` ago, written behind: the same epoch is active, and its binding slides."""
        record, _ = self._begin(slot, now)
        if record is None or record.forgotten or record.epoch != epoch or record.suspended is not None:
            return False
        at = now - age
        if at <= record.last:
            return False
        record.last = at
        held = record.binding
        if ttl and held is not None and held.state == "bound" and held.live(at, self.granularity):
            held.deadline = max(held.deadline, at + ttl)
        self.records[slot] = record
        return True

    # -- the host's own decisions -----------------------------------------------------------------------------------

    def advance(
        self, slot: Slot, now: int, reason: str, *, expected: int | None = None, request_id: str | None = None
    ) -> dict[str, Any]:
        record, moved = self._begin(slot, now)
        told = self._find(record, "advance", request_id)
        if told is not None and record is not None:
            if moved:
                self.records[slot] = record
            return told.result
        if record is not None and expected is not None and expected < record.epoch:
            if moved:
                self.records[slot] = record
            return {"epoch": record.epoch, "ordinal": record.ordinal, "previous_epoch": None, "applied": False}
        lost = self._lost(slot, now, record, expected)
        previous = lost or (record.epoch if record is not None and not record.forgotten else None)
        tick = self._tick(slot, now, lost, "epoch")
        fresh = self._fresh(record, now, tick, reason)
        result = {"epoch": tick, "ordinal": fresh.ordinal, "previous_epoch": previous, "applied": True}
        fresh.policy_idle = record.policy_idle if record is not None else 0
        self._note(fresh, "advance", request_id, result)
        self.records[slot] = fresh
        return result

    def suspend(self, slot: Slot, now: int, *, window: int | None = None, request_id: str | None = None) -> dict[str, Any]:
        record, _ = self._begin(slot, now)
        told = self._find(record, "suspend", request_id)
        if told is not None:
            return told.result
        if record is None or record.forgotten:
            return {"epoch": None, "applied": False}
        record.suspended = FOREVER if window is None else now + window
        result = {"epoch": record.epoch, "applied": True}
        self._note(record, "suspend", request_id, result)
        self.records[slot] = record
        return result

    def forget(self, slot: Slot, now: int, *, expected: int | None = None, request_id: str | None = None) -> dict[str, Any]:
        record, _ = self._begin(slot, now)
        told = self._find(record, "forget", request_id)
        if told is not None:
            return told.result
        if record is None or record.forgotten:
            return {"epoch": None, "applied": False}
        if expected is not None and expected < record.epoch:
            return {"epoch": record.epoch, "applied": False}
        epoch = self._lost(slot, now, record, expected) or record.epoch
        result = {"epoch": epoch, "applied": True}
        record = replace(record, epoch=epoch, last=now, forgotten=True, binding=None, suspended=None)
        self._note(record, "forget", request_id, result)
        self.records[slot] = record
        return result

    # -- binding calls ----------------------------------------------------------------------------------------------

    def _held(self, record: Record | None, now: int, fence: int) -> tuple[Record, Binding]:
        """The binding that ``fence`` still holds, whatever the time: nobody claimed since. Else what holds it now."""
        if record is None or record.forgotten or record.binding is None or record.binding.fence != fence:
            raise Refused("stale_fence", None if record is None else self.view(record, now))
        return record, record.binding

    def _told(self, record: Record | None, now: int, told: Entry) -> dict[str, Any]:
        """The answer to a repeated confirm or renew: its first result, brought up to date while its fence still holds."""
        view = self.view(record, now) if record is not None and not record.forgotten else None
        same = view is not None and (view["fence"], view["state"]) == (told.result["fence"], told.result["state"])
        return view if view is not None and same else told.result

    def confirm(
        self,
        slot: Slot,
        now: int,
        fence: int,
        *,
        ttl: int,
        worker: str | None = None,
        dp_rank: int | None = None,
        request_id: str | None = None,
    ) -> dict[str, Any]:
        record, _ = self._begin(slot, now)
        told = self._find(record, "confirm", request_id)
        if told is not None:
            return self._told(record, now, told)
        record, held = self._held(record, now, fence)
        held.deadline = max(held.deadline, now + ttl) if held.state == "bound" else now + ttl
        held.state = "bound"
        record.last = now
        if worker is not None and worker != held.worker:
            held.worker, held.dp_rank = worker, None
        held.dp_rank = dp_rank if dp_rank is not None else held.dp_rank
        return self._settle(slot, record, "confirm", request_id, now)

    def renew(self, slot: Slot, now: int, fence: int, *, ttl: int, request_id: str | None = None) -> dict[str, Any]:
        record, _ = self._begin(slot, now)
        record, held = self._held(record, now, fence)
        held.deadline = max(held.deadline, now + ttl)
        record.last = now
        return self._settle(slot, record, "renew", None, now)  # idempotent by itself: it takes no place in the ring

    def _unbind(self, op: str, slot: Slot, now: int, fence: int, request_id: str | None) -> dict[str, Any]:
        record, _ = self._begin(slot, now)
        told = self._find(record, op, request_id)
        if told is not None:
            return told.result
        if record is not None and not record.forgotten and record.binding is None and record.fence == fence:
            return _unbound(fence)
        record, _ = self._held(record, now, fence)
        record.binding = None
        self._note(record, op, request_id, _unbound(fence))
        self.records[slot] = record
        return _unbound(fence)

    def abort(self, slot: Slot, now: int, fence: int, *, request_id: str | None = None) -> dict[str, Any] | None:
        return self._unbind("abort", slot, now, fence, request_id)

    def release(self, slot: Slot, now: int, fence: int, *, request_id: str | None = None) -> dict[str, Any] | None:
        return self._unbind("release", slot, now, fence, request_id)

    def rebind(
        self,
        slot: Slot,
        now: int,
        fence: int,
        *,
        claim: int,
        worker: str | None = None,
        holder: str | None = None,
        request_id: str | None = None,
    ) -> dict[str, Any]:
        record, _ = self._begin(slot, now)
        told = self._find(record, "rebind", request_id)
        if told is not None and record is not None and self._claim_lives(record, told, now):
            return self.view(record, now)
        record, _ = self._held(record, now, fence)
        issued = self._tick(slot, now, 0, "fence")
        record.binding = Binding("claimed", issued, now + claim, worker, holder)
        record.fence, record.last = issued, now
        return self._settle(slot, record, "rebind", request_id, now, fence=issued)

    def _settle(
        self, slot: Slot, record: Record, op: str, request_id: str | None, now: int, fence: int | None = None
    ) -> dict[str, Any]:
        view = self.view(record, now)
        assert view is not None
        self._note(record, op, request_id, view, fence=fence)
        self.records[slot] = record
        return view


def _unbound(fence: int) -> dict[str, Any]:
    return {"state": "unbound", "fence": fence, "worker": None, "dp_rank": None}


def last_boundary(now: int) -> int:
    """The daily boundary at or before ``now``; the histories use 04:00 UTC (zones are the business of the policy tests)."""
    offset = 4 * 3_600_000_000
    return (now - offset) // DAY_US * DAY_US + offset
