"""Histories that look odd and are right: no false alarms."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from limpet.chaos.history import Answer

from .story import Story

Plant = Callable[[Story], object]


def nothing(s: Story) -> None:
    """No call at all."""


def claim_after_a_dead_one(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, ttl=200)
    s.wait(200)
    s.claim(100, 250, client="b")


def claim_when_the_first_may_just_be_over(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, ttl=200, at=(2000, 2010))
    s.claim(100, 250, client="b", at=(2100, 2201))


def confirm_shortens_a_renewed_claim(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, ttl=200)
    s.binding("renew", 150, "claimed", ttl_ms=5000)
    s.binding("confirm", 150, ttl_ms=1000)
    s.wait(1100)
    s.claim(100, 250, client="b")


def confirm_of_unknown_fate_shortens_a_claim(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, ttl=3000)
    s.lost("confirm", fence=150, ttl_ms=1000)
    s.wait(1100)
    s.claim(100, 250, client="b")


def confirm_after_the_ttl(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, ttl=200)
    s.wait(900)
    s.binding("confirm", 150)
    s.turn(100, told={"action": "continue", "state": "bound", "fence": 150}, client="b")


def aborted_then_claimed(s: Story) -> None:
    s.first(100)
    s.claim(100, 150)
    s.binding("abort", 150, "unbound")
    s.claim(100, 250, client="b")


def perhaps_aborted_then_claimed(s: Story) -> None:
    s.first(100)
    s.claim(100, 150)
    s.lost("abort", fence=150)
    s.wait(300)
    s.turn(100, told={"action": "wait", "state": "claimed", "fence": 150})
    s.claim(100, 250, client="b")


def released_by_another(s: Story) -> None:
    s.first(100)
    s.claim(100, 150)
    s.binding("confirm", 150)
    s.binding("release", 150, "unbound", client="b")
    s.binding("release", 150, "unbound", client="c")
    s.binding("abort", 150, "unbound", client="c")
    s.claim(100, 250, client="b")


def perhaps_rebound_then_claimed(s: Story) -> None:
    s.first(100)
    s.claim(100, 150)
    s.lost("rebind", fence=150, claim_ttl_ms=100)
    s.wait(150)
    s.claim(100, 250, client="b")


def claim_of_a_new_epoch(s: Story) -> None:
    s.first(100)
    s.claim(100, 150)
    s.advance(200, 100)
    s.claim(200, 250, client="b")
    s.stale("confirm", 150, 250)


def claim_that_makes_its_epoch(s: Story) -> None:
    s.claim(100, 100, told={"created": True, "ordinal": 1})
    s.stale("confirm", 90, 100)
    s.binding("confirm", 100)


def stale_with_nothing_to_follow(s: Story) -> None:
    s.first(100)
    s.stale("renew", 90, None)


def retry_gets_the_same_claim(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, request_id="r")
    s.claim(100, 150, request_id="r", client="b")


def retry_of_a_dead_claim_is_a_new_call(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, ttl=100, request_id="r")
    s.wait(200)
    s.claim(100, 250, request_id="r", client="b")


def retry_of_an_old_advance(s: Story) -> None:
    s.first(100)
    s.advance(200, 100, request_id="r")
    s.advance(300, 200)
    s.advance(200, 100, request_id="r")
    s.turn(300)


def retry_of_a_lost_compare_and_set(s: Story) -> None:
    s.first(100)
    s.advance(200, 100)
    s.advance(200, None, expected_epoch=100, request_id="r", told={"applied": False})
    s.advance(300, 200)
    s.advance(300, None, expected_epoch=100, request_id="r", told={"applied": False})


def retry_after_the_ring_is_full(s: Story) -> None:
    s.first(100)
    s.advance(200, 100, request_id="r")
    for epoch in range(300, 1200, 100):
        s.advance(epoch, epoch - 100)
    s.advance(1200, 1100, request_id="r")


def retry_of_a_confirm_after_another_claim(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, ttl=100)
    s.binding("confirm", 150, request_id="r", ttl_ms=1000)
    s.wait(1100)
    s.claim(100, 250, client="b")
    s.binding("confirm", 150, request_id="r", ttl_ms=1000)


def overlapping_calls_in_either_order(s: Story) -> None:
    s.first(100)
    s.advance(200, 100, at=(2000, 2100))
    s.turn(100, client="b", at=(2050, 2150))
    s.peek(200, client="c", at=(2000, 2060))
    s.peek(100, client="d", at=(2010, 2090))


def late_effect_of_an_unknown_advance(s: Story) -> None:
    s.first(100)
    s.lost("advance")
    s.turn(100)
    s.wait(5000)
    s.turn(200)


def degraded_turn_that_took_effect(s: Story) -> None:
    s.degraded()
    s.turn(100)


def undurable_advance_lost(s: Story) -> None:
    s.first(100, told={"durable": True})
    s.advance(200, 100, told={"durable": False})
    s.fault()
    s.peek(100)
    s.turn(100, client="b")
    s.turn(300, told={"reset": "rollback", "previous_epoch": 200}, seen_epoch=200)


def undurable_advance_lost_and_made_again(s: Story) -> None:
    s.first(100)
    s.advance(200, 100, told={"durable": False})
    s.fault()
    s.advance(300, 100, client="b")


def nobody_was_asked_and_all_is_lost(s: Story) -> None:
    s.first(100)
    s.claim(100, 150)
    s.fault()
    s.first(200, client="b", told={"durable": None})
    s.claim(200, 250, client="b")


def undurable_claim_made_again(s: Story) -> None:
    s.first(100, told={"durable": True})
    s.claim(100, 150, ttl=9000, told={"durable": False})
    s.fault()
    s.claim(100, 250, client="b", told={"durable": True})
    s.stale("confirm", 150, 250)


def deposed_primary_answers(s: Story) -> None:
    """While a fault lasts, an old primary may answer what it knows, undurably."""
    s.first(100, told={"durable": True})
    s.fault(1000)
    s.advance(200, 100, told={"durable": True}, at=(1100, 1110))
    s.peek(100, client="b", at=(1200, 1210))
    s.claim(100, 1250, client="b", told={"durable": False}, at=(1250, 1260))
    s.now = 2100
    s.turn(200, client="c")


def durable_epoch_survives(s: Story) -> None:
    s.first(100)
    s.advance(200, 100, told={"durable": True})
    s.fault()
    s.turn(200, client="b")
    s.claim(200, 250, client="b", told={"durable": True})
    s.fault()
    s.turn(200, told={"action": "wait", "state": "claimed", "fence": 250})


def renewal_lost_with_a_durable_claim(s: Story) -> None:
    """Renewals wait for nobody, so a failover may take one back."""
    s.first(100, told={"durable": True})
    s.claim(100, 150, ttl=200, told={"durable": True})
    s.binding("renew", 150, "claimed", ttl_ms=9000)
    s.fault(300)
    s.claim(100, 550, client="b", told={"durable": True})


def not_durable_is_an_answer(s: Story) -> None:
    s.first(100)
    s.advance(200, 100, told={"durable": False}, outcome="not_durable")
    s.turn(200)


def healed_by_two(s: Story) -> None:
    """Two clients remember different lost epochs; each ticks past its own."""
    s.first(100)
    s.advance(200, 100, told={"durable": False}, client="b")
    s.advance(300, 200, told={"durable": False}, client="c")
    s.fault()
    s.turn(400, told={"reset": "rollback", "previous_epoch": 200}, seen_epoch=200, client="b")
    s.turn(400, seen_epoch=300, client="c")


def forgotten_and_begun_anew(s: Story) -> None:
    s.first(100)
    s.call("forget", Answer(epoch=100, applied=True), key="k")
    s.peek(None)
    s.first(200)
    s.call("suspend", Answer(epoch=200, applied=True), key="k")
    s.turn(300, told={"reset": "suspended", "previous_epoch": 200, "ordinal": 2})


def fork_called_like_its_parents_key(s: Story) -> None:
    mine = s.claim(100, 100, told={"created": True})
    told = {"action": "bind", "state": "claimed", "fence": 110, "parent_scope": mine.answer.scope}
    s.fork(session="k", bind=True, claim_ttl_ms=1000, parent_key="k", told=told)
    s.turn(100, told={"action": "wait", "state": "claimed", "fence": 100})
    s.fork(session="other")


def clock_moved_ahead_ends_claims(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, ttl=5000)
    s.fault(lossy=False, clock=True)
    s.claim(100, 250, client="b")


def late_because_of_a_stall(s: Story) -> None:
    s.stall(1050, 1900)
    s.lost("advance", at=(1000, 2000))
    s.first(100, at=(2000, 2900), wait_ms=700)


def compare_and_set(s: Story) -> None:
    s.first(100)
    s.advance(200, 100, expected_epoch=100)
    s.advance(200, None, expected_epoch=100, told={"applied": False}, client="b")
    s.advance(300, 200, expected_epoch=200)


def expected_epoch_that_was_lost(s: Story) -> None:
    s.first(100)
    s.advance(200, 100, told={"durable": False})
    s.fault()
    s.advance(300, 200, expected_epoch=200, client="b")


SOUND = [
    each
    for name, each in list(globals().items())
    if callable(each) and getattr(each, "__module__", "") == __name__ and name[0] != "_"
]


@pytest.mark.parametrize("plant", SOUND, ids=lambda plant: plant.__name__)
def test_sound(plant: Plant) -> None:
    """Nothing is reported of what may rightly happen."""
    story = Story()
    plant(story)
    assert story.verdict.sound, story.verdict.violations


def test_excuses_are_counted() -> None:
    """What only a fault explains is counted, for the report."""
    story = Story()
    undurable_claim_made_again(story)
    undurable_advance_lost_and_made_again(other := Story())
    assert story.verdict.excused["claims lost and made again"] == 1
    assert other.verdict.excused["replacements lost"] == 1
