"""The tests' own servers do what the tests build on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

import limpet.sync
from tests.support.leaks import immortal_keys
from tests.support.servers import Server, wait_until, wait_until_async

ROOT = Path(__file__).parents[2]
ORPHAN = """
import sys
from pathlib import Path
from tests.support.servers import Server
print(Server(Path(sys.argv[1])).start().pid, flush=True)
sys.stdin.read()
"""


def test_each_kind_answers(each_server: Server) -> None:
    """Valkey, and Redis where it is installed: commands go through, and none listens on TCP."""
    assert each_server.cli("PING") == b"PONG"
    assert each_server.cli("CONFIG", "GET", "port") == [b"port", b"0"]
    assert each_server.cli("EVAL", "return redis.call('TIME')[1]", 0).isdigit()


@pytest.mark.parametrize("arguments", [(), ("--appendonly", "yes", "--appendfsync", "everysec")], ids=["dump", "append-only"])
def test_an_older_snapshot_comes_back(fresh_server: Callable[..., Server], arguments: tuple[str, ...]) -> None:
    """What was written after the snapshot is lost, what was written before is there; so it is again the second time."""
    server = fresh_server(*arguments)
    server.cli("SET", "a", "old")
    snapshot = server.snapshot()
    for _ in range(2):
        server.cli("SET", "a", "new")
        server.restore(snapshot)
        assert server.cli("GET", "a") == b"old"


def test_a_restart_keeps_what_an_append_only_file_holds(fresh_server: Callable[..., Server]) -> None:
    """An orderly one and one after kill -9; without persistence nothing is kept."""
    server = fresh_server("--appendonly", "yes")
    server.cli("SET", "a", "here")
    server.restart()
    server.kill9()
    server.start()
    assert server.cli("GET", "a") == b"here"
    forgetful = fresh_server()
    forgetful.cli("SET", "a", "here")
    forgetful.restart()
    assert forgetful.cli("GET", "a") is None


def test_a_paused_server_does_not_answer(fresh_server: Callable[..., Server]) -> None:
    """SIGSTOP: the connection stands and nothing comes; SIGCONT: it goes on. A paused server can be stopped."""
    server = fresh_server()
    with redis.Redis.from_url(server.url, socket_timeout=0.2, retry=None) as client:
        client.ping()
        server.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        server.resume()
        assert client.ping()
    server.pause()
    server.stop()


def test_a_server_that_does_not_start_shows_its_log(fresh_server: Callable[..., Server]) -> None:
    """Instead of a timeout."""
    with pytest.raises(AssertionError, match="no-such-option"):
        fresh_server("--no-such-option", "1")


def _test_a_killed_run(tmp_path: Path) -> None:
    """Servers do not outlive the kill -9 of the process that started them."""
    run = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(tmp_path / "s")], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with run:
        pid = int(run.stdout.readline())
        os.kill(pid, 0)
        run.send_signal(signal.SIGKILL)
    wait_until(lambda: not _runs(pid), 10, "the end of the orphan")


if sys.platform == "linux":  # the kernel's signal is Linux's
    test_a_killed_run = _test_a_killed_run


def test_servers_outlive_the_thread_that_started_them(tmp_path: Path) -> None:
    """The kernel's signal follows the thread, so the servers are started from one that lasts."""
    server = Server(tmp_path / "s")
    try:
        thread = threading.Thread(target=server.start)
        thread.start()
        thread.join(20)
        assert server.cli("PING") == b"PONG"
    finally:
        server.kill9()


def _runs(pid: int) -> bool:
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return found.strip()[:1] not in ("", "Z")


def test_the_store_is_empty_and_has_no_scripts(store_url: str) -> None:
    """Whatever ran before: the tests start from nothing, and meet NOSCRIPT as a new replica's clients do."""
    with redis.Redis.from_url(store_url) as client:
        assert client.dbsize() == 0
        assert client.info("memory")["number_of_cached_scripts"] == 0


async def test_waiting_in_vain_says_for_what() -> None:
    """The condition's name is in the failure; one that holds returns at once."""

    async def never() -> bool:
        return False

    with pytest.raises(AssertionError, match="the tide"):
        wait_until(lambda: False, 0.05, "the tide")
    with pytest.raises(AssertionError, match="the tide"):
        await wait_until_async(never, 0.05, "the tide")
    wait_until(lambda: True, 0, "nothing")


def test_a_key_that_would_stay_for_ever_is_found(store_url: str) -> None:
    """And those that stay by design are not reported."""
    with redis.Redis.from_url(store_url) as client:
        for name in ("{a:1}:clock", "{a:1}:bound", "{a}:config", "{a}:workers", "{a:1}:conv:0"):
            client.set(f"limpet:{name}", "x")
        client.set("limpet:{a:1}:conv:1", "x", px=60_000)
        client.set("somebody:elses", "x")
        assert immortal_keys(client) == ["limpet:{a:1}:conv:0"]


@pytest.mark.usefixtures("no_leaks")
def test_a_conversation_leaves_nothing_for_ever(store_url: str) -> None:
    """Every call of a conversation's life: what remains of it has a TTL (design, section 4)."""
    with limpet.sync.Limpet.connect(store_url) as client:
        turn = client.resolve("k", session_id="s", bind={"worker": "w"}, request_id="r")
        assert turn.binding is not None
        client.confirm("k", fence=turn.binding.fence, worker="w")
        client.renew("k", fence=turn.binding.fence)
        client.release("k", fence=turn.binding.fence)
        client.suspend("k", resume_within_s=60)
        client.advance("k", "new")
        client.resolve(None, session_id="s2", kind="fork", bind=True)
        client.forget("k")
