"""The checks on real stores that are sick: over all primaries, within the deadline, without rights that nobody should give."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from limpet import Limpet
from limpet.health import Check, Health
from tests.cluster.rig import Cluster, Sentinels, running
from tests.cluster.rig import Server as Node
from tests.support.servers import Server, wait_until

ACL = Path(__file__).resolve().parents[2] / "deploy" / "redis" / "limpet.acl"


async def examined(url: str, *, thorough: bool = True, **settings: Any) -> Health:
    """The store's health as a fresh client sees it."""
    client = Limpet.connect(url, **{"deadline_ms": 2000, **settings})
    try:
        return await client.health(thorough=thorough)
    finally:
        await client.close()


def found(health: Health, name: str) -> Check:
    """The one check of that name."""
    (check,) = [check for check in health.checks if check.name == name]
    return check


def failing(health: Health) -> set[str]:
    return {check.name for check in health.checks if check.level == "fail"}


# -- rights ------------------------------------------------------------------------------------------------------------


def least(server: Server, *changes: str) -> str:
    """A user with the rights of the file but for the changes; its URL."""
    line = next(line for line in ACL.read_text().splitlines() if line.startswith("user limpet"))
    server.cli("ACL", "SETUSER", *line.split()[1:], *changes)
    return f"unix://limpet:change-me-before-use@{server.socket}"


@pytest.mark.parametrize("thorough", [False, True])
async def test_the_least_rights_are_enough(each_server: Server, thorough: bool) -> None:
    """No check needs a right that the ACL file does not give; what could not be seen without CONFIG is said, not failed."""
    health = await examined(least(each_server), thorough=thorough)
    assert health.ok
    assert found(health, "rights").level == "ok"


RIGHTS = [
    *("get", "set", "hmget", "hset", "hget", "hlen", "hdel", "hgetall", "zadd", "zrem", "zrangebyscore", "publish"),
    *("subscribe", "time", "script|load", "script|exists", "evalsha", "ping", "info"),
]


@pytest.mark.parametrize("right", RIGHTS)
async def test_a_missing_right_is_named(each_server: Server, right: str) -> None:
    """Doctor names the command, whether or not the client can even open."""
    if "|" in right and each_server.cli("INFO", "server").startswith(b"# Server\r\nredis_version:6"):
        right = right.partition("|")[0]
    health = await examined(least(each_server, f"-{right}"))
    assert "rights" in failing(health) | ({"rights"} if right == "evalsha" and "scripts" in failing(health) else set())
    said = " ".join(check.message for check in health.checks if check.level == "fail").lower()
    assert right.replace("|", " ") in said.replace("|", " ")


@pytest.mark.parametrize(("changes", "right"), [(("resetkeys", "~other:*"), "~limpet:*"), (("resetchannels",), "&limpet:*")])
async def test_missing_patterns_are_named(each_server: Server, changes: tuple[str, ...], right: str) -> None:
    """Keys and channels."""
    health = await examined(least(each_server, *changes))
    assert right in found(health, "rights").message
    assert not health.ok


@pytest.mark.parametrize("changes", [("-zadd",), ("-publish",), ("-script",), ("resetkeys", "~other:*"), ("resetchannels",)])
async def test_readiness_fails_without_rights(fresh_server: Callable[..., Server], changes: tuple[str, ...]) -> None:
    """Before a turn does."""
    assert "rights" in failing(await examined(least(fresh_server(), *changes), thorough=False))


async def test_nothing_is_written(fresh_server: Callable[..., Server]) -> None:
    """Doctor looks at a new store and leaves it as it was; readiness leaves no errors in the statistics."""
    server = fresh_server()
    assert (await examined(server.url)).ok
    assert server.cli("DBSIZE") == 0
    assert server.cli("GET", "limpet:{default}:config") is None
    async with Limpet.connect(server.url) as client:
        await client.resolve("k", session_id="s", bind=True)
        server.cli("CONFIG", "RESETSTAT")
        before = {key: server.cli("DUMP", key) for key in server.cli("KEYS", "*")}
        assert (await client.health()).ok
        assert (await client.health(thorough=True)).ok
        assert {key: server.cli("DUMP", key) for key in server.cli("KEYS", "*")} == before
        server.cli("CONFIG", "RESETSTAT")
        assert (await client.health()).ok
    assert b"errorstat" not in server.cli("INFO", "errorstats")


