"""conversation_touch: an activity that a memo answered, written behind."""

from __future__ import annotations

import pytest

from .rig import BIND_TTL, GRANULARITY, HOUR, RETENTION_MS, SECOND, START, Rig


def test_the_activity_counts_from_when_it_was(rig: Rig) -> None:
    """Not from when it is written."""
    key = rig.key()
    rig.resolve(key)
    rig.client.pexpire(rig.name(key), 60_000)
    rig.passes(10 * SECOND)
    assert rig.do("touch", key, START, age_us=3 * SECOND) is True
    assert rig.record(key).last == START + 7 * SECOND
    assert rig.ttl_ms(key) > RETENTION_MS - 5000


def test_the_binding_slides(rig: Rig) -> None:
    """By the ttl, from the activity on, in the record and in the index; without a ttl it does not."""
    key = rig.key()
    rig.bind(key)
    rig.passes(10 * SECOND)
    rig.do("touch", key, START, age_us=0)
    assert rig.bound(key) == {rig.member(key, "w1"): START + BIND_TTL}
    rig.passes(10 * SECOND)
    rig.do("touch", key, START, age_us=SECOND, ttl_ms=300_000)
    assert rig.bound(key) == {rig.member(key, "w1"): rig.now - SECOND + BIND_TTL}
    assert rig.record(key).due == rig.now - SECOND + BIND_TTL + GRANULARITY


def test_never_shorter(rig: Rig) -> None:
    """A short ttl takes nothing away."""
    key = rig.key()
    rig.bind(key)
    due = rig.record(key).due
    rig.passes(10 * SECOND)
    rig.do("touch", key, START, age_us=0, ttl_ms=1000)
    assert rig.record(key).due == due


@pytest.mark.parametrize("past", [0, 1])
def test_a_binding_that_is_over_is_not_resurrected(rig: Rig, past: int) -> None:
    """The activity came in time if it came within the granularity; one microsecond later it did not."""
    key = rig.key()
    rig.bind(key)
    due = rig.record(key).due
    rig.passes(BIND_TTL + GRANULARITY + past)
    rig.do("touch", key, START, age_us=0, ttl_ms=300_000)
    assert (rig.record(key).due > due) == (not past)


def test_a_claim_does_not_slide(rig: Rig) -> None:
    """Claims are written exactly."""
    key = rig.key()
    rig.claim(key)
    due = rig.record(key).due
    rig.passes(2 * SECOND)
    assert rig.do("touch", key, START, age_us=0, ttl_ms=300_000)
    assert rig.record(key).due == due


@pytest.mark.parametrize("what", ["advance", "suspend", "forget", "delete", "older"])
def test_nothing_left_to_touch(rig: Rig, what: str) -> None:
    """The epoch has been replaced, suspended, forgotten or lost since, or the activity is already written: nothing is."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(5 * SECOND)
    if what == "delete":
        rig.client.delete(rig.name(key))
    elif what != "older":
        rig.do(what, key, *(("new",) if what == "advance" else ()))
    before = rig.snapshot()
    assert rig.do("touch", key, START, age_us=5 * SECOND if what == "older" else 0) is False
    assert rig.snapshot() == before


def test_a_set_back(rig: Rig) -> None:
    """An activity of before the set-back is no newer than the settled record."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(-HOUR)
    before = rig.snapshot()
    assert rig.do("touch", key, START, age_us=SECOND) is False
    assert rig.snapshot() == before
