"""Readiness and ``limpet doctor`` on stores that are fit and on stores that are not: each says what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from limpet import Limpet
from limpet.clock import SystemClock
from limpet.health import Health
from tests.cluster.rig import Server as Node
from tests.support.servers import Server


def levels(health: Health) -> dict[str, str]:
    """Check -> level."""
    return {check.name: check.level for check in health.checks}


async def examined(url: str, *, thorough: bool = True, **settings: object) -> Health:
    """The store's health as a fresh client sees it."""
    client = Limpet.connect(url, deadline_ms=2000, **settings)
    try:
        return await client.health(thorough=thorough)
    finally:
        await client.close()


async def test_a_fit_store(fresh_server: Callable[..., Server]) -> None:
    """Append-only file, no eviction: all is well."""
    health = await examined(fresh_server("--appendonly", "yes").url)
    assert health.ok
    assert set(levels(health).values()) == {"ok"}
    assert [check.name for check in health.checks] == [
        *("store", "config", "rights", "scripts", "eviction", "version", "persistence", "replicas"),
        *("durability", "memory", "clocks", "ticks"),
    ]


@pytest.mark.parametrize(
    ("arguments", "settings", "name", "level", "word"),
    [
        (("--maxmemory-policy", "allkeys-lru"), {}, "eviction", "fail", "volatile-lru"),
        (("--maxmemory", "50mb", "--maxmemory-policy", "volatile-lru"), {}, "eviction", "warn", "memory"),
        ((), {}, "persistence", "warn", "appendonly"),
        ((), {"durability": "replica"}, "durability", "warn", "add one"),
        ((), {"durability": "aof"}, "durability", "warn", "appendonly yes"),
        (("--appendonly", "yes"), {"durability": "aof"}, "durability", "warn", "appendfsync always"),
        ((), {"partitions": 8}, "ticks", "warn", "few"),
    ],
)
async def test_each_fault_says_what_to_do(
    fresh_server: Callable[..., Server], arguments: tuple[str, ...], settings: dict[str, object], name: str, level: str, word: str
) -> None:
    """One sentence, with the remedy in it."""
    health = await examined(fresh_server(*arguments).url, **settings)
    (check,) = [check for check in health.checks if check.name == name]
    assert check.level == level
    assert word in check.message
    assert health.ok == (level != "fail")


async def test_a_primary_that_may_wipe_its_replicas(tmp_path: Path) -> None:
    """No append-only file, but a replica: doctor fails, readiness warns; and min-replicas-to-write is missing."""
    primary = Node(tmp_path / "p").start()
    replica = Node(tmp_path / "r", "--replicaof", "127.0.0.1", primary.port).start()
    try:
        url = f"redis://127.0.0.1:{primary.port}"
        from tests.support.servers import wait_until

        wait_until(
            lambda: primary.info("replication").get("slave0", {}).get("state") == "online", 15, "the replica to be in sync"
        )
        thorough = await examined(url)
        assert not thorough.ok
        assert levels(thorough)["persistence"] == "fail"
        assert levels(thorough)["replicas"] == "warn"
        ready = await examined(url, thorough=False)
        assert ready.ok
        assert levels(ready)["persistence"] == "warn"
        primary.do("CONFIG", "SET", "min-replicas-to-write", "1")
        assert levels(await examined(url))["replicas"] == "ok"
    finally:
        replica.kill()
        primary.kill()


async def test_ticks_ahead_of_the_clock(store_url: str) -> None:
    """A clock that was set back over intact data is seen in the partitions' clocks."""
    async with Limpet.connect(store_url, partitions=1) as client:
        await client.resolve("k", session_id="s")
        with redis.Redis.from_url(store_url) as store:
            ahead = int(store.get(client.commands.keyspace.clock(0))) + 60_000_000
            store.set(client.commands.keyspace.clock(0), ahead)
        health = await client.health(thorough=True)
    (check,) = [check for check in health.checks if check.name == "ticks"]
    assert check.level == "warn"
    assert "ahead" in check.message


class Late(SystemClock):
    """This machine's clock, ten seconds slow."""

    def now(self):
        from datetime import timedelta

        return super().now() - timedelta(seconds=10)


async def test_skewed_clocks(store_url: str) -> None:
    """The store's clock against ours."""
    client = Limpet.connect(store_url, clock=Late())
    try:
        assert levels(await client.health())["clocks"] == "warn"
    finally:
        await client.close()