async def test_scripts_are_loaded_once(fresh_server: Callable[..., Server]) -> None:
    """Where SCRIPT EXISTS says yes nothing is loaded again; after a flush they are back before a turn needs them."""
    server = fresh_server()

    def calls() -> int:
        lines = server.cli("INFO", "commandstats").splitlines()  # 6.2 counts all of SCRIPT together
        return sum(int(re.findall(rb"calls=(\d+)", line)[0]) for line in lines if line.startswith(b"cmdstat_script"))

    async with Limpet.connect(server.url) as client:
        await client.health()
        before = calls()
        await client.health()
        assert calls() == before + 1  # EXISTS
        server.cli("SCRIPT", "FLUSH")
        assert found(await client.health(), "scripts").level == "ok"
        assert calls() > before + 3  # FLUSH, EXISTS, and what was missing


# -- the namespace -----------------------------------------------------------------------------------------------------


async def test_what_config_holds(store_url: str) -> None:
    """Another granularity holds, with a warning; another number of partitions or a newer schema is not ready."""
    async with Limpet.connect(store_url, partitions=64, touch_granularity_ms=500):
        pass
    assert found(await examined(store_url, partitions=64, touch_granularity_ms=500), "config").level == "ok"
    for thorough in (False, True):
        other = found(await examined(store_url, partitions=64, thorough=thorough), "config")
        assert (other.level, "LIMPET_TOUCH_GRANULARITY_MS=500" in other.message) == ("warn", True)
        wrong = await examined(store_url, partitions=32, touch_granularity_ms=500, thorough=thorough)
        assert "LIMPET_PARTITIONS=64" in found(wrong, "config").message
        assert failing(wrong) == {"config"}
    with redis.Redis.from_url(store_url) as store:
        store.hset("limpet:{default}:config", "schema", 2)
    for thorough in (False, True):
        newer = await examined(store_url, partitions=64, touch_granularity_ms=500, thorough=thorough)
        assert "upgrade this replica" in found(newer, "config").message
        assert failing(newer) == {"config"}
    with redis.Redis.from_url(store_url) as store:
        store.set("limpet:{broken}:config", "x")
    for thorough in (False, True):
        assert not (await examined(store_url, namespace="broken", thorough=thorough)).ok


async def test_the_store_was_emptied(store_url: str, monkeypatch: pytest.MonkeyPatch, wait_for: Callable[..., Any]) -> None:
    """A replica that runs sets its namespace up again, so that one that is set otherwise cannot do it in its place."""
    monkeypatch.setattr("limpet.plumbing.WATCH_EVERY_S", 0.02)
    async with Limpet.connect(store_url, partitions=64) as client:
        with redis.Redis.from_url(store_url) as store:
            store.flushall()

            async def back() -> bool:
                return bool(store.hget("limpet:{default}:config", "partitions") == b"64")

            await wait_for(back, 10, "the config to be written again")
        assert (await client.health()).ok


# -- writes ------------------------------------------------------------------------------------------------------------


async def test_writes_are_refused(fresh_server: Callable[..., Server]) -> None:
    """Out of memory, or too few replicas: doctor fails and says why, readiness warns (what only reads goes on)."""
    server = fresh_server("--appendonly", "yes")
    async with Limpet.connect(server.url) as client:
        for setting, value, back, word in (("maxmemory", 1, 0, "memory"), ("min-replicas-to-write", 1, 0, "min-replicas")):
            server.cli("CONFIG", "SET", setting, value)
            check = found(await client.health(thorough=True), "writes")
            assert (check.level, word in check.message) == ("fail", True)
            assert found(await client.health(), "writes").level == "warn"
            server.cli("CONFIG", "SET", setting, back)
        assert (await client.health(thorough=True)).ok


