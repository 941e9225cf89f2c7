"""binding_rebind: compare-and-set on the fence; the loser follows the winner."""

from __future__ import annotations

import pytest

from limpet.errors import StaleFence

from .rig import CLAIM_TTL, RETENTION_MS, SECOND, START, Rig


@pytest.mark.parametrize("bound", [False, True])
def test_a_new_claim_of_the_same_epoch(rig: Rig, bound: bool) -> None:
    """With a larger fence, a claim's deadline, the new worker and holder; a worker's loss is no new conversation (G2)."""
    key = rig.key()
    fence = rig.bind(key) if bound else rig.claim(key)
    events = rig.listen()
    rig.passes(5 * SECOND)
    _, raw, outcome = rig.reply("rebind", key, fence, "worker_lost", worker="w2", dp_rank=1, incarnation="i2", holder="replica-9")
    assert outcome == [1, 1, rig.now, "w2", 1, 1, 0, 0]
    assert raw == rig.raw(key)
    record = rig.record(key)
    assert (record.state, record.due, record.epoch, record.last) == (1, rig.now + CLAIM_TTL, START, rig.now)
    assert (record.body.holder, record.body.incarnation, record.body.rebound) == ("replica-9", "i2", 1)
    assert record.body.ordinal == 1
    assert rig.bound(key) == {rig.member(key, "w2"): rig.now + CLAIM_TTL}
    assert rig.clock(key) == rig.now
    assert events() == [["rebind", "conv", key.digest, START, rig.now, "w2", "worker_lost"]]
    assert RETENTION_MS - 5000 < rig.ttl_ms(key) <= RETENTION_MS


def test_the_loser_follows(rig: Rig) -> None:
    """Two replicas notice the loss at once: one wins, the other changes nothing and learns the winner's fence (G5)."""
    key = rig.key()
    fence = rig.bind(key)
    winner = rig.do("rebind", key, fence, "lost", worker="w2", request_id="a").fence
    before = rig.snapshot()
    with pytest.raises(StaleFence) as caught:
        rig.do("rebind", key, fence, "lost", worker="w3", request_id="b")
    assert caught.value.binding is not None
    assert (caught.value.binding.fence, caught.value.binding.worker) == (winner, "w2")
    assert rig.snapshot() == before


def test_the_old_fence_is_fenced(rig: Rig) -> None:
    """What the old claimer still sends changes nothing."""
    key = rig.key()
    fence = rig.bind(key)
    rig.do("rebind", key, fence, "lost", worker="w2")
    before = rig.snapshot()
    for operation in ("confirm", "renew", "abort", "release"):
        with pytest.raises(StaleFence):
            rig.do(operation, key, fence)
    assert rig.snapshot() == before


def test_a_repeat_while_the_claim_lives(rig: Rig) -> None:
    """The same claim, its remaining time; up to its deadline and no longer."""
    key = rig.key()
    fence = rig.bind(key)
    first = rig.do("rebind", key, fence, "lost", worker="w2", request_id="a")
    rig.passes(4 * SECOND)
    again = rig.do("rebind", key, fence, "lost", worker="w2", request_id="a")
    assert again.replayed
    assert (again.result.fence, again.result.action, again.result.expires_in_ms) == (first.result.fence, "bind", 6000)
    assert again.result.rebound
    rig.passes(6 * SECOND)
    assert rig.do("rebind", key, fence, "lost", worker="w2", request_id="a").replayed
    rig.passes(1)
    with pytest.raises(StaleFence):
        rig.do("rebind", key, fence, "lost", worker="w2", request_id="a")


def test_a_durable_repeat_writes_again(rig: Rig) -> None:
    """WAIT after no write would answer at once."""
    key = rig.key()
    fence = rig.bind(key)
    rig.do("rebind", key, fence, "lost", request_id="a")
    made = rig.calls_of(rig.call("rebind", key, fence, "lost", request_id="a", durable=True))
    assert made == ["GET " + rig.name(key), "SET " + rig.name(key)]


@pytest.mark.parametrize("gone", ["released", "forgotten", "advanced", "missing"])
def test_nothing_to_rebind(rig: Rig, gone: str) -> None:
    """An unbound epoch is resolved, not rebound; nothing is written."""
    key = rig.key()
    fence = rig.bind(key)
    if gone == "missing":
        rig.client.delete(rig.name(key))
    else:
        operation = {"released": "release", "forgotten": "forget", "advanced": "advance"}[gone]
        rig.do(operation, key, *{"release": (fence,), "advance": ("new",)}.get(operation, ()))
    before = rig.snapshot()
    with pytest.raises(StaleFence):
        rig.do("rebind", key, fence, "lost")
    assert rig.snapshot() == before


def test_rebound_until_the_next_bind(rig: Rig) -> None:
    """The mark stays over the confirm, so that every replica keeps the session's changed name, and goes with the binding."""
    key = rig.key()
    fence = rig.bind(key)
    newer = rig.do("rebind", key, fence, "lost", worker="w2").fence
    rig.do("confirm", key, newer)
    assert rig.resolve(key, bind=True).result.binding.rebound
    rig.do("release", key, newer)
    assert not rig.resolve(key, bind=True).result.binding.rebound


def test_after_the_deadline(rig: Rig) -> None:
    """Whoever read the fence may rebind, as long as nobody has claimed since."""
    key = rig.key()
    fence = rig.bind(key)
    rig.passes(1000 * SECOND)
    assert rig.do("rebind", key, fence, "lost").fence > fence
