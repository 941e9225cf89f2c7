"""config_raise: upwards only, and only where there is something to raise."""

from __future__ import annotations

import pytest

from limpet.calls import Call
from limpet.errors import StoreCorrupt
from limpet.executors.simple import run
from limpet.scripts import script

from .rig import Rig


def raised(rig: Rig, schema: int) -> int | None:
    return run(rig.client, Call(script("config_raise"), (rig.commands.keyspace.config,), (schema,), lambda reply: reply))


def config(rig: Rig, **fields: int) -> str:
    name = rig.commands.keyspace.config
    rig.client.hset(name, mapping=fields)
    return name


def test_upwards(rig: Rig) -> None:
    """The schema alone changes."""
    name = config(rig, schema=1, partitions=8, touch_granularity_ms=1000)
    assert raised(rig, 2) == 2
    assert rig.client.hgetall(name) == {b"schema": b"2", b"partitions": b"8", b"touch_granularity_ms": b"1000"}


def test_never_downwards(rig: Rig) -> None:
    """Two who raise it at once, to different schemas: the larger stays, whoever comes last."""
    name = config(rig, schema=3)
    assert raised(rig, 2) == 3
    assert rig.client.hget(name, "schema") == b"3"


def test_again(rig: Rig) -> None:
    """Repeating it writes, so that a WAIT covers it."""
    config(rig, schema=2)
    before = rig.client.info("persistence")["rdb_changes_since_last_save"]
    assert raised(rig, 2) == 2
    assert rig.client.info("persistence")["rdb_changes_since_last_save"] == before + 1


def test_a_namespace_that_was_never_set_up(rig: Rig) -> None:
    """Nothing to raise, nothing written."""
    assert raised(rig, 2) is None
    assert rig.snapshot() == {}


def test_wrong_type(rig: Rig) -> None:
    """A key of ours that somebody made a string."""
    rig.client.set(rig.commands.keyspace.config, "x")
    with pytest.raises(StoreCorrupt):
        raised(rig, 2)