async def test_a_store_that_is_not_there() -> None:
    """One check, which fails."""
    health = await examined("unix:///nowhere.sock")
    assert levels(health) == {"store": "fail"}


def doctor(url: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command itself; with no URL, on the embedded store."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LIMPET_", "REDIS_URL"))}
    return subprocess.run(
        [str(Path(sys.executable).parent / "limpet"), "doctor", *arguments],
        env=environment | ({"LIMPET_REDIS_URL": url} if url else {}) | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_the_command(fresh_server: Callable[..., Server], store_url: str) -> None:
    """A table for people, JSON for programs, 1 when a check fails."""
    shown = doctor(store_url)
    assert shown.returncode == 0
    assert "persistence" in shown.stdout
    assert shown.stderr == ""
    told = json.loads(doctor(store_url, "--json").stdout)
    assert told["ok"]
    assert {check["level"] for check in told["checks"]} == {"ok", "warn"}
    bad = doctor(fresh_server("--maxmemory-policy", "allkeys-lfu").url)
    assert bad.returncode == 1
    assert "noeviction" in bad.stdout.replace("\n", " ")


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
def test_the_table_at_any_width(fresh_server: Callable[..., Server], columns: int) -> None:
    """No line is longer than the terminal is wide, no word is lost, and the columns stay in line."""
    shown = doctor(fresh_server("--maxmemory-policy", "allkeys-lru").url, COLUMNS=str(columns))
    lines = shown.stdout.splitlines()
    assert max(len(line) for line in lines) <= columns
    words = " ".join(shown.stdout.split())
    assert "FAIL eviction" in words
    assert "set it to noeviction or" in words
    begun = {line.index(line.split()[1]) for line in lines if line.startswith(("ok ", "warn ", "FAIL "))}
    assert len(begun) == 1
    assert "1 failed, 1 to look at, " in words


def test_the_embedded_store_is_fit(tmp_path: Path) -> None:
    """Without a URL the embedded store is looked at, and that is said; nothing is wrong with it."""
    shown = doctor("", LIMPET_DATA_DIR=str(tmp_path / "data"), COLUMNS="200")
    assert shown.returncode == 0
    assert "the embedded store in" in shown.stdout
    assert "All is well." in shown.stdout
    told = json.loads(doctor("", "--json", LIMPET_DATA_DIR=str(tmp_path / "data")).stdout)
    assert (told["ok"], told["embedded"]) == (True, True)


def test_a_store_that_cannot_be_reached() -> None:
    """One line, exit code 1, and JSON as ever."""
    shown = doctor("unix:///nowhere.sock", COLUMNS="200")
    assert shown.returncode == 1
    assert shown.stdout.startswith("FAIL  store")
    told = json.loads(doctor("unix:///nowhere.sock", "--json").stdout)
    assert [check["name"] for check in told["checks"]] == ["store"]


def test_what_cannot_be_reached_says_what_to_do(tmp_path: Path) -> None:
    """No password, a wrong one, an unknown host, a closed port, TLS where there is none: one failed line with the remedy, and no
    password in it."""
    node = Node(tmp_path / "n").start()
    try:
        node.do("CONFIG", "SET", "requirepass", "pwpwpw")
        for url, words in (
            (f"redis://127.0.0.1:{node.port}", "mend user and password"),
            (f"redis://:qqqqqq@127.0.0.1:{node.port}", "mend user and password"),
            (f"rediss://:pwpwpw@127.0.0.1:{node.port}", "rediss:// (TLS)"),
            ("redis://nowhere.invalid:6379", "check its address"),
            ("redis://127.0.0.1:1", "check its address"),
        ):
            shown = doctor(url, "--json")
            assert shown.returncode == 1
            (check,) = json.loads(shown.stdout)["checks"]
            assert (check["name"], check["level"]) == ("store", "fail")
            assert words in check["message"]
            assert ".." not in check["message"]
            assert "request id" not in check["message"]
            assert "pwpwpw" not in shown.stdout + shown.stderr
            assert "qqqqqq" not in shown.stdout + shown.stderr
    finally:
        node.kill()


def test_other_partitions(store_url: str) -> None:
    """The number that the store has is what to set."""
    import asyncio

    async def use() -> None:
        async with Limpet.connect(store_url, partitions=16) as client:
            await client.resolve("k", session_id="s")

    asyncio.run(use())
    told = json.loads(doctor(store_url, "--json").stdout)
    (config,) = [check for check in told["checks"] if check["name"] == "config"]
    assert (config["level"], "LIMPET_PARTITIONS=16" in config["message"]) == ("fail", True)
