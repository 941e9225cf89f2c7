"""The bytes that the scripts store and answer, read on this side (what they mean: lua/README.md)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.errors import LimpetError, SchemaTooNew, StoreCorrupt
from limpet.record import BOUND, CLAIMED, UNBOUND, Record, decode_record, split_reply

U53 = st.integers(0, 2**53 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
BODY = [3, "idle", 17, 2, "i1", "replica-1", 99, 1, 0, []]


def packed(
    *, schema: int = 1, mark: int = 0, instants: tuple[int, int, int, int] = (5, 0, 7, 1000), worker: str = "", body: Any = None
) -> bytes:
    prefix = b"".join(b"\xcf" + value.to_bytes(8, "big") for value in instants)
    name = worker.encode()
    tail = msgspec.msgpack.encode(BODY if body is None else body)
    return bytes((schema, mark)) + prefix + b"\xda" + len(name).to_bytes(2, "big") + name + tail


@given(st.sampled_from([UNBOUND, CLAIMED, BOUND]), st.booleans(), st.booleans(), st.tuples(U53, U53, U53, U53), TEXT)
def test_every_field(state: int, suspended: bool, forgotten: bool, instants: tuple[int, int, int, int], worker: str) -> None:
    """Mark: the state in three bits, 8 suspended, 16 forgotten. Integers and text come back exactly."""
    record = Record(packed(mark=state + 8 * suspended + 16 * forgotten, instants=instants, worker=worker))
    assert (record.state, record.suspended, record.forgotten) == (state, suspended, forgotten)
    assert (record.last, record.due, record.epoch, record.keep_ms) == instants
    assert record.worker == worker


def test_the_body() -> None:
    """Ten fields after the worker."""
    body = Record(packed()).body
    assert (body.ordinal, body.reason, body.previous, body.dp_rank) == (3, "idle", 17, 2)
    assert (body.incarnation, body.holder, body.fence, body.rebound, body.suspend) == ("i1", "replica-1", 99, 1, 0)
    assert msgspec.msgpack.decode(body.ring) == []


def test_it_is_a_stream_of_messagepack() -> None:
    """Whoever has only a MessagePack decoder can read a record item by item: its prefix has its marker bytes."""
    raw = packed(worker="wörker", mark=2)
    items, rest = [], raw
    for size in (1, 1, 9, 9, 9, 9, 3 + len("wörker".encode())):
        items.append(msgspec.msgpack.decode(rest[:size]))
        rest = rest[size:]
    assert items == [1, 2, 5, 0, 7, 1000, "wörker"]
    assert msgspec.msgpack.decode(rest) == BODY


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"\x01", StoreCorrupt),
        (packed()[:41], StoreCorrupt),
        (packed()[:-1], StoreCorrupt),
        (packed(body=[1, 2]), StoreCorrupt),
        (packed(body={"a": 1}), StoreCorrupt),
        (packed(worker="é").replace("é".encode(), b"\xff\xff"), StoreCorrupt),
        (packed(schema=2), SchemaTooNew),
        (packed(schema=255, body="anything"), SchemaTooNew),
    ],
)
def test_what_cannot_be_read(raw: bytes, error: type[LimpetError]) -> None:
    """Typed, never taken for missing."""
    with pytest.raises(error):
        decode_record(raw)


@given(st.binary(max_size=120))
def test_garbage_is_typed(raw: bytes) -> None:
    """Whatever is stored: a record, none, or a LimpetError; no other exception."""
    try:
        decode_record(raw)
    except LimpetError:
        return


@given(st.binary(min_size=0, max_size=80))
def test_a_garbage_peek_is_typed(raw: bytes) -> None:
    """The same behind the time of a peek: what somebody else stored under our key does not crash the reader."""
    try:
        _, record, _ = split_reply(b"\xcf" + (5).to_bytes(8, "big") + raw)
        decode_record(record)
    except LimpetError:
        return


def test_no_bytes_is_no_record() -> None:
    """None."""
    assert decode_record(b"") is None


@pytest.mark.parametrize(("now", "left"), [(0, 10), (99, 10), (100, 10), (101, 9), (110, 0), (111, -1)])
def test_what_is_left(now: int, left: int) -> None:
    """From the later of now and the last activity: a clock behind that was set back (design, section 4)."""
    assert Record(packed(mark=1, instants=(100, 110, 7, 1))).remaining_us(now) == left


def test_the_three_forms_of_a_reply() -> None:
    """The record alone; the time and the record; the time, the record and an outcome."""
    raw = packed(worker="w")
    time = b"\xcf" + (12345).to_bytes(8, "big")
    assert split_reply(raw) == (0, raw, None)
    assert split_reply(time + raw) == (12345, raw, None)
    assert split_reply(time) == (12345, b"", None)
    outcome = [1, "idle", 2**53 - 1]
    whole = time + b"\xcd" + len(raw).to_bytes(2, "big") + raw + msgspec.msgpack.encode(outcome)
    assert split_reply(whole) == (12345, raw, outcome)
    empty = time + b"\xcd\x00\x00" + msgspec.msgpack.encode([0])
    assert split_reply(empty) == (12345, b"", [0])


@pytest.mark.parametrize("state", range(BOUND + 1, 8))
def test_a_state_that_there_is_not(state: int) -> None:
    """A damaged mark is a damaged record, told as such."""
    with pytest.raises(StoreCorrupt, match="a state that there is not"):
        Record(packed(mark=state))
