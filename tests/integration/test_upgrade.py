"""A rolling upgrade: replicas of two releases on one store, and the one command that permits the new record format.

The release after this one is planted (:mod:`tests.support.upgrade.planted`), since there is one schema only today.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from limpet import Limpet
from limpet.errors import StoreMismatch
from limpet.keys import digest, keyspace
from limpet.schema import CLIENT_NAME, NEWEST, Config, read_config, reads_of
from limpet.upgrade import look, permit
from tests.cluster.rig import Server as Node
from tests.support import upgrade as support
from tests.support.servers import Server, launch, wait_until
from tests.support.upgrade.planted import plant

SPACE = keyspace("default", 4)


@pytest.fixture(scope="session")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release that knows schema 2."""
    return plant(tmp_path_factory.mktemp("later"))


def environment(release: Path | None, url: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
    kept |= {"LIMPET_REDIS_URL": url, "LIMPET_PARTITIONS": "4", "COLUMNS": "200"}
    return kept | ({} if release is None else {"PYTHONPATH": str(release)})


class Replica:
    """A process of one release."""

    def __init__(self, url: str, release: Path | None = None) -> None:
        script = str(Path(support.__file__).with_name("replica.py"))
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = launch([sys.executable, script, url], env=environment(release, url), **pipes)
        where = Path(self._line())
        assert (release in where.parents) if release is not None else "src" in where.parts

    def _line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        """What a method of the client answers, or its error's code."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, arguments, options]).encode() + b"\n")
        self.process.stdin.flush()
        found = self._line()
        return found["answer"] if "answer" in found else found["error"]

    def stop(self) -> None:
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
            self.process.wait(15)
            assert self.process.stdout is not None
            self.process.stdout.close()


@pytest.fixture
def replica(store_url: str, later: Path) -> Iterator[Callable[[str], Replica]]:
    """Makes replicas, ``old`` or ``new``."""
    made: list[Replica] = []

    def make(kind: str) -> Replica:
        made.append(Replica(store_url, later if kind == "new" else None))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def command(url: str, release: Path | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``limpet upgrade`` of a release."""
    code = "import sys; from limpet.cli import main; sys.exit(main(['upgrade', *sys.argv[1:]]))"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment(release, url),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def schema_of(url: str, key: str) -> int:
    """The schema of a stored record: its first byte."""
    with redis.Redis.from_url(url) as store:
        raw = store.get(SPACE.record("conv", digest(key)))
    assert isinstance(raw, bytes)
    return raw[0]


def permitted(url: str) -> bytes | None:
    with redis.Redis.from_url(url) as store:
        return store.hget(SPACE.config, "schema")


def test_before_the_command_both_read_what_both_write(store_url: str, replica: Callable[[str], Replica]) -> None:
    """The new release writes the old format, whoever came first, so a fleet is upgraded replica by replica."""
    new, old = replica("new"), replica("old")
    assert new.ask("resolve", "by-new", session_id="s", bind={"worker": "w"})["binding"]["action"] == "bind"
    assert permitted(store_url) == b"1"
    assert schema_of(store_url, "by-new") == 1
    seen = old.ask("resolve", "by-new", session_id="s", bind=True)
    assert seen["binding"]["action"] == "wait"
    assert old.ask("confirm", "by-new", fence=seen["binding"]["fence"], worker="w")["state"] == "bound"
    moved = old.ask("advance", "by-old", "new")
    assert new.ask("resolve", "by-old", session_id="s")["epoch"] == moved["epoch"]
    assert new.ask("advance", "by-new", "new")["ordinal"] == 2
    assert old.ask("epoch", "by-new") == new.ask("epoch", "by-new")
    assert {schema_of(store_url, key) for key in ("by-new", "by-old")} == {1}
    assert new.ask("health")["ok"]
    assert old.ask("health")["ok"]


def test_the_switch_amid_work(store_url: str, later: Path, replica: Callable[[str], Replica]) -> None:
    """The new format is written within seconds and without a restart. What was written before goes on; an old replica that is
    still there refuses what it cannot read, is not ready any more, and can do no harm; another does not start."""
    old, new = replica("old"), replica("new")
    before = new.ask("resolve", "k", session_id="s", bind={"worker": "w", "commit": True})
    other = old.ask("resolve", "untouched", session_id="s")

    told = command(store_url, later, "--yes")
    assert told.returncode == 1
    assert "cannot read schema 2" in told.stdout
    assert permitted(store_url) == b"1"

    assert command(store_url, later, "--yes", "--force").returncode == 0
    assert permitted(store_url) == b"2"
    wait_until(lambda: new.ask("writes") == 2, 10, "the new replica to notice")

    # Read as it is, with everything in it, and written anew when something changes.
    same = new.ask("resolve", "k", session_id="s", bind=True)
    assert (same["epoch"], same["binding"]["worker"]) == (before["epoch"], "w")
    assert schema_of(store_url, "k") == 1
    again = new.ask("advance", "k", "new", request_id="r")
    assert (again["ordinal"], again["previous_epoch"]) == (2, before["epoch"])
    assert schema_of(store_url, "k") == 2
    assert new.ask("advance", "k", "new", request_id="r")["epoch"] == again["epoch"]  # the ring is in the new format too
    assert new.ask("resolve", "k", session_id="s")["epoch"] == again["epoch"]

    with redis.Redis.from_url(store_url) as store:
        raw = store.get(SPACE.record("conv", digest("k")))
        for call in (("resolve", "k"), ("advance", "k", "new"), ("suspend", "k"), ("forget", "k"), ("epoch", "k")):
            options = {"session_id": "s"} if call[0] == "resolve" else {}
            assert old.ask(*call, **options) == "schema_too_new"
        assert store.get(SPACE.record("conv", digest("k"))) == raw
    assert old.ask("resolve", "untouched", session_id="s")["epoch"] == other["epoch"]
    health = old.ask("health")
    assert [each["name"] for each in health["checks"] if each["level"] == "fail"] == ["config"]
    assert replica("old").ask("open") == "store_mismatch"
    assert new.ask("health")["ok"]

    # A binding made in the old format is released and drained in the new one.
    old_bound = old.ask("resolve", "bound", session_id="s", bind={"worker": "w", "commit": True})
    assert schema_of(store_url, "bound") == 1
    assert new.ask("release", "bound", fence=old_bound["binding"]["fence"])["state"] == "unbound"
    assert schema_of(store_url, "bound") == 2
    assert new.ask("resolve", "k", session_id="s", bind={"worker": "gone", "commit": True})["binding"]["action"] == "bind"
    old.ask("resolve", "drained", session_id="s", bind={"worker": "gone", "commit": True})
    assert schema_of(store_url, "drained") == 1
    new.ask("register", "gone", pool="p")
    assert new.ask("drain", "gone")["moved"] == 2
    assert schema_of(store_url, "drained") == 2
    assert new.ask("resolve", "drained", session_id="s", bind={"worker": "w2"})["binding"]["rebound"]


def test_the_command_says_what_it_would_do(store_url: str, later: Path, replica: Callable[[str], Replica]) -> None:
    """Nothing is changed without --yes; with it, once; and a second time there is nothing to do."""
    assert "not set up" in command(store_url, later).stdout
    new = replica("new")
    new.ask("open")
    asked = command(store_url, later, "--json")
    assert asked.returncode == 1
    (found,) = json.loads(asked.stdout)["namespaces"]
    assert (found["schema"], found["target"], found["due"], found["done"], found["behind"]) == (1, 2, True, False, [])
    assert "Say --yes" in command(store_url, later).stdout
    assert permitted(store_url) == b"1"
    done = command(store_url, later, "--yes")
    assert (done.returncode, permitted(store_url)) == (0, b"2")
    assert "may now be written in schema 2" in done.stdout
    assert "nothing to do" in command(store_url, later, "--yes").stdout
    behind = command(store_url, None, "--yes")
    assert behind.returncode == 1
    assert "reads up to 1" in behind.stderr
    assert permitted(store_url) == b"2"


def test_a_user_who_may_not_see_who_is_connected(fresh_server: Callable[..., Server], later: Path) -> None:
    """The least rights have no CLIENT LIST: the command says so, and leaves the decision to its user."""
    server = fresh_server()
    acl = Path(__file__).resolve().parents[2] / "deploy" / "redis" / "limpet.acl"
    for line in acl.read_text().splitlines():
        if "default" not in line:
            server.cli("ACL", "SETUSER", *line.split()[1:])
    url = f"unix://limpet:change-me-before-use@{server.socket}"
    server.cli("HSET", SPACE.config, "schema", 1, "partitions", 4, "touch_granularity_ms", 1000)
    assert "CLIENT LIST" in command(url, later).stdout
    assert command(url, later, "--yes").returncode == 0
    assert permitted(server.url) == b"2"


async def test_with_one_schema_there_is_nothing_to_switch(store_url: str) -> None:
    """Today's release: the outlook says so, and permitting what is permitted does no harm."""
    async with Limpet.connect(store_url, partitions=4) as client:
        outlook = await look(client)
        assert (outlook.schema, outlook.target, outlook.due) == (NEWEST, NEWEST, False)
        assert await permit(client, NEWEST) is None
        with pytest.raises(StoreMismatch, match="the one that brings"):
            await permit(client, NEWEST + 1)
    assert command(store_url, None).returncode == 0


async def test_what_was_permitted_is_on_the_replicas(tmp_path: Path) -> None:
    """A failover must not undo it: the answer says whether a replica has it."""
    primary = Node(tmp_path / "p").start()
    follower = Node(tmp_path / "r", "--replicaof", "127.0.0.1", primary.port).start()
    try:
        wait_until(lambda: primary.info("replication").get("slave0", {}).get("state") == "online", 15, "the replica")
        async with Limpet.connect(f"redis://127.0.0.1:{primary.port}", partitions=4) as client:
            assert await permit(client, NEWEST) is True
            assert follower.do("HGET", SPACE.config, "schema") == str(NEWEST).encode()
            follower.pause()
            assert await permit(client, NEWEST) is False
            follower.resume()
    finally:
        follower.kill()
        primary.kill()


def test_names_of_connections() -> None:
    """They tell what their owner reads; other names tell nothing."""
    assert reads_of(CLIENT_NAME) == NEWEST
    assert reads_of("limpet:schema-12") == 12
    assert [reads_of(name) for name in ("", "limpet", "limpet:schema-", "limpet:schema-x", "other:schema-1")] == [None] * 5


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Config(NEWEST + 1, 4, 1000), "upgrade this replica"),
        (Config(0, 4, 1000), "with the release before"),
        (Config(1, 8, 1000), "LIMPET_PARTITIONS=8"),
    ],
)
def test_what_must_not_be_touched(config: Config, words: str) -> None:
    """Each with what to do."""
    with pytest.raises(StoreMismatch, match=words):
        config.require("default", 4)


def test_a_config_that_is_no_number() -> None:
    """Somebody else's hash."""
    assert read_config([b"1", b"4", b"1000"]) == Config(1, 4, 1000)
    for reply in ([b"x", b"4", b"1"], [None, b"4", b"1"], []):
        with pytest.raises(StoreMismatch):
            read_config(reply)
