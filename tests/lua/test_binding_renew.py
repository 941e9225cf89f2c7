"""binding_renew: a claim or a binding lives on."""

from __future__ import annotations

import pytest

from limpet.errors import StaleFence

from .rig import BIND_TTL, CLAIM_TTL, GRANULARITY, SECOND, Rig


def test_a_claim(rig: Rig) -> None:
    """A slow first token: the claim's deadline is a claim ttl from now, exactly."""
    key = rig.key()
    fence = rig.claim(key)
    rig.passes(8 * SECOND)
    _, raw, outcome = rig.reply("renew", key, fence)
    assert outcome == [1, 1, fence, "", -1, 0, 0, 0]
    assert raw == rig.raw(key)
    assert rig.record(key).due == rig.now + CLAIM_TTL
    assert rig.bound(key) == {rig.member(key, ""): rig.now + CLAIM_TTL}
    rig.passes(CLAIM_TTL)
    assert rig.action(key, request_id="x") == "wait"


def test_a_binding_and_its_activity(rig: Rig) -> None:
    """A long stream: the binding slides, and the conversation is not idle."""
    key = rig.key()
    fence = rig.bind(key)
    rig.passes(250 * SECOND)
    assert rig.reply("renew", key, fence)[2] == [1, 2, fence, "w1", -1, 0, 0, 0]
    record = rig.record(key)
    assert (record.last, record.due) == (rig.now, rig.now + BIND_TTL + GRANULARITY)


def test_never_shorter(rig: Rig) -> None:
    """A renewal with a short ttl takes nothing away."""
    key = rig.key()
    fence = rig.bind(key)
    due = rig.record(key).due
    rig.do("renew", key, fence, ttl_ms=1000)
    assert rig.record(key).due == due


def test_past_the_deadline(rig: Rig) -> None:
    """As with a confirm: nobody has claimed since."""
    key = rig.key()
    fence = rig.bind(key)
    rig.passes(2 * BIND_TTL)
    assert rig.do("renew", key, fence).result.action == "continue"
    assert rig.action(key) == "continue"


def test_a_late_refresh_resurrects_nothing(rig: Rig) -> None:
    """The old pin's renewal after a newer claim changes nothing and says so (G5)."""
    key = rig.key()
    fence = rig.bind(key)
    rig.passes(2 * BIND_TTL)
    newer = rig.claim(key, request_id="other")
    before = rig.snapshot()
    assert rig.reply("renew", key, fence)[2] == [0, 1, newer, "", -1, 0, 0, 0]
    with pytest.raises(StaleFence):
        rig.do("renew", key, fence)
    assert rig.snapshot() == before


def test_a_repeat_does_no_harm(rig: Rig) -> None:
    """It takes no place in the ring, which a long stream would fill: a retried advance, minutes later, is still a retry."""
    key = rig.key()
    rig.resolve(key)
    advanced = rig.do("advance", key, "new", request_id="a1")
    fence = rig.bind(key)
    for number in range(20):
        rig.passes(100 * SECOND)
        for _ in range(2):
            assert rig.reply("renew", key, fence, request_id=f"n{number}")[2] == [1, 2, fence, "w1", -1, 0, 0, 0]
    assert [entry.request_id for entry in rig.ring(key)] == ["a1"]
    again = rig.do("advance", key, "new", request_id="a1")
    assert again.replayed
    assert again.result.epoch == advanced.result.epoch
