"""The demo's numbers are counted from the answers, and an answer that breaks a guarantee is found."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from limpet.demo.count import count, verdict
from limpet.demo.ledger import Handover, Ledger, Replaced, Seen
from limpet.demo.protocol import TurnDone


def turn(
    epoch: int | None = 100,
    *,
    scope: str | None = None,
    worker: str | None = "w1",
    fence: int | None = 100,
    action: str | None = "continue",
    **more: object,
) -> TurnDone:
    """One answer; ``continue`` at worker w1 unless told otherwise."""
    fields: dict[str, object] = {
        "id": 1,
        "epoch": epoch,
        "scope": f"gwk_{epoch}" if scope is None else scope,
        "created": False,
        "reset": None,
        "action": action,
        "worker": worker,
        "fence": fence,
        "bound": action == "bind",
        "degraded": False,
        "alone_worker": "w1",
        "alone_picked": False,
        "alone_scope": "gws_1",
    }
    return msgspec.convert(fields | more, TurnDone)


def good() -> Ledger:
    """Two keys: one is replaced by /new, the other by idleness; the second one's first claimer is killed."""
    ledger = Ledger()
    ledger.turns += [
        Seen("g1", "a", 0, turn(100, action="bind", created=True, alone_picked=True)),
        Seen("g2", "a", 0, turn(100, alone_picked=True, alone_worker="w2", alone_scope="gws_2")),
        Seen("g2", "a", 1, turn(200, action="bind", fence=200, alone_worker="w2", alone_scope="gws_3")),
        Seen("g4", "b", 0, turn(110, scope="gwk_b110", action="bind", fence=110, bound=False, created=True), held=True),
        Seen("g1", "b", 0, turn(110, scope="gwk_b110", action="bind", fence=130, alone_picked=True)),
        Seen("g2", "b", 0, turn(110, scope="gwk_b110", fence=130, alone_picked=True)),
        Seen("g2", "b", 1, turn(210, scope="gwk_b210", action="bind", fence=210, reset="idle")),
    ]
    ledger.replaced += [Replaced("a", 1, "new", 200), Replaced("b", 1, "idle")]
    ledger.handovers.append(Handover("b", 110, 130, 1.9, True))
    return ledger


def spoil(index: int, **fields: object) -> Callable[[Ledger], None]:
    """Replaces fields of the answer at ``index``."""

    def apply(ledger: Ledger) -> None:
        seen = ledger.turns[index]
        answer = msgspec.structs.replace(seen.answer, **fields)
        ledger.turns[index] = Seen(seen.gateway, seen.key, seen.chapter, answer, seen.held)

    return apply


def handed(**fields: object) -> Callable[[Ledger], None]:
    """Replaces the handover."""

    def apply(ledger: Ledger) -> None:
        kept: dict[str, object] = {"key": "b", "fence": 110, "heir_fence": 130, "seconds": 1.9, "late_refused": True}
        ledger.handovers[0] = msgspec.convert(kept | fields, Handover)

    return apply


def both(*steps: Callable[[Ledger], None]) -> Callable[[Ledger], None]:
    """One after the other."""

    def apply(ledger: Ledger) -> None:
        for step in steps:
            step(ledger)

    return apply


def test_a_run_in_which_all_held_has_no_failure() -> None:
    """Nothing is reported where nothing is wrong."""
    assert verdict(good()) == []


FAULTS = {
    "two gateways, two epochs": ("G1", spoil(1, epoch=101, scope="gwk_100")),
    "two gateways made the conversation": ("G1", spoil(1, created=True)),
    "two gateways made the idle reset": ("G1", spoil(2, reset="idle")),
    "nobody was told of the idle reset": ("G1", spoil(6, reset=None)),
    "/new answered one epoch and another is used": ("G1", spoil(2, epoch=201)),
    "two scopes in one conversation": ("G1", spoil(1, scope="gwk_x")),
    "/new kept the scope": ("G2", spoil(2, scope="gwk_100")),
    "two keys share a scope": ("G2", both(spoil(4, scope="gwk_100"), spoil(5, scope="gwk_100"))),
    "the epoch went back": ("G3", spoil(6, epoch=90, scope="gwk_b90")),
    "the fence went back": ("G3", spoil(2, fence=99)),
    "a fence was used again": ("G3", spoil(2, fence=100)),
    "bound twice": ("G4", spoil(1, action="bind", bound=True)),
    "told to bind and lost it": ("G4", spoil(0, bound=False)),
    "split over two workers": ("G4", spoil(1, worker="w2")),
    "sent nowhere": ("G4", spoil(1, worker=None, action="wait")),
    "the dead one's claim was never handed over": ("G4", handed(heir_fence=None)),
    "handed over with the same fence": ("G4", handed(heir_fence=110)),
    "the doomed gateway held no claim": ("G4", handed(fence=None)),
    "the dead one's confirm passed": ("G5", handed(late_refused=False)),
    "a degraded answer": ("G7", spoil(1, degraded=True)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_planted_fault_is_named(name: str) -> None:
    """A gateway that misreports, or a coordinator that errs, is found and named by its guarantee."""
    guarantee, plant = FAULTS[name]
    ledger = good()
    plant(ledger)
    failures = verdict(ledger)
    assert any(failure.startswith(f"{guarantee}: ") for failure in failures), failures


def test_a_run_without_answers_shows_nothing() -> None:
    """No evidence is no success."""
    assert verdict(Ledger()) == ["Nothing was answered, so nothing was shown."]


def test_both_columns_are_counted_from_the_same_answers() -> None:
    """Binds, splits and scopes per conversation, with Limpet and without; a killed gateway's claim is no request served."""
    tally = count(good())
    assert (tally.turns, tally.conversations, tally.new, tally.idle) == (6, 4, 1, 1)
    assert (tally.limpet.binds, tally.limpet.binds_most, tally.limpet.split) == (4, 1, 0)
    assert (tally.limpet.scopes, tally.limpet.scopes_most) == (4, 1)
    assert (tally.alone.binds, tally.alone.binds_most, tally.alone.split) == (4, 2, 1)
    assert (tally.alone.scopes, tally.alone.scopes_most) == (5, 2)


def test_the_numbers_follow_the_answers() -> None:
    """Nothing in the table is a constant: spoiled answers change it."""
    ledger = good()
    spoil(1, action="bind", bound=True, worker="w2", scope="gwk_x")(ledger)
    tally = count(ledger)
    assert (tally.limpet.binds, tally.limpet.binds_most, tally.limpet.split, tally.limpet.scopes_most) == (5, 2, 1, 2)


def test_what_the_machine_was_too_slow_for_is_left_out_and_said() -> None:
    """A conversation whose idle policy fired because the machine stalled proves nothing either way."""
    ledger = good()
    spoil(6, reset=None)(ledger)
    ledger.stalled.add("b")
    assert verdict(ledger) == []
    tally = count(ledger)
    assert (tally.conversations, tally.idle, tally.left_out) == (2, 0, 1)
