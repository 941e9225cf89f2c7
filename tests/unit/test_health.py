"""What is concluded from INFO and CONFIG, without a server: each level, and that the sentence says what to do and where."""

from __future__ import annotations

import pytest

from limpet.errors import StoreUnavailable
from limpet.executors.durable import Promise
from limpet.health import Check, Health, parse_info
from limpet.health.asking import reason
from limpet.health.clocks import sampled
from limpet.health.model import Infos, among, number
from limpet.health.replication import durability, replicas
from limpet.health.rights import _right
from limpet.health.run import _worst
from limpet.health.server import eviction, memory, persistence, version
from limpet.keys import keyspace

BEHIND = {"slave0": "ip=1,port=2,state=wait_bgsave,offset=0,lag=0"}
FOLLOWED = {"connected_slaves": "1", "slave0": "ip=1,port=2,state=online,offset=9,lag=0"}
GUARDED = FOLLOWED | {"min_slaves_good_slaves": "1"}


def told(check: Check, level: str, *words: str) -> None:
    assert check.level == level, check
    assert check.message.endswith(".")
    for word in words:
        assert word in check.message


@pytest.mark.parametrize(
    ("infos", "level", "words"),
    [
        ({"": {"maxmemory_policy": "noeviction"}}, "ok", ("noeviction",)),
        ({"": {"maxmemory_policy": "allkeys-lfu"}}, "fail", ("allkeys-lfu", "set it to noeviction")),
        ({"a:1": {"maxmemory_policy": "noeviction"}, "b:2": {"maxmemory_policy": "allkeys-lru"}}, "fail", ("(on b:2)",)),
        ({"": {"maxmemory_policy": "volatile-ttl", "maxmemory": "0"}}, "ok", ("volatile-ttl",)),
        ({"": {"maxmemory_policy": "volatile-ttl", "maxmemory": "5"}}, "warn", ("more memory",)),
        ({"": {}}, "warn", ("does not tell",)),
    ],
)
def test_eviction(infos: Infos, level: str, words: tuple[str, ...]) -> None:
    """Only ``allkeys-*`` may drop a clock; of a managed store that hides its policy nothing is claimed."""
    told(eviction(infos), level, *words)


@pytest.mark.parametrize(
    ("infos", "thorough", "level"),
    [
        ({"": {"redis_version": "6.2.0"}}, True, "ok"),
        ({"": {"redis_version": "6.0.16"}}, True, "fail"),
        ({"": {"redis_version": "6.0.16"}}, False, "warn"),
        ({"": {"redis_version": "7.2.4", "valkey_version": "7.2.5"}}, True, "ok"),
        ({"": {"redis_version": "7.2.4", "valkey_version": "9.0.0"}}, True, "ok"),
        ({"a": {"redis_version": "7.0.1"}, "b": {"redis_version": "7.2.1"}}, True, "warn"),
        ({"": {"redis_version": "unstable"}}, True, "fail"),
    ],
)
def test_version(infos: Infos, thorough: bool, level: str) -> None:
    """Redis from 6.2 on, Valkey from 7.2 on; a mixture is pointed out."""
    told(version(infos, thorough), level)


@pytest.mark.parametrize(
    ("info", "saves", "thorough", "level", "word"),
    [
        ({"aof_enabled": "1"}, None, True, "ok", "is on"),
        ({"aof_enabled": "1", "aof_last_write_status": "err"}, None, True, "warn", "disk"),
        ({"aof_enabled": "0"}, {"": "3600 1"}, True, "warn", "snapshot"),
        ({"aof_enabled": "0"}, {"": ""}, True, "warn", "loses all"),
        ({"aof_enabled": "0"}, None, True, "warn", "snapshot"),
        ({"aof_enabled": "0"} | FOLLOWED, None, True, "fail", "old snapshot"),
        ({"aof_enabled": "0"} | FOLLOWED, None, False, "warn", "old snapshot"),
        ({"aof_enabled": "1"} | FOLLOWED, None, True, "ok", "is on"),
    ],
)
def test_persistence(info: dict[str, str], saves: dict[str, str] | None, thorough: bool, level: str, word: str) -> None:
    """A primary that may come back with an old snapshot and hand it to its replicas is the worst."""
    told(persistence({"": info}, thorough, saves), level, word)


@pytest.mark.parametrize(
    ("infos", "level", "word"),
    [
        ({"": {}}, "ok", "No replicas"),
        ({"": FOLLOWED}, "warn", "min-replicas-to-write"),
        ({"": GUARDED}, "ok", "1 replica per primary"),
        ({"a": GUARDED, "b": {"connected_slaves": "0"}}, "warn", "(on b)"),
        ({"": GUARDED | BEHIND}, "warn", "still copying"),
    ],
)
def test_replicas(infos: Infos, level: str, word: str) -> None:
    """Who takes over, whether it is in step, and whether a primary that was cut off stops."""
    told(replicas(infos), level, word)


