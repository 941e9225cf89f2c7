"""Real peers: processes of ours as users start them, and Debian's proxies. Run with ``pytest -m e2e tests/e2e``."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.servers import wait_until

__all__ = ["Launch", "Process", "free_port", "is_listening"]


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class Process:
    """One process of a test's own, its output in a file."""

    def __init__(self, log: Path, command: list[str], environ: dict[str, str], cwd: Path) -> None:
        self.log = log
        clean = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_") and name != "REDIS_URL"}
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, env=clean | environ, cwd=cwd, stdout=out, stderr=subprocess.STDOUT)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(20)


Launch = Callable[..., Process]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """A function that starts a process and waits until it listens on ``port``."""
    running: list[Process] = []

    def start(*command: str, port: int, **environ: str) -> Process:
        process = Process(tmp_path / f"log{len(running)}", list(command), environ, tmp_path)
        running.append(process)

        def up() -> bool:
            assert process.process.poll() is None, process.log.read_text()
            return is_listening(port)

        wait_until(up, 30, " ".join(command))
        return process

    yield start
    for process in reversed(running):
        process.stop()


@pytest.fixture
def limpet_command() -> list[str]:
    """The command line of ours."""
    return [sys.executable, "-c", "from limpet.cli import main; import sys; sys.exit(main())"]


# The SDK comes with the e2e group only; without it there is nothing to import these tests with.
collect_ignore = [] if importlib.util.find_spec("openai") else ["test_openai_sdk.py"]
