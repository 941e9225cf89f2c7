"""config_open: the first to come writes, everyone reads the same."""

from __future__ import annotations

import pytest
import redis

from limpet.calls import Call
from limpet.errors import StoreCorrupt
from limpet.executors.simple import run
from limpet.scripts import script

from .rig import Rig


def opened(rig: Rig, *, schema: int = 1, partitions: int = 1024, granularity_ms: int = 1000) -> list[bytes]:
    keys = (rig.commands.keyspace.config,)
    return run(rig.client, Call(script("config_open"), keys, (schema, partitions, granularity_ms), list))


def test_first_writes(rig: Rig) -> None:
    """Where nothing is stored, the caller's values become the namespace's, without a TTL."""
    assert opened(rig) == [b"1", b"1024", b"1000"]
    name = rig.commands.keyspace.config
    assert rig.client.hgetall(name) == {b"schema": b"1", b"partitions": b"1024", b"touch_granularity_ms": b"1000"}
    assert rig.client.ttl(name) == -1


def test_later_ones_learn(rig: Rig) -> None:
    """What is stored wins over what a later replica is set to, and stays."""
    opened(rig)
    before = rig.snapshot()
    assert opened(rig, schema=2, partitions=7, granularity_ms=5) == [b"1", b"1024", b"1000"]
    assert rig.snapshot() == before


@pytest.mark.parametrize("missing", ["schema", "partitions", "touch_granularity_ms"])
def test_only_what_is_missing_is_written(rig: Rig, missing: str) -> None:
    """One lost field is filled in; the others stay as they were."""
    opened(rig, schema=1, partitions=16, granularity_ms=500)
    rig.client.hdel(rig.commands.keyspace.config, missing)
    given = {"schema": 9, "partitions": 99, "touch_granularity_ms": 999}
    answered = opened(rig, schema=9, partitions=99, granularity_ms=999)
    kept = {"schema": 1, "partitions": 16, "touch_granularity_ms": 500} | {missing: given[missing]}
    assert answered == [str(value).encode() for value in kept.values()]


def test_wrong_type(rig: Rig) -> None:
    """A key of ours that somebody made a string is corrupt, and is left alone."""
    rig.client.set(rig.commands.keyspace.config, "x")
    with pytest.raises(StoreCorrupt):
        opened(rig)
    assert rig.client.get(rig.commands.keyspace.config) == b"x"


def test_after_script_flush(rig: Rig) -> None:
    """A server that lost its scripts gets them again (NOSCRIPT)."""
    opened(rig)
    rig.client.script_flush()
    with pytest.raises(redis.exceptions.NoScriptError):
        rig.client.evalsha(script("config_open").sha, 0)
    assert opened(rig)[0] == b"1"
