"""conversation_advance: a new conversation, by the host's own decision."""

from __future__ import annotations

import pytest

from limpet.errors import ImplausibleEpoch
from limpet.policy import Policy

from .rig import HOUR, RETENTION_MS, SECOND, START, Rig


def test_an_unknown_key_is_created(rig: Rig) -> None:
    """An advance of an unknown key creates the record (design, section 5)."""
    key = rig.key()
    events = rig.listen()
    now, raw, outcome = rig.reply("advance", key, "new", request_id="a1")
    assert (now, raw) == (START, rig.raw(key))
    assert outcome == [1, START, 1, 0, 1, 0, 0]
    assert (rig.record(key).body.ordinal, rig.record(key).body.reason) == (1, "new")
    assert events() == [["advance", "conv", key.digest, START, 0, "", "new"]]
    assert RETENTION_MS - 5000 < rig.ttl_ms(key) <= RETENTION_MS
    assert rig.clock(key) == START


def test_it_replaces_and_releases(rig: Rig) -> None:
    """The epoch grows, the ordinal counts, the binding and its member of the index go."""
    key = rig.key()
    fence = rig.bind(key)
    rig.passes(5 * SECOND)
    _, _, outcome = rig.reply("advance", key, "switch")
    assert outcome == [1, rig.now, 2, START, 1, 0, 0]
    record = rig.record(key)
    assert (record.state, record.due, record.worker, record.body.fence) == (0, 0, "", 0)
    assert rig.bound(key) == {}
    assert rig.claim(key) > fence


def test_a_suspension_goes_with_the_old_one(rig: Rig) -> None:
    """The new conversation is not suspended."""
    key = rig.key()
    rig.resolve(key)
    rig.do("suspend", key)
    rig.do("advance", key, "new")
    assert rig.resolve(key).result.reset is None


def test_compare_and_set(rig: Rig) -> None:
    """The loser changes nothing and learns the current epoch."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(SECOND)
    winner = rig.do("advance", key, "new", expected_epoch=START, request_id="a")
    assert winner.result.applied
    before = rig.snapshot()
    assert rig.reply("advance", key, "new", expected_epoch=START, request_id="b")[2] == [0, winner.epoch, 2, 0, 1, 0, 0]
    loser = rig.do("advance", key, "new", expected_epoch=START, request_id="b")
    assert (loser.result.applied, loser.result.epoch) == (False, winner.epoch)
    assert rig.snapshot() == before


def test_an_expected_epoch_above_the_records_counts_as_seen(rig: Rig) -> None:
    """The record lost it; the tick goes past it, and says what came before."""
    key = rig.key()
    rig.resolve(key)
    lost = START + 9 * SECOND
    answer = rig.do("advance", key, "new", expected_epoch=lost)
    assert answer.result.applied
    assert answer.epoch > lost
    assert answer.result.previous_epoch == lost


@pytest.mark.parametrize("known", [False, True])
def test_an_implausible_expected_epoch(rig: Rig, known: bool) -> None:
    """More than 60 s ahead: refused, nothing written."""
    key = rig.key()
    if known:
        rig.resolve(key)
    before = rig.snapshot()
    with pytest.raises(ImplausibleEpoch):
        rig.do("advance", key, "new", expected_epoch=START + 60 * SECOND + 1)
    assert rig.snapshot() == before
    assert rig.do("advance", key, "new", expected_epoch=START + 60 * SECOND).result.applied


def test_a_repeat(rig: Rig) -> None:
    """The same request id: the first result; others in between do not matter, nor does a newer epoch."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(SECOND)
    first = rig.do("advance", key, "new", request_id="a")
    rig.passes(SECOND)
    rig.do("advance", key, "new", request_id="b")
    before = rig.snapshot()
    assert rig.reply("advance", key, "new", request_id="a")[2] == [1, first.result.epoch, 2, START, 1, 0, 1]
    assert rig.snapshot() == before


def test_a_repeat_of_a_lost_compare_and_set_is_decided_anew(rig: Rig) -> None:
    """A loser left nothing behind, so its retry compares again."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(SECOND)
    current = rig.do("advance", key, "new").epoch
    rig.do("advance", key, "new", expected_epoch=START, request_id="b")
    assert not rig.do("advance", key, "new", expected_epoch=START, request_id="b").result.applied
    assert rig.record(key).epoch == current


@pytest.mark.parametrize("kind", ["replayed", "lost"])
def test_durable_answers_are_writes(rig: Rig, kind: str) -> None:
    """A retry and a lost compare-and-set rewrite the record before they may call it durable (design, section 4)."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(SECOND)
    rig.do("advance", key, "new", request_id="a")
    kwargs = {"request_id": "a"} if kind == "replayed" else {"expected_epoch": START}
    before = rig.raw(key)
    made = rig.calls_of(rig.call("advance", key, "new", durable=True, **kwargs))
    assert made == ["GET " + rig.name(key), "SET " + rig.name(key)]
    assert rig.raw(key) == before


def test_a_set_back_is_told(rig: Rig) -> None:
    """Whoever watches clocks hears of it, and the settled record is kept, also by a call that decides nothing."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(-HOUR)
    assert rig.reply("advance", key, "new", expected_epoch=1)[2] == [0, START, 1, 0, 1, 1, 0]
    assert rig.record(key).last == rig.now
    assert rig.reply("advance", key, "new", expected_epoch=1)[2] == [0, START, 1, 0, 1, 0, 0]


def test_a_forgotten_key(rig: Rig) -> None:
    """It begins at ordinal 1 again, with a larger epoch and no previous one."""
    key = rig.key()
    rig.resolve(key)
    rig.do("forget", key)
    answer = rig.do("advance", key, "new")
    assert (answer.result.ordinal, answer.result.previous_epoch) == (1, None)
    assert answer.epoch > START


def test_a_lost_compare_and_set_against_a_forgotten_key_names_no_fence_as_its_epoch(rig: Rig) -> None:
    """What it calls the current epoch was an epoch: a scope made of a fence would be nobody's."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(SECOND)
    fence = rig.bind(key)
    rig.do("forget", key)
    answer = rig.do("advance", key, "new", expected_epoch=START)
    assert answer.result.applied or answer.result.epoch != fence


def test_the_retention_is_kept_at_its_largest(rig: Rig) -> None:
    """A record that an idle policy made to live longer does so over an advance."""
    key = rig.key()
    rig.resolve(key, policy=Policy.parse({"idle_s": 31_536_000}))
    rig.do("advance", key, "new")
    assert rig.ttl_ms(key) > 31_536_000_000 - 5000
