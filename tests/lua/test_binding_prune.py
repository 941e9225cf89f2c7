"""binding_prune: the set is an index, the record decides."""

from __future__ import annotations

import pytest

from limpet.bind import Bind
from limpet.errors import SchemaTooNew, StoreCorrupt

from .rig import BIND_TTL, CLAIM_TTL, GRANULARITY, HOUR, SECOND, START, Rig, packed


@pytest.mark.parametrize("past", [0, 1])
def test_a_binding_at_its_deadline(rig: Rig, past: int) -> None:
    """It holds for a granularity beyond it, to the microsecond, as for a turn."""
    key = rig.key()
    rig.bind(key)
    rig.passes(BIND_TTL + GRANULARITY + past)
    assert rig.prune(key, [rig.member(key, "w1")]) == past
    assert set(rig.bound(key)) == (set() if past else {rig.member(key, "w1")})


@pytest.mark.parametrize("past", [0, 1])
def test_a_claim_at_its_deadline(rig: Rig, past: int) -> None:
    """A claim has no grace."""
    key = rig.key()
    rig.claim(key, bind=Bind(worker="w1"))
    rig.passes(CLAIM_TTL + past)
    assert rig.prune(key, [rig.member(key, "w1")]) == past


def test_a_score_behind_its_record(rig: Rig) -> None:
    """The record lives on: the member stays, and gets the record's deadline."""
    key = rig.key()
    rig.bind(key)
    rig.client.zadd(rig.bound_name(key), {rig.member(key, "w1"): 5})
    assert rig.prune(key, [rig.member(key, "w1")]) == 0
    assert rig.bound(key) == {rig.member(key, "w1"): START + BIND_TTL}


def test_members_without_a_record(rig: Rig) -> None:
    """Expired, evicted, forgotten, released, rebound to another worker: out."""
    gone, forgotten, moved = rig.key("gone"), rig.key("forgotten"), rig.key("moved")
    for key in (gone, forgotten):
        rig.bind(key)
    rig.bind(moved, worker="new")
    rig.client.delete(rig.name(gone))
    rig.do("forget", forgotten)
    for key, worker in ((gone, "w1"), (forgotten, "w1"), (moved, "old")):
        rig.client.zadd(rig.bound_name(key), {rig.member(key, worker): 5})
        assert rig.prune(key, [rig.member(key, worker)]) == 1
    assert rig.bound(moved)[rig.member(moved, "new")] == START + BIND_TTL


def test_the_sentinel_stays(rig: Rig) -> None:
    """The set never vanishes."""
    key = rig.key()
    rig.bind(key)
    rig.passes(HOUR)
    assert rig.prune(key, [rig.member(key, "w1")]) == 1
    assert rig.client.zrange(rig.bound_name(key), 0, -1) == [b""]


def test_sixty_four_at_once_and_no_more(rig: Rig) -> None:
    """Bounded: what comes after the 64th is not looked at."""
    key = rig.key()
    rig.resolve(key)
    members = [rig.member(key, f"old{number}") for number in range(70)]
    rig.client.zadd(rig.bound_name(key), dict.fromkeys(members, 5.0) | {b"": float("inf")})
    assert rig.prune(key, members) == 64
    assert set(rig.bound(key)) == set(members[64:])


def test_a_binding_that_is_not_there_is_not_added(rig: Rig) -> None:
    """Pruning only takes out and corrects."""
    key = rig.key()
    rig.bind(key)
    rig.client.zrem(rig.bound_name(key), rig.member(key, "w1"))
    assert rig.prune(key, [rig.member(key, "w1")]) == 0
    assert rig.bound(key) == {}


@pytest.mark.parametrize("left", [-1, 0])
def test_a_clock_set_back(rig: Rig, left: int) -> None:
    """The record's instants move back: what had run out before its last activity is out, what had not is in."""
    key = rig.key()
    rig.bind(key, bind=Bind(worker="w1", ttl_ms=300_000))
    due = rig.record(key).due
    rig.passes(BIND_TTL + GRANULARITY - left)
    rig.resolve(key)  # without bind: an activity that does not slide
    assert rig.record(key).due == due
    rig.passes(-HOUR)
    assert rig.prune(key, [rig.member(key, "w1")]) == (1 if left < 0 else 0)


@pytest.mark.parametrize(("raw", "error"), [(b"\x01", StoreCorrupt), (packed(schema=2), SchemaTooNew)])
def test_a_record_that_cannot_be_read(rig: Rig, raw: bytes, error: type[Exception]) -> None:
    """Left alone, and its member stays, since nobody can tell; it does not hold up the others."""
    key = rig.key()
    rig.bind(key)
    rig.put(key, raw)
    before = rig.snapshot()
    with pytest.raises(error):
        rig.record(key)
    assert rig.prune(key, [rig.member(key, "w1")]) == 0
    assert rig.snapshot() == before


def test_no_members(rig: Rig) -> None:
    """Nothing asked, nothing done."""
    key = rig.key()
    rig.bind(key)
    rig.passes(5 * SECOND)
    assert rig.prune(key, []) == 0
