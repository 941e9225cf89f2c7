"""What must hold in every history, whatever a model says: the guarantees, and "never early", kept on what was seen.

It knows no rules of the scripts and no state of the store; only what was asked, when, and what was answered. A call and
its retries share one ``call`` number: what a retry repeats is no second issue.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from .model import Slot, last_boundary


class Broken(AssertionError):
    """A guarantee did not hold. ``rule`` names it."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


@dataclass
class Held:
    """A claim or binding that was promised until ``until`` (None: nobody knows, after a loss or a clock set back)."""

    fence: int
    epoch: int | None
    until: int | None
    claimed: bool = True


@dataclass
class Trail:
    """What is known of one record."""

    epochs: dict[int, int] = field(default_factory=dict)  # tick -> the call that it was issued to
    fences: dict[int, int] = field(default_factory=dict)
    top: int = 0  # the largest tick of all
    top_losses: int = 0  # how much had been lost when it was issued
    since_loss: int = 0  # the largest tick issued since the last loss
    epoch: int | None = None
    fence: int | None = None
    count: int | None = None
    held: Held | None = None
    active: int | None = None


class Ledger:
    """Raises :class:`Broken` as soon as a guarantee does not hold."""

    def __init__(self, granularity_us: int) -> None:
        self.granularity = granularity_us
        self.trails: dict[Slot, Trail] = defaultdict(Trail)
        self.losses = 0

    # -- what happens to the data -----------------------------------------------------------------------------------

    def clock_set_back(self) -> None:
        """Instants in the records move; nothing that was promised in absolute time can be held against them."""
        for trail in self.trails.values():
            trail.active = None
            if trail.held:
                trail.held.until = None

    def record_lost(self, slot: Slot) -> None:
        """The record is gone, the clock is not: ticks must still grow."""
        trail = self.trails[slot]
        trail.epoch = trail.fence = trail.count = trail.held = trail.active = None

    def clocks_lost(self) -> None:
        """All went back to an earlier state, or away."""
        self.losses += 1
        for slot in list(self.trails):
            self.record_lost(slot)
            self.trails[slot].since_loss = 0

    # -- what is seen -----------------------------------------------------------------------------------------------

    def _issue(self, slot: Slot, table: dict[int, int], tick: int, call: int, now: int, what: str) -> bool:
        """A tick that was reported as new. Returns whether it is, or the same call's again."""
        trail = self.trails[slot]
        if table.get(tick) == call:
            return False
        if trail.epochs.get(tick) == call or trail.fences.get(tick) == call:
            table[tick] = call
            return True  # a claim made with a new epoch shares its tick
        excused = trail.top_losses < self.losses and now <= trail.top
        if tick in table and not excused:
            raise Broken("G3", f"{what} {tick} of {slot} was issued to calls {table[tick]} and {call}")
        bound = trail.since_loss if excused else trail.top
        if tick <= bound:
            raise Broken("G3", f"{what} {tick} of {slot} is not above {bound}")
        table[tick] = call
        trail.since_loss = max(trail.since_loss, tick)
        if tick >= trail.top:
            trail.top, trail.top_losses = tick, self.losses
        return True

    def replaced(self, slot: Slot, epoch: int, call: int, now: int, *, ordinal: int, created: bool) -> None:
        """An answer reported a new epoch."""
        trail = self.trails[slot]
        if not self._issue(slot, trail.epochs, epoch, call, now, "epoch"):
            if self.losses and trail.epoch is not None and epoch > trail.epoch:
                # The call was carried out again after a loss, and met its own old tick (the clock stood still).
                trail.epoch, trail.fence, trail.held, trail.count = epoch, None, None, None
            return
        trail.count = 1 if created else trail.count + 1 if trail.count is not None else None
        if trail.count is not None and ordinal != trail.count:
            raise Broken("G2", f"{slot} was replaced {trail.count} times and has ordinal {ordinal}")
        trail.epoch, trail.fence, trail.held = epoch, None, None

    def reset(self, slot: Slot, reason: str, now: int, idle: int | None) -> None:
        """A policy fired: never early. Called before ``replaced``."""
        active = self.trails[slot].active
        if active is None:
            return
        if reason == "idle" and (idle is None or now <= active + idle):
            raise Broken("early", f"idle fired {now - active} us after the last activity of {slot}, not {idle}")
        if reason == "daily" and active >= last_boundary(now):
            raise Broken("early", f"daily fired although {slot} was active after the boundary")

    def current(self, slot: Slot, epoch: int, call: int, *, learn: bool) -> None:
        """An answer named the epoch as the one that stands (or, to a retry, as the one of its first result)."""
        trail = self.trails[slot]
        if trail.epoch is None:
            trail.epoch = epoch if learn else None
        elif epoch != trail.epoch and trail.epochs.get(epoch) != call:
            raise Broken("G1", f"{slot} has epoch {trail.epoch}, and a caller was told {epoch}")

    def active(self, slot: Slot, now: int) -> None:
        trail = self.trails[slot]
        trail.active = now if trail.active is None else max(now, trail.active)

    def bound_to(self, slot: Slot, fence: int, call: int, now: int, until: int, *, commit: bool = False) -> None:
        """A caller was told ``bind``."""
        trail = self.trails[slot]
        before = trail.held
        if not self._issue(slot, trail.fences, fence, call, now, "fence"):
            if trail.fence is None:
                return  # data was lost since; whose claim it is now, nobody can tell from here
            gone = before is None or before.fence != fence
            over = before is not None and before.until is not None and now > before.until + self.granularity
            if gone or over:
                raise Broken("G4", f"call {call} was told again that it holds a dead claim: {fence} of {slot}")
            return
        if before is not None and before.epoch == trail.epoch and before.until is not None and now <= before.until:
            raise Broken("G4", f"{slot} was bound twice: fence {before.fence} holds for {before.until - now} us more")
        trail.fence = fence
        trail.held = Held(fence, trail.epoch, until, claimed=not commit)

    def promised(self, slot: Slot, fence: int, until: int, *, confirmed: bool = False) -> None:
        """A claim or binding was slid or renewed; or a claim was confirmed, which ends its own time."""
        trail = self.trails[slot]
        trail.fence = fence if trail.fence is None else trail.fence
        held = trail.held
        if held is None:
            trail.held = Held(fence, trail.epoch, None, claimed=False)
        elif held.fence == fence:
            if confirmed and held.claimed:
                held.until, held.claimed = until, False
            elif held.until is not None:
                held.until = max(held.until, until)

    def slid(self, slot: Slot, at: int, ttl: int) -> None:
        """A turn of ``at`` was written behind: what was bound then slides."""
        held = self.trails[slot].held
        if held is not None and not held.claimed and held.until is not None:
            surely = at <= held.until
            perhaps = at <= held.until + self.granularity
            held.until = max(held.until, at + ttl) if surely else None if perhaps else held.until

    def met(self, slot: Slot, fence: int, now: int, call: int) -> None:
        """A caller was told ``continue`` or ``wait``: what it was told must not be over, or it would freeze."""
        held = self.trails[slot].held
        if held is None:
            return
        if held.fence != fence:
            raise Broken("G4", f"call {call} follows fence {fence} of {slot}, and {held.fence} holds it")
        if held.until is not None and now > held.until + self.granularity:
            raise Broken("late", f"fence {fence} of {slot} still holds {now - held.until} us after its end")

    def accepted(self, slot: Slot, fence: int, what: str) -> None:
        """A binding call with this fence was carried out, and was no retry."""
        newest = self.trails[slot].fence
        if newest is not None and fence != newest:
            raise Broken("G5", f"{what} with fence {fence} of {slot} was accepted; the last one is {newest}")
        epoch = self.trails[slot].epoch
        if epoch is not None and fence < epoch:
            raise Broken("G5", f"{what} with fence {fence} was accepted in the later epoch {epoch} of {slot}")

    def unbound(self, slot: Slot) -> None:
        self.trails[slot].held = None
