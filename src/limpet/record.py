"""Decodes what the scripts store and answer. The layout is that of ``lua/README.md``; only the scripts write it.

A record is a MessagePack stream: a prefix of fixed width (schema, mark, last activity, due, epoch, keep), so that the hot
script need not unpack it, the worker, then one array. A reply is a stream too: the time, the record, and for most scripts
an outcome.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from limpet.errors import SchemaTooNew, StoreCorrupt
from limpet.schema import NEWEST

__all__ = ["BOUND", "CLAIMED", "UNBOUND", "Record", "decode_record", "fields_of", "split_reply"]

UNBOUND, CLAIMED, BOUND = 0, 1, 2

_PREFIX: Final = struct.Struct(">BBxQxQxQxQxH")
_NOW: Final = struct.Struct(">xQ")
_LENGTH: Final = struct.Struct(">xH")


class _Body(msgspec.Struct, array_like=True):
    ordinal: int
    reason: str
    previous: int
    dp_rank: int
    incarnation: str
    holder: str
    fence: int
    rebound: int
    suspend: int
    ring: msgspec.Raw


_body: Final = msgspec.msgpack.Decoder(_Body)
_outcome: Final = msgspec.msgpack.Decoder(list[Any])


class Record:
    """A record as stored. All instants are ticks (microseconds since 2026); ``due`` is the end of the binding with its
    granularity of grace, 0 when unbound."""

    __slots__ = ("body", "due", "epoch", "forgotten", "keep_ms", "last", "state", "suspended", "worker")

    def __init__(self, raw: bytes) -> None:
        try:
            schema, mark, self.last, self.due, self.epoch, self.keep_ms, size = _PREFIX.unpack_from(raw)
        except struct.error:
            raise StoreCorrupt("A record is shorter than its own prefix; delete that key or restore it.") from None
        if schema > NEWEST:
            raise SchemaTooNew(f"A record has schema {schema} and this release reads up to {NEWEST}; upgrade this replica.")
        self.state: int = mark & 7
        if self.state > BOUND:
            raise StoreCorrupt("A record is in a state that there is not; delete that key or restore it.")
        self.suspended = mark & 8 != 0
        self.forgotten = mark & 16 != 0
        try:
            self.worker = raw[_PREFIX.size : _PREFIX.size + size].decode()
            self.body = _body.decode(raw[_PREFIX.size + size :])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise StoreCorrupt("A record cannot be decoded; delete that key or restore it.") from None

    def remaining_us(self, now: int) -> int:
        """How long the claim or binding still holds, in microseconds; negative once it is over. A clock behind the last
        activity was set back, and the record's instants count from there (design, section 4)."""
        left: int = self.due - max(now, self.last)
        return left


def decode_record(raw: bytes) -> Record | None:
    """The record, or None for no bytes."""
    return Record(raw) if raw else None


def split_reply(reply: bytes) -> tuple[int, bytes, list[Any] | None]:
    """(now, the record's bytes, the outcome). The outcome is None in the short forms: nothing was decided. In the shortest,
    the record alone, the time is not told (0), since it lies within one granularity of the last activity."""
    if not reply:
        raise StoreCorrupt("A script answered with nothing; the store is not one of ours, or not the scripts.")
    if reply[0] <= NEWEST:
        return 0, reply, None
    try:
        (now,) = _NOW.unpack_from(reply)
        if len(reply) > 9 and reply[9] == 0xCD:
            (length,) = _LENGTH.unpack_from(reply, 9)
            return now, reply[12 : 12 + length], _outcome.decode(reply[12 + length :])
    except (struct.error, msgspec.MsgspecError, UnicodeDecodeError):
        raise StoreCorrupt("A record cannot be told from the reply around it; delete that key or restore it.") from None
    return now, reply[9:], None


def fields_of(outcome: list[Any] | None, count: int) -> list[Any]:
    """The fields of an outcome. Raises StoreCorrupt where there are not so many."""
    if outcome is None or len(outcome) != count:
        raise StoreCorrupt("A script's answer has other parts than this release knows; upgrade this replica, or the others.")
    return outcome
