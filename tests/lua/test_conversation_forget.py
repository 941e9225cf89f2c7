"""conversation_forget: the record goes; its ring and its epoch stay for an hour."""

from __future__ import annotations

import pytest

from limpet.errors import ImplausibleEpoch

from .rig import HOUR, SECOND, START, Rig


def test_the_record_goes(rig: Rig) -> None:
    """The binding with it, from the record and the index; everybody hears of it."""
    key = rig.key()
    fence = rig.bind(key)
    events = rig.listen()
    now, raw, outcome = rig.reply("forget", key, request_id="f1")
    assert (now, raw, outcome) == (START, rig.raw(key), [1, START, 1, 0, 0])
    record = rig.record(key)
    assert (record.forgotten, record.state, record.due, record.worker) == (True, 0, 0, "")
    assert rig.bound(key) == {}
    assert [event[:3] for event in events()] == [["forget", "conv", key.digest]]
    assert 3_600_000 - 5000 < rig.ttl_ms(key) <= 3_600_000
    assert rig.do("peek", key).result is None
    assert rig.resolve(key, bind=True).result.binding.fence > fence


def test_the_next_conversation_is_a_new_one(rig: Rig) -> None:
    """Ordinal 1, reason `new`, created; with a larger epoch, and no reset to report (G3)."""
    key = rig.key()
    rig.resolve(key)
    rig.do("forget", key)
    answer = rig.resolve(key, seen_epoch=START)  # whoever remembers the old one takes it for no rollback
    assert answer.epoch > START
    result = answer.result
    assert (result.created, result.ordinal, result.epoch_reason, result.reset) == (True, 1, "new", None)


def test_the_new_one_is_told_to_memos(rig: Rig) -> None:
    """A replica that still holds the old epoch in its memo has to drop it."""
    key = rig.key()
    rig.resolve(key)
    rig.do("forget", key)
    events = rig.listen()
    rig.resolve(key)
    assert [event[0] for event in events()] == ["advance"]


def test_a_retried_delete_meets_no_new_conversation(rig: Rig) -> None:
    """For an hour the ring knows the request (design, section 5)."""
    key = rig.key()
    rig.resolve(key)
    rig.do("forget", key, request_id="f1")
    rig.passes(SECOND)
    fresh = rig.resolve(key).epoch
    before = rig.snapshot()
    assert rig.reply("forget", key, request_id="f1")[2] == [1, START, 0, 0, 1]
    assert rig.snapshot() == before
    assert rig.record(key).epoch == fresh


def test_nothing_to_forget(rig: Rig) -> None:
    """Unknown, or forgotten by somebody else: not applied, nothing written."""
    key = rig.key()
    assert rig.reply("forget", key) == (START, b"", [0, 0, 0, 0, 0])
    rig.resolve(key)
    rig.do("forget", key, request_id="f1")
    before = rig.snapshot()
    assert rig.reply("forget", key, request_id="f2")[2] == [0, 0, 0, 0, 0]
    assert rig.snapshot() == before


def test_compare_and_set(rig: Rig) -> None:
    """An epoch that is not the current one any more: nothing is forgotten."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(SECOND)
    current = rig.do("advance", key, "new").epoch
    before = rig.snapshot()
    assert rig.reply("forget", key, expected_epoch=START)[2] == [0, current, 0, 0, 0]
    assert rig.snapshot() == before
    assert rig.do("forget", key, expected_epoch=current).result.applied


def test_an_expected_epoch_that_was_lost(rig: Rig) -> None:
    """It is gone past: what comes next is larger than what the caller has seen."""
    key = rig.key()
    rig.resolve(key)
    lost = START + 30 * SECOND
    assert rig.do("forget", key, expected_epoch=lost).result.applied
    assert rig.resolve(key).epoch > lost


def test_an_implausible_expected_epoch(rig: Rig) -> None:
    """Refused, nothing written."""
    key = rig.key()
    rig.resolve(key)
    before = rig.snapshot()
    with pytest.raises(ImplausibleEpoch):
        rig.do("forget", key, expected_epoch=START + 61 * SECOND)
    assert rig.snapshot() == before


def test_after_the_tombstone_expired_the_clock_knows(rig: Rig) -> None:
    """The hour is over and nothing is left of the key: the next epoch and fence are larger all the same (G3)."""
    key = rig.key()
    fence = rig.bind(key)
    rig.do("forget", key)
    rig.client.delete(rig.name(key))
    rig.passes(-HOUR)
    assert rig.claim(key) > fence


def test_a_set_back(rig: Rig) -> None:
    """Told, and settled."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(-HOUR)
    assert rig.reply("forget", key)[2] == [1, START, 1, 1, 0]
    assert rig.record(key).last == rig.now


def test_a_retried_resolve_of_before(rig: Rig) -> None:
    """Its ring is still there: a retry of an earlier decision tells that decision and begins nothing."""
    key = rig.key()
    rig.resolve(key, request_id="r1")
    rig.do("forget", key)
    before = rig.snapshot()
    answer = rig.resolve(key, request_id="r1")
    assert answer.replayed
    assert answer.result.epoch == START
    assert rig.snapshot() == before
