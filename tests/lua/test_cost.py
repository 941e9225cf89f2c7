"""What the scripts cost: the calls that they make, held against the Complexity of their headers on a real server."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from limpet.bind import Bind
from limpet.calls import Call
from limpet.scripts import script

from .header import read_header
from .rig import GRANULARITY, HOUR, SECOND, START, Rig


def resolve_worst(rig: Rig) -> Call[Any]:
    key = rig.key()
    rig.bind(key)
    return rig.call("resolve", key, bind=Bind(worker="w2", commit=True), seen_epoch=START + SECOND, request_id="x", now_us=0)


def advance_worst(rig: Rig) -> Call[Any]:
    key = rig.key()
    rig.bind(key)
    return rig.call("advance", key, "new", expected_epoch=START + SECOND, request_id="x", now_us=0)


def forget_worst(rig: Rig) -> Call[Any]:
    key = rig.key()
    rig.bind(key)
    return rig.call("forget", key, expected_epoch=START + SECOND, request_id="x", now_us=0)


def held(operation: str, *args: Any, **kwargs: Any) -> Callable[[Rig], Call[Any]]:
    def make(rig: Rig) -> Call[Any]:
        key = rig.key()
        fence = rig.claim(key, bind=Bind(worker="w1"))
        return rig.call(operation, key, fence, *args, request_id="x", now_us=0, **kwargs)

    return make


def resolved(operation: str, *args: Any, **kwargs: Any) -> Callable[[Rig], Call[Any]]:
    def make(rig: Rig) -> Call[Any]:
        key = rig.key()
        rig.bind(key)
        rig.passes(9 * SECOND)
        return rig.call(operation, key, *args, **({"now_us": 0} | kwargs))

    return make


def prune_two(rig: Rig) -> Call[Any]:
    key = rig.key()
    rig.bind(key)
    bound = rig.bound_name(key)
    names = (rig.name(key), rig.name(key))
    head = (0).to_bytes(8, "big") + GRANULARITY.to_bytes(8, "big")
    return Call(script("binding_prune"), (bound, *names), (head, rig.member(key, "w1"), rig.member(key, "old")), int)


def config_first(rig: Rig) -> Call[Any]:
    return Call(script("config_open"), (rig.commands.keyspace.config,), (1, 4, 1000), list)


def config_raise(rig: Rig) -> Call[Any]:
    rig.sent(config_first(rig))
    return Call(script("config_raise"), (rig.commands.keyspace.config,), (2,), int)


def rewrite(rig: Rig) -> Call[Any]:
    key = rig.key()
    fence = rig.bind(key)
    return rig.commands.rewrite(key, START, fence)


def maintenance(name: str, tail: Any) -> Callable[[Rig], Call[Any]]:
    def make(rig: Rig) -> Call[Any]:
        key = rig.key()
        rig.bind(key)
        head = (0).to_bytes(8, "big") + GRANULARITY.to_bytes(8, "big")
        if name == "binding_census":
            return Call(script(name), (rig.bound_name(key),), (head + (0).to_bytes(8, "big"),), bytes)
        packed = msgspec.msgpack.encode(tail)
        return Call(script(name), (rig.bound_name(key), rig.name(key)), (head + packed, rig.member(key, "w1")), list)

    return make


def worker(method: str, *args: Any, known: bool = True) -> Callable[[Rig], Call[Any]]:
    def make(rig: Rig) -> Call[Any]:
        if known:
            rig.sent(rig.commands.register("w1", "pool", "http://w1", 1.0, "i1", {}, 15_000))
        found: Call[Any] = getattr(rig.commands, method)(*args)
        return found

    return make


WORST: dict[str, tuple[Callable[[Rig], Call[Any]], str]] = {
    "conversation_resolve": (resolve_worst, "TIME GET GET GET SET ZREM ZADD SET PUBLISH PUBLISH"),
    "conversation_advance": (advance_worst, "TIME GET GET GET SET ZREM SET PUBLISH"),
    "conversation_forget": (forget_worst, "TIME GET GET ZREM SET PUBLISH"),
    "conversation_suspend": (resolved("suspend"), "TIME GET SET PUBLISH"),
    "conversation_peek": (resolved("peek"), "TIME GET"),
    "conversation_touch": (resolved("touch", START, age_us=0, ttl_ms=31_536_000_000), "TIME GET ZADD SET"),
    "binding_confirm": (held("confirm", worker="w2"), "TIME GET ZREM ZADD SET PUBLISH"),
    "binding_abort": (held("abort"), "TIME GET ZREM SET PUBLISH"),
    "binding_release": (held("release"), "TIME GET ZREM SET PUBLISH"),
    "binding_renew": (held("renew"), "TIME GET ZADD SET"),
    "binding_rebind": (held("rebind", "lost", worker="w2"), "TIME GET GET SET ZREM ZADD SET PUBLISH"),
    "binding_prune": (prune_two, "TIME GET ZADD GET ZREM"),
    "binding_drain": (maintenance("binding_drain", ("channel", "w1", "drained")), "TIME GET ZREM SET PUBLISH"),
    "binding_census": (maintenance("binding_census", None), "TIME ZRANGEBYSCORE"),
    "worker_register": (
        worker("register", "w1", "pool", "http://w1", 1.0, "i1", {}, 15_000, known=False),
        "TIME HGET HLEN HSET PUBLISH",
    ),
    "worker_heartbeat": (worker("heartbeat", "w1"), "TIME HGET HSET"),
    "worker_mark": (worker("mark", "w1", "remove"), "TIME HGET HDEL PUBLISH"),
    "worker_list": (worker("workers"), "TIME HGETALL"),
    "response_link": (worker("link_response", "resp_1", "key", known=False), "SET"),
    "response_find": (worker("find_response", "resp_1", known=False), "GET"),
    "config_open": (config_first, "HMGET HSET HSET HSET"),
    "config_raise": (config_raise, "HGET HSET"),
    "record_rewrite": (rewrite, "GET SET"),
}


@pytest.fixture
def today(rig: Rig) -> Rig:
    """The rig at the server's own time, since the worst call of a script reads it."""
    seconds, micros = rig.client.time()  # type: ignore[misc]
    rig.now = (seconds - 1_767_225_600) * SECOND + micros
    return rig


