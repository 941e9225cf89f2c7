"""The real thing under test: the commands of limpet on a real store, with an injected clock and, where a test plants a
fault, with altered scripts. Whatever is done behind the scripts' back (evictions, snapshots) is done here too."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import redis

from limpet.calls import Call, Target
from limpet.commands import Commands
from limpet.errors import error_for_word
from limpet.keys import digest
from limpet.scripts import script

from .model import Slot

PARTITIONS = 2
GRANULARITY_MS = 1001  # odd on purpose: instants of the histories are even, so no deadline is met to the microsecond
RETENTION_MS = 2 * 86_400_000

Saved = dict[str, bytes]


class Port:
    """One namespace on a store. ``texts`` replaces the text of scripts by name."""

    def __init__(self, client: redis.Redis, slots: Iterable[Slot], texts: Mapping[str, str] | None = None) -> None:
        self.client = client
        self.commands = Commands(
            namespace="histories", partitions=PARTITIONS, granularity_ms=GRANULARITY_MS, retention_ms=RETENTION_MS
        )
        self.texts = dict(texts or {})
        self.slots = tuple(slots)
        space = self.commands.keyspace
        self.names = {slot: space.record(slot[0], digest(slot[1])) for slot in self.slots}  # type: ignore[arg-type]
        self._record_names = tuple(self.names.values())
        self._others = tuple(f(p) for p in range(PARTITIONS) for f in (space.clock, space.bound))
        self._shas: dict[str, str] = {}

    def partition_of(self, slot: Slot) -> int:
        return self.commands.keyspace.partition(digest(slot[1]))

    def target(self, slot: Slot) -> Target:
        domain, text = slot
        return self.commands.declared(text) if domain == "conv" else self.commands.physical(text)

    def _sha(self, call: Call[Any]) -> str:
        name = call.script.name
        if name not in self._shas:
            self._shas[name] = self.client.script_load(self.texts.get(name, call.script.text))
        return self._shas[name]

    def send(self, call: Call[Any], slot: Slot) -> tuple[Callable[[], Any], dict[Slot, bytes | None], int]:
        """Runs the call. Returns how to read its reply, all records after it, and the TTL of its own record in ms."""
        pipe = self.client.pipeline(transaction=False)
        pipe.evalsha(self._sha(call), len(call.keys), *call.keys, *call.args)
        pipe.mget(self._record_names)
        pipe.pttl(self.names[slot])
        reply, values, ttl = pipe.execute(raise_on_error=False)

        def read() -> Any:
            if isinstance(reply, redis.ResponseError):
                raise error_for_word(str(reply)) or reply
            return call.parse(reply)

        return read, dict(zip(self.slots, values, strict=True)), ttl

    def index(self, slot: Slot) -> dict[bytes, float]:
        """The members of the slot's partition in ``bound``, with their deadlines; without the sentinel."""
        name = self.commands.keyspace.bound(self.partition_of(slot))
        return {member: score for member, score in self.client.zrange(name, 0, -1, withscores=True) if member}

    def member(self, slot: Slot, worker: str | None) -> bytes:
        return f"{slot[0]}:{digest(slot[1])}:{worker or ''}".encode()

    def overdue(self, slot: Slot, now: int) -> list[bytes]:
        """The members of the slot's partition whose time seems to be over: what the housekeeping reads first."""
        return [member for member, score in self.index(slot).items() if score <= now - GRANULARITY_MS * 1000]

    def prune(self, slot: Slot, now: int, members: list[bytes]) -> int:
        """What the housekeeping then does to them."""
        name = self.commands.keyspace.bound(self.partition_of(slot))
        records = [name.removesuffix("bound") + member[:37].decode() for member in members]
        head = struct.pack(">QQ", now, GRANULARITY_MS * 1000)
        call = Call(script("binding_prune"), (name, *records), (head, *members), int)
        return call.parse(self.client.evalsha(self._sha(call), len(call.keys), *call.keys, *call.args))

    def delete(self, slot: Slot) -> None:
        """The record expired, was evicted, or was deleted by hand."""
        self.client.delete(self.names[slot])

    def delete_clock(self, partition: int) -> None:
        self.client.delete(self.commands.keyspace.clock(partition))

    def flush(self) -> None:
        self.client.flushall()

    def save(self) -> Saved:
        """What a snapshot holds."""
        names = (*self._record_names, *self._others)
        pipe = self.client.pipeline(transaction=False)
        for name in names:
            pipe.dump(name)
        return {name: dumped for name, dumped in zip(names, pipe.execute(), strict=True) if dumped is not None}

    def restore(self, saved: Saved, ttl_ms: Mapping[Slot, int]) -> None:
        """The store as it was when it was saved; records whose time is over by now are not loaded, as Redis does."""
        pipe = self.client.pipeline(transaction=False)
        pipe.flushall()
        slot_of = {name: slot for slot, name in self.names.items()}
        for name, dumped in saved.items():
            slot = slot_of.get(name)
            if slot is None:
                pipe.restore(name, 0, dumped)
            elif ttl_ms[slot] > 0:
                pipe.restore(name, ttl_ms[slot], dumped)
        pipe.execute()
