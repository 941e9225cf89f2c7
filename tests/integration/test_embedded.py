"""The embedded store: it keeps its data, lives as long as anybody uses it, and leaves nothing behind (design, section 9)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from limpet.embedded import EmbeddedStore, default_data_dir
from limpet.errors import InvalidRequest
from tests.support.servers import wait_until

HOLD = """
import sys
from pathlib import Path
from limpet.embedded import EmbeddedStore
store = EmbeddedStore.acquire(Path(sys.argv[1]))
print(store.pid, store.owner, store.url, flush=True)
sys.stdin.readline()
store.release()
"""


class Holder:
    """A process that holds the store of a directory."""

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, "-c", HOLD, str(directory)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        pid, owner, self.url = self.process.stdout.readline().split()
        self.server, self.owner = int(pid), owner == "True"

    def end(self, number: signal.Signals | None = None) -> None:
        if number is not None:
            self.process.send_signal(number)
        self.process.communicate("\n" if number is None else None, timeout=20)


@pytest.fixture
def data() -> Iterator[Path]:
    """A data directory with a short path."""
    with tempfile.TemporaryDirectory(prefix="limpet-embedded-", ignore_cleanup_errors=True) as directory:
        yield Path(directory) / "data"


def gone(pid: int) -> bool:
    """Whether the process has ended (a zombie of somebody else's has, too)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip() == "" or state.startswith("Z")


def put(url: str, key: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.set(key, "here")


def has(url: str, key: str) -> bool:
    with redis.Redis.from_url(url) as client:
        return client.get(key) == b"here"


def test_data_survive_a_stop(data: Path) -> None:
    """Stopped with the last release, reopened with its data; append-only, no TCP port, for its owner's eyes only."""
    with EmbeddedStore.acquire(data) as store:
        pid = store.pid
        put(store.url, "a")
        with redis.Redis.from_url(store.url) as client:
            config = client.config_get("*")
            assert (config["appendonly"], config["port"], config["maxmemory"]) == ("yes", "0", "0")
        assert (data.stat().st_mode & 0o777) == 0o700
    assert gone(pid)
    with EmbeddedStore.acquire(data) as store:
        assert store.owner
        assert has(store.url, "a")


def test_kill_9_of_its_user_ends_it(data: Path) -> None:
    """The server does not outlive the process that used it, and what was written is there next time."""
    holder = Holder(data)
    put(holder.url, "a")
    holder.end(signal.SIGKILL)
    wait_until(lambda: gone(holder.server), 10, "the server to end with its user")
    with EmbeddedStore.acquire(data) as store:
        assert has(store.url, "a")


@pytest.mark.parametrize("number", [None, signal.SIGKILL, signal.SIGTERM])
def test_the_second_outlives_the_first(data: Path, number: signal.Signals | None) -> None:
    """Two processes share one server; when the one that started it goes, however, the other's goes on."""
    first = Holder(data)
    second = Holder(data)
    try:
        assert (first.owner, second.owner) == (True, False)
        assert first.server == second.server
        put(first.url, "a")
        first.end(number)
        assert has(second.url, "a")
        assert not gone(second.server)
    finally:
        second.end()
    wait_until(lambda: gone(second.server), 10, "the server to end with its last user")


def test_a_server_that_dies_is_started_again(data: Path) -> None:
    """kill -9 of the server itself: the same address answers again, with the data."""
    with EmbeddedStore.acquire(data) as store:
        put(store.url, "a")
        os.kill(store.pid, signal.SIGKILL)

        def back() -> bool:
            try:
                return has(store.url, "a")
            except redis.RedisError:
                return False

        wait_until(back, 10, "the server to come back")


def test_an_ephemeral_store_leaves_nothing() -> None:
    """Its directory goes with it."""
    with EmbeddedStore.acquire(ephemeral=True) as store:
        directory = store.data_dir
        put(store.url, "a")
        assert directory.exists()
    assert not directory.exists()


def test_a_path_longer_than_a_socket_address(data: Path) -> None:
    """Unix sockets take about a hundred bytes; the data directory may be longer."""
    long = data / ("d" * 120) / ("e" * 120)
    with EmbeddedStore.acquire(long) as store:
        put(store.url, "a")
        assert len(str(long)) > 240
        assert store.data_dir == long.resolve()


def test_a_directory_that_is_a_file_is_refused(data: Path) -> None:
    """One sentence that says what is wrong, no server left behind."""
    data.parent.mkdir(exist_ok=True)
    data.write_text("not a directory")
    with pytest.raises(InvalidRequest, match=str(data)):
        EmbeddedStore.acquire(data)


def test_release_twice_is_once(data: Path) -> None:
    """And the directory is free for the next."""
    store = EmbeddedStore.acquire(data)
    store.release()
    store.release()
    with EmbeddedStore.acquire(data) as again:
        assert again.owner


def test_the_default_lies_below_the_users_data_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """XDG where it is set."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    if sys.platform.startswith("linux"):
        assert default_data_dir() == tmp_path / "limpet"
