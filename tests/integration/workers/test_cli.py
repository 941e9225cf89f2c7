"""``limpet workers``, ``drain`` and ``watch`` against a real service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.support.servers import wait_until

COMMAND = [sys.executable, "-c", "from limpet.cli import main; import sys; sys.exit(main())"]


def run_in(folder: Path, environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """A command, to its end."""
    return subprocess.run([*COMMAND, *words], env=environ, cwd=folder, capture_output=True, text=True, timeout=40, check=False)


@pytest.fixture
def url(serve: Callable[..., Any]) -> str:
    """A service of this test's own."""
    found: str = serve(partitions=16).wait_up().url
    return found


@pytest.fixture
def limpet(url: str, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command."""

    def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environ = os.environ | {"LIMPET_URL": url, "COLUMNS": "160", "NO_COLOR": "1"} | variables
        return subprocess.run(
            [*COMMAND, *words], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=40, check=False
        )

    return run


def put(url: str, worker: str, address: str = "http://x") -> None:
    assert httpx.put(f"{url}/v1/workers/{worker}", json={"pool": "p", "address": address, "ttl_ms": 0}).status_code == 200


def bind(url: str, key: str, **wishes: Any) -> Any:
    body = {"key": key, "session_id": "s", "bind": {"worker": "gpu/0", "commit": True} | wishes}
    return httpx.post(f"{url}/v1/resolve", json=body).json()["binding"]


def test_workers(url: str, limpet: Callable[..., Any]) -> None:
    """A table for people, the service's own document for programs."""
    empty = limpet("workers")
    assert empty.returncode == 0
    assert "No workers are registered" in empty.stdout
    put(url, "gpu%2F0")
    bind(url, "k")
    bind(url, "stranger", worker="[red]x")
    wait_until(lambda: httpx.get(f"{url}/v1/workers").json()["unregistered"] == 1, 10, "a new count")
    table = limpet("workers")
    assert "gpu/0" in table.stdout
    assert "live" in table.stdout
    assert "1 live binding to workers that are not registered" in table.stdout
    (listed,) = json.loads(limpet("workers", "--json").stdout)["workers"]
    assert (listed["worker"], listed["bindings"]) == ("gpu/0", 1)


@pytest.mark.parametrize("columns", ["20", "80", "300"])
def test_names_can_be_copied(url: str, limpet: Callable[..., Any], columns: str) -> None:
    """A worker is a line, its name in one piece, and the address beside it only where it is another."""
    long = "http://frontend-7.gpu-pool-a.example.internal:8000/a/rather/long/path/to/the/v1"
    put(url, quote(long, safe=""), address=long)
    one = limpet("workers", COLUMNS=columns)
    assert [line.split()[0] for line in one.stdout.splitlines()] == ["worker", long]
    assert one.stdout.count(long) == 1
    put(url, "gpu%2F0", address=long)
    two = limpet("workers", COLUMNS=columns)
    assert [line.split()[0] for line in two.stdout.splitlines()] == ["worker", "gpu/0", long]
    assert two.stdout.count(long) == 2


def test_drain(url: str, limpet: Callable[..., Any]) -> None:
    """0 once the worker may stop, 1 if it may not in the time, and again to go on; --undo; a worker that nobody knows."""
    put(url, "gpu%2F0")
    for n in range(5):
        bind(url, f"k{n}")
    claim = bind(url, "claim", commit=False, claim_ttl_ms=60_000)
    held = limpet("drain", "gpu/0", "--timeout-s", "3")
    assert held.returncode == 1
    assert "may not stop yet" in held.stdout
    assert httpx.post(f"{url}/v1/bindings/abort", json={"key": "claim", "fence": claim["fence"]}).status_code == 200
    done = limpet("drain", "gpu/0", "--json")
    assert (done.returncode, json.loads(done.stdout)["may_stop"]) == (0, True)
    assert "may stop" in limpet("drain", "gpu/0").stdout
    assert "may stop" in limpet("workers").stdout
    assert limpet("drain", "gpu/0", "--undo").returncode == 0
    assert httpx.get(f"{url}/v1/workers/gpu%2F0").json()["state"] == "live"
    assert limpet("drain", "gpu/0", "--no-wait").returncode == 0
    unknown = limpet("drain", "nobody")
    assert unknown.returncode == 1
    assert "no worker of that name is registered; it registers itself with PUT /v1/workers/" in unknown.stderr


def test_watch(url: str, limpet: Callable[..., Any], tmp_path: Path) -> None:
    """What happens, for people and as one document per line; it resumes by itself."""
    environ = os.environ | {"LIMPET_URL": url, "COLUMNS": "160", "NO_COLOR": "1"}
    lines = tmp_path / "lines"
    with lines.open("wb") as out:
        words = ["watch", "--json", "-k", "advance", "-k", "bind", "--count", "3"]
        watching = subprocess.Popen([*COMMAND, *words], env=environ, cwd=tmp_path, stdout=out)
        try:

            def heard() -> bool:
                httpx.post(f"{url}/v1/advance", json={"key": "secret", "reason": "new"})
                return watching.poll() is not None

            wait_until(heard, 30, "three events")
        finally:
            watching.kill()
            watching.wait(10)
    assert watching.returncode == 0
    events = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [each["kind"] for each in events] == ["advance"] * 3
    assert "secret" not in lines.read_text()


def test_nobody_there(tmp_path: Path) -> None:
    """One line that says what to do, and exit code 1."""
    environ = os.environ | {"LIMPET_URL": "http://127.0.0.1:1"}
    for words in (["workers"], ["drain", "w"], ["watch"]):
        done = subprocess.run(
            [*COMMAND, *words], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 1
        assert "limpet serve" in done.stderr
    assert run_in(tmp_path, environ, "watch", "-k", "x").returncode == 2
