"""record_rewrite: the same bytes again, so that a WAIT on this connection covers them."""

from __future__ import annotations

import pytest

from .rig import SECOND, START, Rig


def test_the_same_bytes_and_ttl(rig: Rig) -> None:
    """A write that changes nothing."""
    key = rig.key()
    fence = rig.bind(key)
    rig.client.pexpire(rig.name(key), 60_000)
    before = rig.raw(key)
    call = rig.commands.rewrite(key, START, fence)
    assert rig.calls_of(call) == ["GET " + rig.name(key), "SET " + rig.name(key)]
    assert rig.raw(key) == before
    assert 0 < rig.ttl_ms(key) <= 60_000


@pytest.mark.parametrize(("epoch", "fence"), [(1, 0), (-1, 0), (0, 1), (0, -1)])
def test_a_record_that_moved_on(rig: Rig, epoch: int, fence: int) -> None:
    """Another epoch or fence than was decided on: nothing is written, and the answer says so."""
    key = rig.key()
    held = rig.bind(key)
    rig.passes(SECOND)
    call = rig.commands.rewrite(key, START + epoch, held + fence)
    assert rig.calls_of(call) == ["GET " + rig.name(key)]
    assert not rig.sent(call)


def test_no_record(rig: Rig) -> None:
    """Lost since: not durable."""
    assert not rig.sent(rig.commands.rewrite(rig.key(), START, 0))


def test_large_numbers_are_compared_exactly(rig: Rig) -> None:
    """Sixteen digits, up to 2^53 - 1."""
    key = rig.key()
    rig.now = 2**53 - 5000
    epoch = rig.resolve(key).epoch
    assert rig.sent(rig.commands.rewrite(key, epoch, 0)) == 1
    assert rig.sent(rig.commands.rewrite(key, epoch - 1, 0)) == 0
