"""Whatever bytes are in the store, reading them gives a record or the typed error: never another exception."""

from __future__ import annotations

import contextlib
import struct

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.answers import binding_of, read_binding
from limpet.errors import SchemaTooNew, StaleFence, StoreCorrupt
from limpet.record import decode_record, split_reply

TYPED = (StoreCorrupt, SchemaTooNew, StaleFence)
TICK = 28_861_479_864_234


def made(mark: int = 2, worker: bytes = b"gpu-3") -> bytes:
    """A record as the scripts write it."""
    prefix = struct.pack(">BBBQBQBQBQBH", 1, mark, 0xCF, TICK, 0xCF, TICK + 9, 0xCF, TICK, 0xCF, 1000, 0xDA, len(worker))
    return prefix + worker + msgspec.msgpack.encode([1, "new", 0, -1, "", "holder", TICK, 0, 0, []])


VALID = made()
REPLY = b"\xcf" + TICK.to_bytes(8, "big") + b"\xcd" + len(VALID).to_bytes(2, "big") + VALID
OUTCOMES = [
    msgspec.msgpack.encode(outcome) for outcome in ([1, 2, TICK, "gpu-3", -1, 1, 0, 0], [0, 0, 0, "", -1, 0, 0, 0], [], [1])
]


def test_the_valid_ones_are_read() -> None:
    """What the mutations start from is a record, and a reply around it."""
    record = decode_record(VALID)
    assert record is not None
    assert (record.epoch, record.worker) == (TICK, "gpu-3")
    assert read_binding("binding_renew", TICK, 0, REPLY + OUTCOMES[0]).result.worker == "gpu-3"


def read(data: bytes) -> None:
    """Every way to read it."""
    with contextlib.suppress(*TYPED):
        record = decode_record(data)
        if record is not None:
            binding_of(record, TICK, 1_000_000)
            record.remaining_us(TICK)
    with contextlib.suppress(*TYPED):
        split_reply(data)
    with contextlib.suppress(*TYPED):
        read_binding("binding_confirm", TICK, 1_000_000, data)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid record or reply with some bytes changed, taken out or put in."""
    data = bytearray(draw(st.sampled_from([VALID, *(REPLY + outcome for outcome in OUTCOMES)])))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["set", "cut", "drop", "insert"]))
        if kind == "cut":
            del data[at:]
        elif kind == "drop":
            del data[at : at + draw(st.integers(1, 8))]
        elif kind == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
        elif data:
            data[at] = draw(st.integers(0, 255))
    return bytes(data)


@settings(max_examples=400, derandomize=True)
@given(mutated())
def test_mutations(data: bytes) -> None:
    """Nearly a record."""
    read(data)


@settings(max_examples=300, derandomize=True)
@given(st.binary(max_size=120))
def test_random_bytes(data: bytes) -> None:
    """Anything."""
    read(data)


def test_every_single_byte() -> None:
    """Each byte of a record set to each value of interest, and each prefix of it."""
    whole = REPLY + OUTCOMES[0]
    for data in (VALID, whole):
        for at in range(len(data)):
            read(data[:at])
            for value in (0, 1, 7, 0x80, 0x91, 0xC0, 0xC1, 0xCF, 0xDA, 0xDF, 0xFF):
                read(data[:at] + bytes([value]) + data[at + 1 :])
