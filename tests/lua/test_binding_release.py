"""binding_release and binding_abort: the same effect, for different reasons."""

from __future__ import annotations

import pytest

from limpet.errors import StaleFence

from .rig import RETENTION_MS, SECOND, START, Rig

BOTH = pytest.mark.parametrize("operation", ["release", "abort"])


@BOTH
@pytest.mark.parametrize("bound", [False, True])
def test_the_next_turn_is_told_to_bind(rig: Rig, operation: str, bound: bool) -> None:
    """A claim or a binding goes, from the record and the index, and everybody hears of it. The epoch stays."""
    key = rig.key()
    fence = rig.bind(key) if bound else rig.claim(key)
    events = rig.listen()
    _, raw, outcome = rig.reply(operation, key, fence, reason="done")
    assert outcome == [1, 0, fence, "", -1, 0, 0, 0]
    assert raw == rig.raw(key)
    record = rig.record(key)
    assert (record.state, record.due, record.worker, record.epoch) == (0, 0, "", START)
    assert (record.body.fence, record.body.holder, record.body.incarnation) == (fence, "", "")
    assert rig.bound(key) == {}
    assert events() == [["release", "conv", key.digest, START, fence, "", "done"]]
    assert RETENTION_MS - 5000 < rig.ttl_ms(key) <= RETENTION_MS
    assert rig.claim(key) > fence


@BOTH
def test_idempotent_without_a_request_id(rig: Rig, operation: str) -> None:
    """The same fence, already unbound: still a success, and nothing is written."""
    key = rig.key()
    fence = rig.bind(key)
    rig.do(operation, key, fence)
    before = rig.snapshot()
    assert rig.reply(operation, key, fence)[2] == [1, 0, fence, "", -1, 0, 0, 0]
    assert rig.do(operation, key, fence).result.action is None
    assert rig.snapshot() == before


@BOTH
def test_a_repeat_after_somebody_bound_anew(rig: Rig, operation: str) -> None:
    """A retry meets its own first result, and the new claim keeps."""
    key = rig.key()
    fence = rig.bind(key)
    rig.do(operation, key, fence, request_id="x1")
    rig.passes(SECOND)
    rig.claim(key, request_id="other")
    before = rig.snapshot()
    assert rig.reply(operation, key, fence, request_id="x1")[2] == [1, 0, fence, "", -1, 0, 0, 1]
    assert rig.snapshot() == before


@BOTH
@pytest.mark.parametrize("off", [-1, 1])
def test_a_stale_fence(rig: Rig, operation: str, off: int) -> None:
    """Changes nothing and says so, on a claim as on a released epoch."""
    key = rig.key()
    fence = rig.bind(key)
    for _ in range(2):
        before = rig.snapshot()
        with pytest.raises(StaleFence):
            rig.do(operation, key, fence + off)
        assert rig.snapshot() == before
        rig.do(operation, key, fence)


@BOTH
def test_past_the_deadline(rig: Rig, operation: str) -> None:
    """A binding that ran out and that nobody claimed is still this fence's to give up."""
    key = rig.key()
    fence = rig.bind(key)
    rig.passes(1000 * SECOND)
    assert rig.do(operation, key, fence).result.state == "unbound"


def test_one_request_id_for_two_operations(rig: Rig) -> None:
    """The ring tells operations apart: a release is not a retry of an abort."""
    key = rig.key()
    first = rig.bind(key)
    rig.do("abort", key, first, request_id="same")
    second = rig.bind(key)
    rig.do("release", key, second, request_id="same")
    assert rig.record(key).state == 0
    assert [(entry.request_id, entry.operation) for entry in rig.ring(key)] == [("same", 5), ("same", 7)]
