"""binding_confirm: the claim becomes a binding, or nothing changes."""

from __future__ import annotations

import pytest

from limpet.bind import Bind
from limpet.errors import StaleFence

from .rig import BIND_TTL, CLAIM_TTL, GRANULARITY, RETENTION_MS, SECOND, START, Rig


def test_the_claim_becomes_a_binding(rig: Rig) -> None:
    """With its ttl from now on, in the record and in the index, told to everybody."""
    key = rig.key()
    fence = rig.claim(key, bind=Bind(worker="w1"))
    events = rig.listen()
    rig.passes(2 * SECOND)
    now, raw, outcome = rig.reply("confirm", key, fence, dp_rank=3, request_id="c1")
    assert (now, raw) == (rig.now, rig.raw(key))
    assert outcome == [1, 2, fence, "w1", 3, 1, 0, 0]
    record = rig.record(key)
    assert (record.state, record.last, record.due) == (2, rig.now, rig.now + BIND_TTL + GRANULARITY)
    assert rig.bound(key) == {rig.member(key, "w1"): rig.now + BIND_TTL}
    assert events() == [["bind", "conv", key.digest, START, fence, "w1", ""]]
    assert RETENTION_MS - 5000 < rig.ttl_ms(key) <= RETENTION_MS


def test_the_worker_that_served_is_authoritative(rig: Rig) -> None:
    """A router chose another one than was proposed: the record and the index name that one, and only that one."""
    key = rig.key()
    fence = rig.claim(key, bind=Bind(worker="w1"))
    _, _, outcome = rig.reply("confirm", key, fence, worker="w2", incarnation="i2")
    assert outcome == [1, 2, fence, "w2", -1, 1, 0, 0]
    assert rig.record(key).body.incarnation == "i2"
    assert set(rig.bound(key)) == {rig.member(key, "w2")}


@pytest.mark.parametrize("late", [1, 3600 * SECOND])
def test_after_the_claim_ttl(rig: Rig, late: int) -> None:
    """Accepted as long as nobody claimed since."""
    key = rig.key()
    fence = rig.claim(key)
    rig.passes(CLAIM_TTL + late)
    assert rig.do("confirm", key, fence, worker="w1").result.state == "bound"
    assert rig.action(key) == "continue"


def test_after_somebody_else_claimed(rig: Rig) -> None:
    """Stale: nothing changes, and the loser is told whom to follow (G5)."""
    key = rig.key()
    fence = rig.claim(key)
    rig.passes(CLAIM_TTL + 1)
    newer = rig.claim(key, bind=Bind(worker="w2"))
    before = rig.snapshot()
    with pytest.raises(StaleFence) as caught:
        rig.do("confirm", key, fence, worker="w1")
    assert caught.value.binding is not None
    assert (caught.value.binding.fence, caught.value.binding.worker) == (newer, "w2")
    assert rig.snapshot() == before
    _, _, outcome = rig.reply("confirm", key, fence)
    assert outcome == [0, 1, newer, "w2", -1, 0, 0, 0]


@pytest.mark.parametrize("by", ["advance", "release", "abort", "forget", "expiry"])
def test_after_the_epoch_or_the_binding_went(rig: Rig, by: str) -> None:
    """An advance, a release, an abort and a forgetting take the fence with them; so does a record that is gone."""
    key = rig.key()
    fence = rig.claim(key)
    if by == "expiry":
        rig.client.delete(rig.name(key))
    else:
        rig.do(by, key, *{"advance": ("new",), "forget": ()}.get(by, (fence,)))
    before = rig.snapshot()
    with pytest.raises(StaleFence) as caught:
        rig.do("confirm", key, fence)
    assert caught.value.binding is None
    assert rig.snapshot() == before


@pytest.mark.parametrize("off", [-1, 1])
def test_a_fence_that_is_off_by_one(rig: Rig, off: int) -> None:
    """Fences are compared exactly."""
    key = rig.key()
    fence = rig.claim(key)
    with pytest.raises(StaleFence):
        rig.do("confirm", key, fence + off)


def test_a_repeat_gets_the_first_result(rig: Rig) -> None:
    """The same request id: not confirmed a second time; another request in between does not matter."""
    key = rig.key()
    fence = rig.claim(key)
    rig.do("confirm", key, fence, worker="w1", request_id="c1")
    rig.passes(5 * SECOND)
    rig.do("renew", key, fence, request_id="n1")
    before = rig.snapshot()
    _, _, outcome = rig.reply("confirm", key, fence, worker="w9", request_id="c1")
    assert outcome == [1, 2, fence, "w1", -1, 1, 0, 1]
    assert rig.snapshot() == before


def test_a_repeat_whose_binding_moved_on(rig: Rig) -> None:
    """Its own result, but decided = 2: there is nothing left to make durable."""
    key = rig.key()
    fence = rig.claim(key)
    rig.do("confirm", key, fence, worker="w1", request_id="c1")
    rig.do("rebind", key, fence, "lost")
    _, _, outcome = rig.reply("confirm", key, fence, worker="w1", request_id="c1", durable=True)
    assert outcome == [1, 2, fence, "w1", -1, 2, 0, 1]
    answer = rig.do("confirm", key, fence, worker="w1", request_id="c1", durable=True)
    assert (answer.result.fence, answer.result.worker, answer.written) == (fence, "w1", False)


def test_a_durable_repeat_writes_again(rig: Rig) -> None:
    """WAIT after no write would answer at once."""
    key = rig.key()
    fence = rig.claim(key)
    rig.do("confirm", key, fence, request_id="c1")
    made = rig.calls_of(rig.call("confirm", key, fence, request_id="c1", durable=True))
    assert made == ["GET " + rig.name(key), "SET " + rig.name(key)]


def test_confirming_again_only_extends(rig: Rig) -> None:
    """Warm-up, then profiling of one key: still bound, and a shorter ttl takes nothing away."""
    key = rig.key()
    fence = rig.claim(key)
    rig.do("confirm", key, fence, worker="w1", ttl_ms=600_000)
    due = rig.record(key).due
    rig.do("confirm", key, fence, ttl_ms=1000)
    assert rig.record(key).due == due
    assert rig.record(key).worker == "w1"


def test_a_session_of_its_own(rig: Rig) -> None:
    """Physical bindings are confirmed in their own domain."""
    key, session = rig.key("same"), rig.session("same")
    fence = rig.claim(session, session_id="same")
    with pytest.raises(StaleFence):
        rig.do("confirm", key, fence)
    events = rig.listen()
    rig.do("confirm", session, fence, worker="w1")
    assert [event[:3] for event in events()] == [["bind", "sess", session.digest]]


@pytest.mark.parametrize("call", ["confirm", "abort", "release"])
def test_a_request_id_used_twice_is_not_the_same_request(rig: Rig, call: str) -> None:
    """With another fence it is another call: its own claim is decided, and never answered with the first one's result (G5)."""
    key = rig.key()
    first = rig.claim(key, bind=Bind(worker="w1"))
    rig.reply(call, key, first, request_id="same")
    if call == "confirm":
        rig.reply("advance", key, reason="new")
    second = rig.claim(key, bind=Bind(worker="w2"))
    assert second > first
    _, _, outcome = rig.reply(call, key, second, request_id="same")
    assert outcome[:3] == [1, 2 if call == "confirm" else 0, second]
    assert outcome[7] == 0
    before = rig.snapshot()
    with pytest.raises(StaleFence):
        rig.do(call, key, first, request_id="same")
    assert rig.snapshot() == before
