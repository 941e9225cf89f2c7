"""conversation_peek: reads, and nothing else."""

from __future__ import annotations

import pytest
import redis

from limpet.scripts import script

from .rig import HOUR, SECOND, START, Rig, knows_flags


def test_the_record_as_it_is(rig: Rig) -> None:
    """No touch, no policy, no claim, at any time."""
    key = rig.key()
    rig.bind(key)
    rig.do("suspend", key)
    before = rig.snapshot()
    for _ in range(3):
        assert rig.reply("peek", key) == (rig.now, rig.raw(key), None)
        rig.passes(100 * SECOND)
    assert rig.snapshot() == before


def test_no_record(rig: Rig) -> None:
    """Only the time."""
    assert rig.reply("peek", rig.key()) == (START, b"", None)
    assert rig.do("peek", rig.key()).result is None


def test_what_is_left(rig: Rig) -> None:
    """A live binding with its time; one that is over is none."""
    key = rig.key()
    rig.bind(key)
    rig.passes(100 * SECOND)
    assert rig.do("peek", key).result.binding.expires_in_ms == 200_000
    rig.passes(HOUR)
    assert rig.do("peek", key).result.binding is None
    assert rig.do("peek", key).result.epoch == START


def test_the_flag_is_enforced(rig: Rig) -> None:
    """Where the server knows flags, it refuses a write from this script, so that nobody can add one unnoticed."""
    if not knows_flags(rig.client):
        pytest.skip("Redis 6.2 knows no flags")
    peek = script("conversation_peek")
    assert peek.flagged.startswith("#!lua flags=no-writes\n")
    call = rig.call("peek", rig.key())
    reply = rig.client.eval(peek.flagged, 1, *call.keys, *call.args)
    assert reply == b"\xcf" + START.to_bytes(8, "big")
    spoiled = peek.flagged.replace("local raw =", "redis.call('SET', record_key, 'x')\nlocal raw =")
    assert spoiled != peek.flagged
    with pytest.raises(redis.ResponseError, match="read-only script"):
        rig.client.eval(spoiled, 1, *call.keys, *call.args)


def test_without_a_clock_of_ours_the_server_is_asked(rig: Rig) -> None:
    """now_us = 0: TIME."""
    now, _, _ = rig.reply("peek", rig.key(), now_us=0)
    seconds, _ = rig.client.time()  # type: ignore[misc]
    assert abs(now - (seconds - 1_767_225_600) * SECOND) < 60 * SECOND