@pytest.mark.parametrize("name", list(WORST))
def test_the_worst_is_what_the_header_says(today: Rig, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The most calls that one script can make, in this very order: the clock before the record, the record before the news."""
    make, expected = WORST[name]
    monkeypatch.setitem(globals(), "START", today.now)
    if name == "conversation_touch":
        make = resolved("touch", today.now, age_us=0, ttl_ms=31_536_000_000)
    call = make(today)
    assert [line.split(" ")[0] for line in today.calls_of(call)] == expected.split(" ")
    stated = read_header(name).complexity
    made = len(expected.split(" "))
    if name == "binding_prune":
        assert "1 + 2 M redis.calls" in stated
        assert made == 1 + 2 * 2
    elif name == "binding_drain":
        assert "1 + 4 M redis.calls" in stated
        assert made == 1 + 4
    else:
        counts = re.findall(r"(\d+) redis\.calls?|most (\d+)|with bind: (\d+)|(\d+) where", stated)
        assert max(int(n) for found in counts for n in found if n) == made


@pytest.mark.parametrize(
    ("after", "bind", "expected"),
    [
        pytest.param(0, None, "TIME GET", id="read"),
        pytest.param(0, True, "TIME GET", id="read, bound"),
        pytest.param(2 * SECOND, None, "TIME GET SET", id="touch"),
        pytest.param(2 * SECOND, True, "TIME GET ZADD SET", id="touch, bound"),
    ],
)
def test_what_a_turn_costs(today: Rig, after: int, bind: bool | None, expected: str) -> None:
    """A busy conversation is read; one that pauses is written once, and its binding slides."""
    key = today.key()
    if bind:
        today.bind(key)
    else:
        today.resolve(key)
    if after:
        # Last activity lies that much before the server's own time.
        today.client.delete(today.name(key), today.clock_name(key))
        today.now -= after
        (today.bind if bind else today.resolve)(key)
    made = today.calls_of(today.call("resolve", key, bind=bind, now_us=0))
    assert [line.split(" ")[0] for line in made] == expected.split(" ")


def test_a_first_turn_with_bind(today: Rig) -> None:
    """Six calls, of which three write: the clock, the index, the record."""
    made = today.calls_of(today.call("resolve", today.key(), bind=True, now_us=0))
    assert [line.split(" ")[0] for line in made] == ["TIME", "GET", "GET", "SET", "ZADD", "SET"]


@pytest.mark.parametrize("name", ["conversation_resolve", "conversation_advance", "binding_rebind"])
def test_the_clock_is_written_first(today: Rig, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script cut short leaves a gap and never a repeat: the clock's write comes first, the record's after the index."""
    monkeypatch.setitem(globals(), "START", today.now)
    made = today.calls_of(WORST[name][0](today))
    key = today.key()
    writes = [line for line in made if line.split(" ")[0] in ("SET", "ZADD", "ZREM", "PUBLISH")]
    assert writes[0] == "SET " + today.clock_name(key)
    record = writes.index("SET " + today.name(key))
    assert all(line.startswith("PUBLISH") for line in writes[record + 1 :])


def test_a_full_ring_stays_small(rig: Rig) -> None:
    """The largest record there can be: eight ids, a worker and a holder of 256 bytes; a reply can tell 65,535."""
    key = rig.key()
    long = "x" * 256
    rig.resolve(key)
    for number in range(8):
        rig.passes(HOUR)
        fence = rig.claim(key, bind=Bind(worker=long, holder=long), request_id=f"{number:0256}")
        rig.do("confirm", key, fence, worker=long, incarnation=long, request_id=f"c{number:0255}")
        rig.do("rebind", key, fence, "y" * 64, worker=long, holder=long, incarnation=long, request_id=f"r{number:0255}")
    raw = rig.raw(key)
    assert raw is not None
    assert len(rig.ring(key)) == 8
    assert len(raw) < 6000
    assert rig.reply("resolve", key, bind=True, request_id="look")[1] == rig.raw(key)
