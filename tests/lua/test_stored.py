"""What every script does with a key that holds something else than it wrote: refuses, and writes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from limpet.calls import Target
from limpet.errors import LimpetError, SchemaTooNew, StoreCorrupt

from .rig import NEW_RECORD_BODY, SECOND, START, Rig, packed

WRITERS = ("resolve", "advance", "suspend", "forget", "confirm", "abort", "release", "renew", "rebind", "touch", "rewrite")
ARGS: dict[str, tuple[Any, ...]] = {
    "advance": ("new",),
    "confirm": (START,),
    "abort": (START,),
    "release": (START,),
    "renew": (START,),
    "rebind": (START, "lost"),
    "touch": (START,),
}
GOOD = packed(mark=1, last=START, due=START + SECOND, epoch=START)


def call(rig: Rig, operation: str, target: Target) -> Any:
    if operation == "rewrite":
        return rig.sent(rig.commands.rewrite(target, START, START))
    kwargs: dict[str, Any] = {"touch": {"age_us": 0}, "resolve": {"request_id": "look"}}.get(operation, {})
    return rig.do(operation, target, *ARGS.get(operation, ()), **kwargs)


def refused(rig: Rig, operation: str, target: Target, error: type[LimpetError]) -> None:
    before = rig.snapshot()
    with pytest.raises(error):
        call(rig, operation, target)
    assert rig.snapshot() == before


@pytest.mark.parametrize("operation", [*WRITERS, "peek"])
@pytest.mark.parametrize("kind", ["hash", "list", "set", "zset"])
def test_wrong_type(rig: Rig, operation: str, kind: str) -> None:
    """A key of ours that is no string: StoreCorrupt."""
    key = rig.key()
    make = {"hash": lambda n: rig.client.hset(n, "a", "b"), "list": lambda n: rig.client.rpush(n, "a")}
    make |= {"set": lambda n: rig.client.sadd(n, "a"), "zset": lambda n: rig.client.zadd(n, {"a": 1})}
    make[kind](rig.name(key))
    refused(rig, operation, key, StoreCorrupt)


CORRUPT = {
    "empty": b"",
    "one byte": b"\x01",
    "an unsigned 16-bit marker alone": b"\xcd",
    "text": b"hello, this is not a record at all, but it is long enough for one",
    "prefix cut": GOOD[:30],
    "no body": GOOD[:42],
    "body cut": GOOD[:-1],
    "body of another shape": packed(last=START, epoch=START, body={"a": 1}),
    "body too short": packed(last=START, epoch=START, body=NEW_RECORD_BODY[:5]),
    "ring of another type": packed(last=START, epoch=START, body=[*NEW_RECORD_BODY[:-1], "ring"]),
}


@pytest.mark.parametrize("operation", [*WRITERS, "peek"])
@pytest.mark.parametrize("raw", list(CORRUPT.values()), ids=list(CORRUPT))
def test_corrupt(rig: Rig, operation: str, raw: bytes) -> None:
    """Never a crash of the script, never a guess: StoreCorrupt (text reads as a schema of its own, which is refused as well)."""
    key = rig.key()
    if operation == "peek" and raw in (b"", CORRUPT["ring of another type"]):
        return  # nothing stored is no record, and a reader has no use for the ring
    rig.put(key, raw)
    refused(rig, operation, key, SchemaTooNew if raw[:1] > b"\x01" and len(raw) > 41 else StoreCorrupt)


@pytest.mark.parametrize("operation", [*WRITERS, "peek"])
def test_a_newer_schema(rig: Rig, operation: str) -> None:
    """Refused, never taken for missing: a rolling upgrade loses no conversation. Its body may be anything."""
    key = rig.key()
    rig.put(key, b"\x02" + GOOD[1:42] + msgspec.msgpack.encode({"of": "the future"}))
    refused(rig, operation, key, SchemaTooNew)


@pytest.mark.parametrize(
    ("operation", "args"), [("confirm", ()), ("renew", ()), ("rebind", ("lost",)), ("release", ()), ("abort", ())]
)
def test_the_index_of_the_wrong_type(rig: Rig, operation: str, args: tuple[str, ...]) -> None:
    """The record is written last, so a script that fails at the index leaves it alone; at most a tick is gone (a gap)."""
    key = rig.key()
    fence = rig.claim(key)
    rig.client.delete(rig.bound_name(key))
    rig.client.set(rig.bound_name(key), "x")
    before = rig.raw(key)
    with pytest.raises(StoreCorrupt):
        rig.do(operation, key, fence, *args)
    assert rig.raw(key) == before


def test_a_resolve_with_the_index_of_the_wrong_type(rig: Rig) -> None:
    """The tick is gone, nobody was told it, and the next one is larger: a gap, never a repeat."""
    key = rig.key()
    rig.client.set(rig.bound_name(key), "x")
    with pytest.raises(StoreCorrupt):
        rig.resolve(key, bind=True)
    assert rig.raw(key) is None
    assert rig.clock(key) == START
    rig.client.delete(rig.bound_name(key))
    assert rig.claim(key) > START


@pytest.mark.parametrize("operation", ["suspend", "forget", "touch", "rewrite", "confirm", "renew", "release", "abort", "rebind"])
def test_no_record(rig: Rig, operation: str) -> None:
    """Calls about a key that is not there write nothing at all."""
    key = rig.key()
    try:
        call(rig, operation, key)
    except LimpetError as error:
        assert error.code == "stale_fence"  # noqa: PT017  (some raise, some answer; none writes)
    assert rig.snapshot() == {}


def test_out_of_memory(rig: Rig) -> None:
    """A server that is out of memory refuses at the first write, so nothing is half done."""
    key = rig.key()
    fence = rig.claim(key)
    before = rig.snapshot()
    limit = rig.client.config_get("maxmemory")["maxmemory"]
    rig.client.config_set("maxmemory", 1)
    try:
        for operation, args in (("advance", ("new",)), ("confirm", (fence,)), ("rebind", (fence, "lost")), ("renew", (fence,))):
            with pytest.raises(Exception, match="maxmemory"):
                rig.do(operation, key, *args)
        with pytest.raises(Exception, match="maxmemory"):
            rig.resolve(rig.key("another"), bind=True)
    finally:
        rig.client.config_set("maxmemory", limit)
    assert rig.snapshot() == before
    rig.do("confirm", key, fence)


@pytest.mark.parametrize("operation", ["release", "abort", "confirm"])
def test_out_of_memory_after_the_first_write(rig: Rig, operation: str) -> None:
    """A script that begins with taking a member out has written, so the server lets it finish: whole again."""
    key = rig.key()
    fence = rig.claim(key)
    limit = rig.client.config_get("maxmemory")["maxmemory"]
    rig.client.config_set("maxmemory", 1)
    try:
        rig.do(operation, key, fence, **({"worker": "w2"} if operation == "confirm" else {}))
    finally:
        rig.client.config_set("maxmemory", limit)
    assert rig.record(key).state == (2 if operation == "confirm" else 0)
    assert set(rig.bound(key)) == ({rig.member(key, "w2")} if operation == "confirm" else set())
