"""The scripts of the worker registry: register, heartbeat, mark, list."""

from __future__ import annotations

from typing import Any

import pytest

from limpet.errors import OtherIncarnation, QuotaExceeded, StoreCorrupt, UnknownWorker
from limpet.executors.simple import run
from limpet.workers import MAX_WORKERS

from .rig import SECOND, START, Rig


def register(rig: Rig, name: str = "w1", incarnation: str = "i1", **changes: Any) -> Any:
    given = {"pool": "p", "address": "http://w1", "capacity": 1.5, "labels": {"gpu": "h100"}, "ttl_ms": 15_000} | changes
    return run(rig.client, rig.commands.register(name, incarnation=incarnation, now_us=rig.now, **given))


def heartbeat(rig: Rig, name: str = "w1", incarnation: str = "") -> Any:
    return run(rig.client, rig.commands.heartbeat(name, incarnation, now_us=rig.now))


def mark(rig: Rig, verb: Any, name: str = "w1") -> Any:
    return run(rig.client, rig.commands.mark(name, verb, now_us=rig.now))


def test_it_comes(rig: Rig) -> None:
    """As it is registered; everybody is told."""
    events = rig.listen()
    found = register(rig)
    assert (found.worker, found.pool, found.address, found.capacity, found.incarnation) == ("w1", "p", "http://w1", 1.5, "i1")
    assert (found.labels, found.ttl_ms, found.state, found.heartbeat_age_ms) == ({"gpu": "h100"}, 15_000, "live", 0)
    assert events() == [["worker", "work", "", 0, START, "w1", "registered"]]
    assert rig.client.ttl(rig.commands.keyspace.workers) == -1


@pytest.mark.parametrize("labels", [{}, {"1": "2"}, {"a": ""}])
@pytest.mark.parametrize("pool", ["", "p", "\N{SNOWMAN}"])
@pytest.mark.parametrize("capacity", [0.25, 1, 1e6])
def test_whatever_lua_makes_of_it(rig: Rig, labels: dict[str, str], pool: str, capacity: float) -> None:
    """Empty maps, maps that look like arrays, whole floats: back as they went in, through every script."""
    name = "18446744073709551615"
    register(rig, name, labels=labels, pool=pool, capacity=capacity)
    for found in (
        heartbeat(rig, name),
        mark(rig, "drain", name),
        run(rig.client, rig.commands.workers(now_us=rig.now)).workers[name],
    ):
        assert (found.worker, found.labels, found.pool, found.capacity) == (name, labels, pool, capacity)


def test_the_same_incarnation_again(rig: Rig) -> None:
    """A changed address, and a heartbeat; still draining, since when it came, and no news."""
    first = register(rig)
    mark(rig, "drain")
    events = rig.listen()
    rig.passes(9 * SECOND)
    again = register(rig, address="http://w1:2")
    assert (again.address, again.state, again.since_ms, again.heartbeat_age_ms) == ("http://w1:2", "draining", first.since_ms, 0)
    assert events() == []


def test_another_incarnation(rig: Rig) -> None:
    """Another worker: what was said of the old one is not said of it, and the old one's heartbeats are refused."""
    register(rig)
    mark(rig, "drain")
    rig.passes(SECOND)
    found = register(rig, incarnation="i2")
    assert found.state == "live"
    assert found.since_ms == register(rig, "w2").since_ms
    with pytest.raises(OtherIncarnation):
        heartbeat(rig, incarnation="i1")
    assert heartbeat(rig, incarnation="i2").state == "live"


@pytest.mark.parametrize("past", [0, 1])
def test_gone_to_the_microsecond(rig: Rig, past: int) -> None:
    """A heartbeat as old as its ttl still counts; one microsecond later the worker is gone. A static one never is."""
    register(rig)
    register(rig, "static", ttl_ms=0)
    rig.passes(15 * SECOND + past)
    found = run(rig.client, rig.commands.workers(now_us=rig.now)).workers
    assert (found["w1"].state, found["static"].state) == ("gone" if past else "live", "live")
    assert heartbeat(rig).state == "live"


def test_marks(rig: Rig) -> None:
    """Drained, drained again, no longer, taken out; each is told."""
    register(rig)
    events = rig.listen()
    assert [mark(rig, verb).state for verb in ("drain", "drain", "undrain")] == ["draining", "draining", "live"]
    assert mark(rig, "remove").worker == "w1"
    assert [event[-1] for event in events()] == ["drain", "drain", "undrain", "remove"]
    assert run(rig.client, rig.commands.workers()).workers == {}


def test_unknown(rig: Rig) -> None:
    """Heartbeats and marks do not register anybody."""
    for call in (lambda: heartbeat(rig), lambda: mark(rig, "drain"), lambda: mark(rig, "remove")):
        with pytest.raises(UnknownWorker):
            call()
    assert rig.snapshot() == {}


def test_too_many(rig: Rig) -> None:
    """One more than the most is refused; those that are there may still change."""
    name = rig.commands.keyspace.workers
    register(rig)
    state = rig.client.hget(name, "w1")
    rig.client.hset(name, mapping={f"x{number}": state for number in range(MAX_WORKERS - 1)})  # type: ignore[dict-item]
    with pytest.raises(QuotaExceeded):
        register(rig, "w2")
    assert register(rig, address="http://new").address == "http://new"
    assert rig.client.hlen(name) == MAX_WORKERS


def test_wrong_type(rig: Rig) -> None:
    """StoreCorrupt."""
    rig.client.set(rig.commands.keyspace.workers, "x")
    for call in (lambda: register(rig), lambda: heartbeat(rig), lambda: mark(rig, "drain")):
        with pytest.raises(StoreCorrupt):
            call()
    with pytest.raises(StoreCorrupt):
        run(rig.client, rig.commands.workers())
