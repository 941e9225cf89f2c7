"""What the clients remember of the answers, and what the ledger is told of them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from limpet.results import Binding, Resolution

from .answers import expect_scope
from .calls import ASKS, MS, POLICIES, Told
from .ledger import Broken, Ledger
from .model import Slot


class Witness:
    """Sees every answer, also those whose reply a client has lost.

    ``epochs`` and ``own`` are what each client knows of a record; ``fences`` all that a record has ever had.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.epochs: dict[tuple[int, Slot], int] = {}
        self.own: dict[tuple[int, Slot], int] = {}
        self.fences: dict[Slot, list[int]] = defaultdict(list)

    def saw(self, told: Told, result: Any, now: int, *, retry: bool, wrote: bool) -> None:
        """An answer that was no refusal. Raises Broken."""
        getattr(self, f"_saw_{'hold' if 'fence' in told.args else told.op}")(told, result, now, retry, wrote)

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

    def _saw_resolve(self, told: Told, result: Resolution, now: int, retry: bool, wrote: bool) -> None:
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
                ledger.reset(slot, result.reset.reason, now, idle)
            if result.created and fresh and ledger.trails[slot].epoch is not None:
                raise Broken("G2", f"{slot} was created although it stood")
            if result.created or result.reset is not None:
                ledger.replaced(slot, result.epoch, number, now, ordinal=result.ordinal, created=result.created)
            else:
                ledger.current(slot, result.epoch, number, learn=not retry)
        else:
            expect_scope(result.scope, "gws_", slot[1])
        held = result.binding
        if held is not None and held.fence is not None:
            if held.action == "bind":
                assert ask is not None
                until = now + (ask.ttl_us if ask.commit else ask.claim_us)
                ledger.bound_to(slot, held.fence, number, now, until, commit=ask.commit)
            else:
                ledger.met(slot, held.fence, now, number)
                if held.action == "continue" and ask is not None:
                    ledger.promised(slot, held.fence, now + ask.ttl_us)
            self._learn(told, None, held.fence)
        if not retry:
            ledger.active(slot, now)
        self._learn(told, result.epoch, None)

    def _saw_advance(self, told: Told, result: Any, now: int, retry: bool, wrote: bool) -> None:
        slot, ledger = told.slot, self.ledger
        expect_scope(result.scope, "gwk_", f"{slot[1]}:{result.epoch}")
        if result.applied:
            created = ledger.trails[slot].count is None and result.ordinal == 1
            ledger.replaced(slot, result.epoch, told.number, now, ordinal=result.ordinal, created=created)
            if not retry:
                ledger.active(slot, now)
        else:
            ledger.current(slot, result.epoch, told.number, learn=False)
        self._learn(told, result.epoch, None)

    def _saw_suspend(self, told: Told, result: Any, now: int, retry: bool, wrote: bool) -> None:
        if result.epoch is not None and not retry:
            self.ledger.current(told.slot, result.epoch, told.number, learn=False)

    def _saw_forget(self, told: Told, result: Any, now: int, retry: bool, wrote: bool) -> None:
        if result.applied and wrote:
            self.ledger.record_lost(told.slot)

    def _saw_peek(self, told: Told, result: Resolution | None, now: int, retry: bool, wrote: bool) -> None:
        if result is not None and result.epoch is not None:
            self.ledger.current(told.slot, result.epoch, told.number, learn=True)

    def _saw_touch(self, told: Told, result: bool, now: int, retry: bool, wrote: bool) -> None:
        if result:
            at = now - told.args["age_ms"] * MS
            self.ledger.active(told.slot, at)
            ask = ASKS[told.args["bind"]]
            if ask is not None:
                self.ledger.slid(told.slot, at, ask.ttl_us)

    def _saw_hold(self, told: Told, result: Binding, now: int, retry: bool, wrote: bool) -> None:
        slot, ledger, fence = told.slot, self.ledger, told.args["fence"]
        if not retry:
            ledger.accepted(slot, fence, told.op)
        match told.op:
            case "confirm" | "renew":
                if not retry:
                    until = now + told.args["ttl_ms"] * MS
                    ledger.promised(slot, fence, until, confirmed=told.op == "confirm")
                elif result.expires_in_ms is not None and result.fence is not None:
                    ledger.promised(slot, result.fence, now + result.expires_in_ms * MS)
            case "abort" | "release":
                if wrote:
                    ledger.unbound(slot)
            case "rebind":
                assert result.fence is not None
                if ledger.trails[slot].fences.get(result.fence) != told.number:
                    ledger.unbound(slot)
                ledger.bound_to(slot, result.fence, told.number, now, now + told.args["claim_ttl_ms"] * MS)
                self._learn(told, None, result.fence)
        if wrote and told.op in ("confirm", "renew", "rebind"):
            ledger.active(slot, now)
