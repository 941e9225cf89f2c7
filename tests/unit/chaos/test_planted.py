"""Histories with one violation each: every rule finds its own, in several shapes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from limpet.chaos.verdict import RULES

from .story import Story

Plant = Callable[[Story], object]


def advance_and_reset_share_an_epoch(s: Story) -> None:
    s.first(100)
    s.advance(200, 100, at=(2000, 2010), client="a")
    s.turn(200, told={"reset": "idle", "previous_epoch": 100}, at=(2001, 2011), client="b")


def fence_issued_twice_after_a_loss(s: Story) -> None:
    s.first(100)
    s.claim(100, 110, at=(2000, 2010))
    s.call("resolve", None, key="k", session_id="s", outcome="ok", at=(2000, 2010))
    s.fault()
    s.claim(100, 110, client="b", at=(2005, 3000))


def epoch_with_two_ordinals(s: Story) -> None:
    s.turn(100, told={"ordinal": 1})
    s.fault()
    s.turn(100, told={"ordinal": 2}, client="b")
    s.lost("advance", at=(500, 501))
    s.lost("advance", at=(500, 501))


def epoch_with_two_reasons(s: Story) -> None:
    s.lost("advance")
    s.turn(100, told={"reason": "new"})
    s.turn(100, told={"reason": "idle"}, client="b")


def epoch_shared_by_a_fence(s: Story) -> None:
    s.first(100)
    s.claim(100, 100, at=(1000, 1004), client="b")


def smaller_epoch_after_a_loss(s: Story) -> None:
    s.first(200)
    s.fault()
    s.first(150, client="b")


def smaller_fence_after_a_loss(s: Story) -> None:
    s.first(100)
    s.claim(100, 300)
    s.fault()
    s.claim(100, 250, client="b")


def same_epoch_long_after_a_read(s: Story) -> None:
    s.lost("advance")
    s.peek(300)
    s.fault()
    s.advance(300, 100, client="b")


def fence_below_an_epoch(s: Story) -> None:
    s.first(200)
    s.claim(200, 150, client="b")


def rebind_with_smaller_fence(s: Story) -> None:
    s.first(100)
    s.claim(100, 300)
    s.binding("rebind", 300, "claimed", now=250, claim_ttl_ms=1000)


def epoch_that_nobody_made(s: Story) -> None:
    s.first(100)
    s.turn(200, client="b")


def previous_epoch_that_nobody_made(s: Story) -> None:
    s.first(100)
    s.advance(300, 200)


def fence_that_nobody_made(s: Story) -> None:
    s.first(100)
    s.turn(100, told={"action": "wait", "state": "claimed", "fence": 150})


def fence_of_a_fork_seen_in_its_parent(s: Story) -> None:
    s.first(100)
    s.fork(session="k", bind=True, claim_ttl_ms=1000, told={"action": "bind", "state": "claimed", "fence": 150})
    s.turn(100, told={"action": "wait", "state": "claimed", "fence": 150})


def issued_only_by_a_later_call(s: Story) -> None:
    s.first(100)
    s.turn(200)
    s.lost("advance")


def two_replaced_one(s: Story) -> None:
    s.first(100)
    s.turn(200, told={"reset": "idle", "previous_epoch": 100}, at=(2000, 2010), client="a")
    s.turn(201, told={"reset": "idle", "previous_epoch": 100}, at=(2001, 2011), client="b")


def two_made_the_first(s: Story) -> None:
    s.first(100, at=(2000, 2010), client="a")
    s.first(101, at=(2001, 2011), client="b")


def two_compared_with_one(s: Story) -> None:
    s.first(100)
    s.advance(200, 100, expected_epoch=100, at=(2000, 2010), client="a")
    s.advance(300, 100, expected_epoch=100, at=(2000, 2010), client="b")


def durable_replacement_replaced(s: Story) -> None:
    s.first(100)
    s.fault()
    s.advance(200, 100, told={"durable": True}, at=(2000, 2010))
    s.now = 3000
    s.fault()
    s.advance(300, 100, client="b")


def older_epoch_read(s: Story) -> None:
    s.first(100)
    s.advance(200, 100)
    s.peek(100, client="b")


def older_fence_read(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, ttl=200)
    s.wait(300)
    s.claim(100, 250)
    s.turn(100, told={"action": "wait", "state": "claimed", "fence": 150}, client="b")


def record_gone(s: Story) -> None:
    s.first(100)
    s.peek(None)


def older_epoch_given_to_the_same_client(s: Story) -> None:
    s.first(100)
    s.advance(200, 100)
    s.fault()
    s.turn(100)


def older_epoch_given_to_one_who_says_so(s: Story) -> None:
    s.first(100)
    s.advance(200, 100)
    s.fault()
    s.turn(100, client="b", seen_epoch=200)


def older_epoch_than_expected(s: Story) -> None:
    s.first(100)
    s.advance(200, 100)
    s.fault()
    s.advance(100, None, client="b", expected_epoch=200, told={"applied": False})


def durable_epoch_undone(s: Story) -> None:
    s.first(100)
    s.advance(200, 100, told={"durable": True})
    s.fault()
    s.peek(100, client="b")


def durable_epoch_unknown_to_a_durable_answer(s: Story) -> None:
    s.first(100)
    s.advance(200, 100, told={"durable": True})
    s.fault(1000)
    s.turn(100, client="b", told={"durable": True}, at=(1500, 1510))


def durable_fence_undone(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, told={"durable": True}, ttl=100)
    s.fault(200)
    s.turn(100, told={"action": "wait", "state": "claimed", "fence": 120}, client="b")
    s.lost("resolve", session_id="s", at=(500, 501))


def durable_record_gone(s: Story) -> None:
    s.first(100, told={"durable": True})
    s.fault()
    s.first(200, client="b")


def two_claims_at_once(s: Story) -> None:
    s.first(100)
    s.claim(100, 150)
    s.claim(100, 160, client="b")


def two_overlapping_claims(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, at=(2000, 2010))
    s.claim(100, 160, client="b", at=(2001, 2011))


def two_claims_of_a_session(s: Story) -> None:
    told = {"action": "bind", "state": "claimed"}
    s.fork(bind=True, claim_ttl_ms=1000, told={**told, "fence": 150})
    s.fork(bind=True, claim_ttl_ms=1000, told={**told, "fence": 160})


def claim_during_a_renewed_one(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, ttl=100)
    s.binding("renew", 150, "claimed", ttl_ms=5000)
    s.wait(500)
    s.claim(100, 160, client="b")


def claim_against_a_rebinder(s: Story) -> None:
    s.first(100)
    s.claim(100, 150)
    s.binding("rebind", 150, "claimed", now=160, claim_ttl_ms=1000)
    s.claim(100, 170, client="b")


def durable_claim_made_again_after_failover(s: Story) -> None:
    s.first(100, told={"durable": True})
    s.claim(100, 150, ttl=5000, told={"durable": True})
    s.fault()
    s.claim(100, 160, client="b", told={"durable": True})


def claim_of_a_bound_epoch(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, ttl=100)
    s.binding("confirm", 150)
    s.wait(500)
    s.claim(100, 160, client="b")


def claim_of_a_committed_epoch(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, commit=True, told={"state": "bound"})
    s.wait(500)
    s.claim(100, 160, client="b")


def durable_confirm_forgotten_by_a_failover(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, ttl=100)
    s.binding("confirm", 150, durable=True, ttl_ms=9000)
    s.fault(500)
    s.claim(100, 160, client="b")


def stale_confirm(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, ttl=100)
    s.wait(200)
    s.claim(100, 250, client="b")
    s.binding("confirm", 150)


def stale_renewal_after_an_advance(s: Story) -> None:
    s.first(100)
    s.claim(100, 150)
    s.advance(200, 100)
    s.binding("renew", 150)


def stale_release_after_a_durable_claim(s: Story) -> None:
    s.first(100)
    s.claim(100, 150, ttl=100)
    s.wait(200)
    s.claim(100, 250, told={"durable": True}, client="b")
    s.fault()
    s.binding("release", 150, "unbound")


def confirm_after_abort(s: Story) -> None:
    s.first(100)
    s.claim(100, 150)
    s.binding("abort", 150, "unbound")
    s.binding("confirm", 150)


def two_rebinds_of_one_fence(s: Story) -> None:
    s.first(100)
    s.claim(100, 150)
    s.binding("rebind", 150, "claimed", now=160, at=(2000, 2010), client="a", claim_ttl_ms=1000)
    s.binding("rebind", 150, "claimed", now=170, at=(2001, 2011), client="b", claim_ttl_ms=1000)


def advance_that_did_not_compare(s: Story) -> None:
    s.first(100)
    s.advance(200, 100)
    s.advance(300, 200, expected_epoch=100)


def advance_lost_to_nobody(s: Story) -> None:
    s.first(100)
    s.advance(100, None, expected_epoch=100, told={"applied": False})


def advance_not_applied(s: Story) -> None:
    s.first(100)
    s.advance(100, None, told={"applied": False})


def retry_that_advanced_again(s: Story) -> None:
    s.first(100)
    s.advance(200, 100, request_id="r")
    s.advance(300, 200, request_id="r", client="b")


def retry_after_a_lost_reply_that_advanced_twice(s: Story) -> None:
    s.first(100)
    s.lost("advance", request_id="r")
    s.advance(200, 100, request_id="r")
    s.advance(300, 200, request_id="r")


def scope_of_another_epoch(s: Story) -> None:
    s.lost("advance")
    s.first(100)
    s.turn(100, told={"scope": s.history.calls[-1].answer.scope[::-1]})


def scope_of_another_key(s: Story) -> None:
    mine = s.first(100, key="k")
    s.first(100, key="other", told={"scope": mine.answer.scope})


def degraded_with_an_epoch(s: Story) -> None:
    s.first(100)
    s.degraded(told={"epoch": 100})


def degraded_with_anothers_scope(s: Story) -> None:
    mine = s.first(100)
    s.degraded(told={"scope": mine.answer.scope})


def degraded_with_a_binding(s: Story) -> None:
    s.degraded(told={"action": "bind", "state": "claimed", "fence": 100})


def fork_with_its_parents_scope(s: Story) -> None:
    mine = s.first(100)
    s.fork(told={"scope": mine.answer.scope})


def fork_with_an_epoch(s: Story) -> None:
    s.first(100)
    s.fork(told={"epoch": 100})


def fork_shown_a_foreign_parent(s: Story) -> None:
    s.first(100)
    other = s.first(100, key="other")
    s.fork(parent_key="k", told={"parent_scope": other.answer.scope})


def late_answer(s: Story) -> None:
    s.first(100, at=(1000, 1400))


def late_error(s: Story) -> None:
    s.lost("advance", at=(1000, 2000))


def late_in_spite_of_a_short_stall(s: Story) -> None:
    s.stall(1000, 1100)
    s.lost("advance", at=(1000, 2000))


def crash(s: Story) -> None:
    s.call("advance", None, key="k", outcome="crash:KeyError")


def corrupt(s: Story) -> None:
    s.call("resolve", None, key="k", session_id="s", outcome="store_corrupt")


def turn_that_raised(s: Story) -> None:
    s.call("resolve", None, key="k", session_id="s", outcome="store_unavailable")


PLANTED: dict[str, tuple[Plant, ...]] = {
    "issued-twice": (
        advance_and_reset_share_an_epoch,
        fence_issued_twice_after_a_loss,
        epoch_with_two_ordinals,
        epoch_with_two_reasons,
        epoch_shared_by_a_fence,
    ),
    "not-larger": (
        smaller_epoch_after_a_loss,
        smaller_fence_after_a_loss,
        same_epoch_long_after_a_read,
        fence_below_an_epoch,
        rebind_with_smaller_fence,
    ),
    "from-nowhere": (
        epoch_that_nobody_made,
        previous_epoch_that_nobody_made,
        fence_that_nobody_made,
        fence_of_a_fork_seen_in_its_parent,
        issued_only_by_a_later_call,
    ),
    "replaced-twice": (two_replaced_one, two_made_the_first, two_compared_with_one, durable_replacement_replaced),
    "went-back": (older_epoch_read, older_fence_read, record_gone),
    "client-back": (older_epoch_given_to_the_same_client, older_epoch_given_to_one_who_says_so, older_epoch_than_expected),
    "undone": (durable_epoch_undone, durable_epoch_unknown_to_a_durable_answer, durable_fence_undone, durable_record_gone),
    "two-claimers": (
        two_claims_at_once,
        two_overlapping_claims,
        two_claims_of_a_session,
        claim_during_a_renewed_one,
        claim_against_a_rebinder,
        durable_claim_made_again_after_failover,
    ),
    "bound-twice": (claim_of_a_bound_epoch, claim_of_a_committed_epoch, durable_confirm_forgotten_by_a_failover),
    "stale-accepted": (stale_confirm, stale_renewal_after_an_advance, stale_release_after_a_durable_claim, confirm_after_abort),
    "rebound-twice": (two_rebinds_of_one_fence,),
    "not-compared": (advance_that_did_not_compare, advance_lost_to_nobody, advance_not_applied),
    "retry-differs": (retry_that_advanced_again, retry_after_a_lost_reply_that_advanced_twice),
    "scope": (scope_of_another_epoch, scope_of_another_key),
    "degraded": (degraded_with_an_epoch, degraded_with_anothers_scope, degraded_with_a_binding),
    "fork": (fork_with_its_parents_scope, fork_with_an_epoch, fork_shown_a_foreign_parent),
    "late": (late_answer, late_error, late_in_spite_of_a_short_stall),
    "error": (crash, corrupt, turn_that_raised),
}
CASES = [pytest.param(rule, plant, id=f"{rule}: {plant.__name__}") for rule, plants in PLANTED.items() for plant in plants]


@pytest.mark.parametrize(("rule", "plant"), CASES)
def test_planted(rule: str, plant: Plant) -> None:
    """The rule that was broken is named, with the calls that prove it."""
    story = Story()
    plant(story)
    found = [violation for violation in story.verdict.violations if violation.rule == rule]
    assert found, story.verdict.totals
    assert found[0].calls
    assert not story.verdict.sound


def test_every_rule_is_planted() -> None:
    """No rule is without a history that breaks it."""
    assert set(PLANTED) == set(RULES)