# -- silence -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thorough", [False, True])
async def test_a_store_that_hangs(fresh_server: Callable[..., Server], thorough: bool) -> None:
    """The verdict comes within the deadline, for a client that is open and for one that is not."""
    server = fresh_server()
    loop = asyncio.get_running_loop()
    async with Limpet.connect(server.url, deadline_ms=300) as client:
        server.pause()
        try:
            for examine in (lambda: client.health(thorough=thorough), lambda: examined(server.url, thorough=thorough)):
                began = loop.time()
                health = await examine()
                assert failing(health) == {"store"}
                assert loop.time() - began < 3.5
        finally:
            server.resume()


# -- topologies --------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    """Three primaries with a replica each."""
    with running(Cluster(tmp_path)) as made:
        yield made


async def test_a_cluster(cluster: Cluster) -> None:
    """Every primary is asked: one that is set up otherwise, one whose scripts are gone, one that hangs; and a URL that takes the
    cluster for a single server."""
    first, second, third = cluster.nodes[:3]
    health = await examined(cluster.url)
    assert failing(health) == {"persistence"}  # the rig's primaries save nothing
    assert "3 primaries" in found(health, "store").message
    assert "16384 slots" in found(health, "cluster").message
    assert all(f"127.0.0.1:{node.port}" in found(health, "persistence").message for node in (first, second, third))

    second.do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    second.do("SCRIPT", "FLUSH")
    third.do("ACL", "SETUSER", "default", "-zrem")
    bad = await examined(cluster.url)
    assert failing(bad) == {"persistence", "eviction", "rights"}
    assert found(bad, "eviction").message.count("127.0.0.1") == 1
    assert f"127.0.0.1:{second.port}" in found(bad, "eviction").message
    assert "+zrem" in found(bad, "rights").message
    second.do("CONFIG", "SET", "maxmemory-policy", "noeviction")
    third.do("ACL", "SETUSER", "default", "+zrem")

    alone = await examined(f"redis://127.0.0.1:{first.port}")
    assert "redis+cluster://" in found(alone, "cluster").message
    assert found(alone, "rights").level == "warn"  # what is on other nodes could not be tried

    async with Limpet.connect(cluster.url, deadline_ms=1000) as client:
        await client.resolve("k", session_id="s")
        cluster.nodes[5].pause()  # nobody to promote
        third.pause()
        try:
            ready = await client.health()
            assert ready.ok, ready
            assert found(ready, "store").level == "warn"
            assert f"127.0.0.1:{third.port}" in found(ready, "store").message
            assert "store" in failing(await client.health(thorough=True))
        finally:
            third.resume()
            cluster.nodes[5].resume()


async def test_sentinels(tmp_path: Path) -> None:
    """The primary that they name is the one that is looked at."""
    with running(Sentinels(tmp_path)) as made:
        health = await examined(made.url())
        assert failing(health) == {"persistence"}
        assert "2 replicas" in found(health, "durability").message
        for node in made.nodes:
            node.do("CONFIG", "SET", "appendonly", "yes")
        assert failing(await examined(made.url())) == set()


async def test_replicas_and_durability(tmp_path: Path) -> None:
    """What a primary with a replica is told, and once it is as it should be."""
    primary = Node(tmp_path / "p", "--appendonly", "yes").start()
    replica = Node(tmp_path / "r", "--replicaof", "127.0.0.1", primary.port).start()
    try:
        wait_until(lambda: primary.info("replication").get("slave0", {}).get("state") == "online", 15, "the replica")
        url = f"redis://127.0.0.1:{primary.port}"
        health = await examined(url)
        assert health.ok
        assert "min-replicas-to-write" in found(health, "replicas").message
        assert "1 replica" in found(health, "durability").message
        assert found(await examined(url, durable_replicas=2), "durability").level == "warn"
        fsync = found(await examined(url, durability="aof"), "durability")
        assert (fsync.level, "appendfsync always" in fsync.message) == ("warn", True)
        primary.do("CONFIG", "SET", "appendfsync", "always")
        assert found(await examined(url, durability="aof"), "durability").level == "ok"
        primary.do("CONFIG", "SET", "min-replicas-to-write", "1")
        assert {check.level for check in (await examined(url)).checks} == {"ok"}
        primary.do("CONFIG", "SET", "appendonly", "no")
        assert failing(await examined(url)) == {"persistence"}
        assert (await examined(url, thorough=False)).ok
    finally:
        replica.kill()
        primary.kill()
