"""conversation_suspend: the next turn resets, or resumes within a window (the turn itself: test_conversation_resolve)."""

from __future__ import annotations

from .rig import HOUR, RETENTION_MS, SECOND, START, Rig


def test_the_next_turn_resets(rig: Rig) -> None:
    """The record says so, everybody is told, and it is no activity."""
    key = rig.key()
    rig.bind(key)
    rig.passes(9 * SECOND)
    events = rig.listen()
    now, raw, outcome = rig.reply("suspend", key, request_id="s1")
    assert (now, raw, outcome) == (rig.now, rig.raw(key), [1, START, 1, 0, 0])
    record = rig.record(key)
    assert (record.suspended, record.body.suspend, record.last, record.state) == (True, 1, START, 2)
    assert events() == [["suspend", "conv", key.digest, START, record.body.fence, "w1", ""]]
    assert RETENTION_MS - 5000 < rig.ttl_ms(key) <= RETENTION_MS


def test_a_window(rig: Rig) -> None:
    """Until when, as an instant of the store's clock; the record outlives it."""
    key = rig.key()
    rig.resolve(key)
    rig.do("suspend", key, window_ms=31_536_000_000)
    assert rig.record(key).body.suspend == START + 31_536_000 * SECOND
    assert rig.ttl_ms(key) > 31_536_000_000 - 5000


def test_no_record(rig: Rig) -> None:
    """Nothing to suspend: its next turn starts a conversation anyway."""
    key = rig.key()
    assert rig.reply("suspend", key) == (START, b"", [0, 0, 0, 0, 0])
    assert rig.raw(key) is None
    assert rig.do("suspend", key).result.epoch is None


def test_a_forgotten_record(rig: Rig) -> None:
    """The same, and its ring keeps."""
    key = rig.key()
    rig.resolve(key)
    rig.do("forget", key)
    before = rig.snapshot()
    assert rig.reply("suspend", key)[2] == [0, 0, 0, 0, 0]
    assert rig.snapshot() == before


def test_a_repeat(rig: Rig) -> None:
    """A retried suspension does not suspend the conversation that began since."""
    key = rig.key()
    rig.resolve(key)
    rig.do("suspend", key, request_id="s1")
    rig.passes(SECOND)
    rig.resolve(key)
    before = rig.snapshot()
    assert rig.reply("suspend", key, request_id="s1")[2] == [1, START, 0, 0, 1]
    assert rig.snapshot() == before
    assert rig.resolve(key).result.reset is None


def test_the_last_one_counts(rig: Rig) -> None:
    """A window replaces a plain suspension and the other way round."""
    key = rig.key()
    rig.resolve(key)
    rig.do("suspend", key)
    rig.do("suspend", key, window_ms=1000)
    assert rig.record(key).body.suspend == START + SECOND
    rig.do("suspend", key)
    assert rig.record(key).body.suspend == 1


def test_a_set_back(rig: Rig) -> None:
    """The record is settled first."""
    key = rig.key()
    rig.bind(key)
    rig.passes(-HOUR)
    assert rig.reply("suspend", key, window_ms=1000)[2] == [1, START, 1, 1, 0]
    assert rig.record(key).last == rig.now
    assert rig.record(key).body.suspend == rig.now + SECOND