@pytest.mark.parametrize(
    ("info", "promise", "chosen", "fsyncs", "level", "word"),
    [
        ({}, None, None, None, "ok", "no replicas"),
        ({}, None, "none", None, "ok", "is none"),
        ({"connected_slaves": "1"}, Promise("replica", 1), None, None, "ok", "1 replica"),
        ({"connected_slaves": "1"}, Promise("replica", 2), None, None, "warn", "add one"),
        ({"aof_enabled": "1"}, Promise("aof", 0), "aof", {"": "always"}, "ok", "fsync"),
        ({"aof_enabled": "1"}, Promise("aof", 0), "aof", {"": "everysec"}, "warn", "appendfsync always"),
        ({"aof_enabled": "1"}, Promise("aof", 0), "aof", None, "warn", "may not be seen"),
        ({"aof_enabled": "0"}, Promise("aof", 0), "aof", {"": "always"}, "warn", "appendonly yes"),
    ],
)
def test_durability(
    info: dict[str, str], promise: Promise | None, chosen: str | None, fsyncs: dict[str, str] | None, level: str, word: str
) -> None:
    """What decisions wait for against what the store has; what could not be seen is said."""
    told(durability({"": info}, promise, chosen, fsyncs), level, word)


def test_memory() -> None:
    """Near its limit; far from it; without one."""
    told(
        memory({"a": {"maxmemory": "100", "used_memory": "95"}, "b": {"maxmemory": "100", "used_memory": "1"}}), "warn", "(on a)"
    )
    told(memory({"": {"maxmemory": "100", "used_memory": "50"}}), "ok", "50%")
    told(memory({"": {"maxmemory": "0", "used_memory": "50"}}), "ok", "No maxmemory")


def test_info_is_read_as_it_comes() -> None:
    """Lines without a colon, values with one, and bytes that are no text."""
    info = parse_info(b"# Server\r\nredis_version:7.0\r\nx:a:b\r\nbad\xff:1\r\n\r\n")
    assert info["x"] == "a:b"
    assert (number({"n": "7"}, "n"), number({"n": "?"}, "n"), number({}, "n")) == (7, 0, 0)


def test_where_it_is() -> None:
    """Named where there are several primaries."""
    assert (among([""]), among(["b", "a"]), among([])) == ("", " (on a, b)", "")


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("NOPERM this user has no permissions to run the 'zadd' command or its subcommand", "+zadd"),
        ("NOPERM User limpet has no permissions to run the 'zadd' command", "+zadd"),
        ("NOPERM this user has no permissions to access one of the keys used as arguments", "~limpet:*"),
        ("NOPERM No permissions to access a key", "~limpet:*"),
        ("NOPERM this user has no permissions to access one of the channels used as arguments", "&limpet:*"),
        ("NOPERM No permissions to access a channel", "&limpet:*"),
    ],
)
def test_missing_rights_are_named(answer: str, right: str) -> None:
    """In the words of ACL SETUSER, whatever the server's words are (6.2, 7 and later)."""
    assert _right(("ZADD", "key"), answer) == right


def test_the_servers_own_words() -> None:
    """Behind our sentence, however often it was wrapped."""
    inner = StoreUnavailable("ours")
    inner.__cause__ = ValueError("NOPERM theirs")
    outer = StoreUnavailable("outer")
    outer.__cause__ = inner
    assert reason(outer) == "NOPERM theirs"
    assert reason(StoreUnavailable("ours")) == "ours"


def test_one_check_of_a_name() -> None:
    """The worst counts, and of two that are as bad both are told."""
    found = [
        Check("rights", "ok", "a."),
        Check("rights", "fail", "b."),
        Check("rights", "fail", "c."),
        Check("rights", "warn", "d."),
    ]
    assert _worst(found) == [Check("rights", "fail", "b. c.")]
    assert Health.of(found).ok is False


@pytest.mark.parametrize(("partitions", "many"), [(1, 1), (7, 7), (16, 16), (1024, 16), (1000, 16), (16_384, 16)])
def test_the_partitions_looked_at(partitions: int, many: int) -> None:
    """Few, spread over all, never one that does not exist."""
    found = sampled(keyspace("default", partitions))
    assert len(found) == len(set(found)) <= many
    assert len(found) >= min(partitions, 15)
    assert max(found) < partitions
