"""Real service processes over a real store (``store_url`` comes from tests/support)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.servers import Server

RUN = "import sys; from limpet.settings import Settings; from limpet.service.server import run; sys.exit(run(Settings.load()))"
LISTENING = re.compile(r"listening on (https?://\S+?)(?: with \d+ workers)?;")


class Running:
    """A ``limpet serve`` process: its address, its output, its end."""

    def __init__(self, directory: Path, environ: dict[str, str]) -> None:
        self.stderr_path = directory / "stderr"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_") and name != "REDIS_URL"}
        with self.stderr_path.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RUN],
                cwd=directory,
                env=clean | {"TMPDIR": str(directory)} | environ,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self.lines: list[str] = []
        self.url = ""
        self._up = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self.lines.append(line)
                if found := LISTENING.search(line):
                    self.url = found[1]
                    self._up.set()
        self._up.set()

    def wait_up(self, timeout_s: float = 20) -> Running:
        """Until it says where it listens."""
        assert self._up.wait(timeout_s), "it did not start in time: " + self.stderr
        assert self.url, f"it ended with {self.process.wait(5)}: {self.stderr}"
        return self

    @property
    def stderr(self) -> str:
        """What it logged."""
        return self.stderr_path.read_text()

    def children(self) -> list[int]:
        """The process ids of its workers."""
        out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=False)
        return [int(word) for word in out.stdout.split()]

    def stop(self, timeout_s: float = 20) -> int:
        """SIGTERM, and its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
            raise
        finally:
            self._reader.join(5)


def launch(directory: Path, store_url: str, variables: dict[str, Any]) -> Running:
    """Start a service with some variables (names without ``LIMPET_``, in lower case)."""
    directory.mkdir()
    environ = {"LIMPET_REDIS_URL": store_url, "LIMPET_PORT": "0", "LIMPET_DEADLINE_MS": "2000"}  # patient: see tests/conftest.py
    return Running(directory, environ | {f"LIMPET_{name.upper()}": str(value) for name, value in variables.items()})


@pytest.fixture
def serve(store_url: str) -> Iterator[Callable[..., Running]]:
    """A function that starts a service of this test's own."""
    started: list[Running] = []
    with tempfile.TemporaryDirectory(prefix="limpet-test-") as base:

        def start(**variables: Any) -> Running:
            started.append(launch(Path(base) / str(len(started)), store_url, variables))
            return started[-1]

        try:
            yield start
        finally:
            for running in started:
                running.stop()


@pytest.fixture(scope="session")
def service_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The store of the shared service: its own, since that service works on it between tests and during other tests too."""
    store = Server(tmp_path_factory.mktemp("shared")).start()
    yield store.url
    store.kill9()


@pytest.fixture(scope="session")
def service(service_store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service without tokens, shared by tests that use keys of their own."""
    running = launch(tmp_path_factory.mktemp("service") / "run", service_store, {})
    try:
        yield running.wait_up()
    finally:
        running.stop()


@pytest.fixture
def http(service: Running) -> Iterator[httpx.Client]:
    """A client of it."""
    with httpx.Client(base_url=service.url, timeout=20) as client:
        yield client
