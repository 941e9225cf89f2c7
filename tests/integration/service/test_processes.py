"""Starting, refusing, draining, several workers, and what happens when one of them dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

Running = Any


def wait_until(predicate: Callable[[], bool], what: str, timeout_s: float = 15) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + timeout_s
    while not predicate():
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s} s"
        threading.Event().wait(0.02)


def alive(pid: int) -> bool:
    """Whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def total(url: str, name: str) -> float:
    """A metric summed over its labels, read on a connection of its own."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=20).text)
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


@contextmanager
def waiting(url: str, wait_ms: int) -> Iterator[list[Any]]:
    """A request in flight: it waits for a claim that another holds."""
    key, found = str(uuid.uuid4()), []
    httpx.post(f"{url}/v1/resolve", json={"key": key, "session_id": "a", "bind": {"holder": "a"}}).raise_for_status()

    def ask() -> None:
        body = {"key": key, "session_id": "b", "bind": {"wait_ms": wait_ms, "holder": "b"}}
        found.append(httpx.post(f"{url}/v1/resolve", json=body, timeout=30))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    yield found
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize("workers", [1, 2])
def test_shutdown_finishes_what_is_in_flight(serve: Callable[..., Running], workers: int) -> None:
    """SIGTERM: no new connection is taken, a waiting request still gets its answer, the exit code is 0."""
    running = serve(workers=workers).wait_up()
    with waiting(running.url, 1500) as found:
        running.process.send_signal(signal.SIGTERM)
    assert found[0].status_code == 200
    assert found[0].json()["binding"]["action"] == "wait"
    assert running.process.wait(10) == 0
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{running.url}/livez")


def test_workers_count_together(serve: Callable[..., Running]) -> None:
    """With two workers every scrape reports the sum over both, and the store's bindings once."""
    running = serve(workers=2).wait_up()
    assert len(running.children()) == 2
    worker = f"w-{uuid.uuid4()}"
    for i in range(40):  # a connection each, so that both workers get some
        body = {"key": f"{worker}-{i}", "session_id": "s", "bind": {"worker": worker, "commit": True}}
        httpx.post(f"{running.url}/v1/resolve", json=body).raise_for_status()
    for _ in range(6):
        assert total(running.url, "limpet_resolutions_total") == 40
    text = httpx.get(f"{running.url}/metrics").text
    assert f'limpet_bindings{{worker="{worker}"}} 40.0' in text


def test_a_dead_worker_is_replaced_and_stays_counted(serve: Callable[..., Running]) -> None:
    """kill -9 of a worker: another takes its place, the service answers throughout, and no counter goes down."""
    running = serve(workers=2).wait_up()
    for i in range(20):
        httpx.post(f"{running.url}/v1/resolve", json={"key": f"{uuid.uuid4()}-{i}", "session_id": "s"}).raise_for_status()
    first, second = running.children()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: len(set(running.children()) - {first, second}) == 1, "a new worker")
    assert second in running.children()
    for _ in range(10):
        assert total(running.url, "limpet_resolutions_total") == 20
    assert "worker died" in running.stderr


def test_workers_end_with_their_parent(serve: Callable[..., Running]) -> None:
    """kill -9 of the parent: the workers finish what they have and go, and so does the metrics directory."""
    running = serve(workers=2).wait_up()
    children = running.children()
    directory = running.stderr_path.parent
    assert list(directory.glob("limpet-metrics-*"))
    with waiting(running.url, 1000) as found:
        running.process.kill()
        running.process.wait(5)
    assert found[0].status_code == 200
    wait_until(lambda: not any(map(alive, children)), "the end of the workers")
    assert not list(directory.glob("limpet-metrics-*"))


SLOW_START = """
import signal, sys, threading
if sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2].endswith(".worker"):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    open(f"starting-{sys.orig_argv[-1]}", "w").close()
    while signal.SIGTERM not in signal.sigpending():
        threading.Event().wait(0.05)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
"""
"""A sitecustomize, which Python imports before anything of ours: a worker process does not get further than that, and meets the
supervisor's SIGTERM only when it has met the terminal's SIGINT."""


@pytest.mark.parametrize(
    "command", [["serve"], ["gateway", "--upstream", "http://127.0.0.1:1", "--profile", "openai-chat"]], ids=["serve", "gateway"]
)
def test_ctrl_c_while_workers_start_is_silent(command: list[str], tmp_path: Path) -> None:
    """The terminal sends it to all of them, however far they are."""
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "sitecustomize.py").write_text(SLOW_START)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_") and name != "REDIS_URL"}
    process = subprocess.Popen(
        [Path(sys.executable).with_name("limpet"), *command, "--port", "0", "--workers", "2"],
        env=clean | {"LIMPET_REDIS_URL": "redis://127.0.0.1:1/0", "PYTHONPATH": str(tmp_path / "planted")},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group of its own
    )
    try:
        wait_until(lambda: len(list(tmp_path.glob("starting-*"))) == 2, "the start of the workers")
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=15) == ("", "")
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_metrics_directory_goes_with_the_service(serve: Callable[..., Running]) -> None:
    """A graceful end leaves nothing behind."""
    running = serve(workers=2).wait_up()
    assert running.stop() == 0
    assert not list(running.stderr_path.parent.glob("limpet-metrics-*"))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_store_that_disagrees_is_refused(serve: Callable[..., Running], workers: int) -> None:
    """Other partitions than the namespace has: it does not start, exits 1 and says which number the store has."""
    name = f"n{uuid.uuid4().hex[:8]}"
    serve(namespace=name, partitions=16).wait_up().stop()
    running = serve(namespace=name, partitions=32, workers=workers)
    assert running.process.wait(20) == 1
    assert "16" in running.stderr
    assert "store_mismatch" in running.stderr
    assert running.url == ""


def test_no_store_still_starts(serve: Callable[..., Running]) -> None:
    """A store that is away: it starts, is live but not ready, degrades turns in time, and says 503 for the rest."""
    running = serve(redis_url="redis://127.0.0.1:1/0", deadline_ms=250).wait_up()
    with httpx.Client(base_url=running.url, timeout=10) as http:
        assert http.get("/livez").status_code == 200
        ready = http.get("/readyz")
        assert (ready.status_code, ready.json()["ok"]) == (503, False)
        start = time.monotonic()
        turn = http.post("/v1/resolve", json={"key": "k", "session_id": "s"})
        assert time.monotonic() - start < 1
        assert (turn.status_code, turn.json()["degraded"], turn.json()["source"]) == (200, True, "physical")
        answer = http.post("/v1/advance", json={"key": "k", "reason": "new"})
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        assert "limpet_degraded_total 1.0" in http.get("/metrics").text


def test_off_loopback_needs_tokens(serve: Callable[..., Running]) -> None:
    """Open to the network without tokens: refused with exit code 2 and a reason, unless --insecure."""
    running = serve(host="0.0.0.0")
    assert running.process.wait(20) == 2
    assert "LIMPET_TOKENS" in running.stderr
    running = serve(host="0.0.0.0", insecure="true").wait_up()
    port = running.url.rpartition(":")[2]
    assert httpx.get(f"http://127.0.0.1:{port}/livez").status_code == 200


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("url", ["http://store", "redis://store:port", "redis://store:6379/abc"])
def test_an_address_of_a_store_that_is_none_is_told(serve: Callable[..., Running], url: str, workers: str) -> None:
    """Exit code 2 and one line, before anything is started."""
    running = serve(redis_url=url, workers=workers)
    assert running.process.wait(20) == 2
    assert running.stderr.startswith("limpet: The store's URL ")
    assert running.stderr.count("\n") == 1


def test_a_taken_port_is_told(serve: Callable[..., Running]) -> None:
    """Exit code 1 and one line."""
    port = serve().wait_up().url.rpartition(":")[2]
    second = serve(port=port)
    assert second.process.wait(20) == 1
    assert "Cannot listen" in second.stderr


def test_embedded_store(serve: Callable[..., Running], tmp_path: Any) -> None:
    """Without a URL the embedded store runs, says so, is shared by the workers, and keeps its data over a restart."""
    epochs = []
    for _ in range(2):
        running = serve(redis_url="", data_dir=tmp_path / "data", workers=2).wait_up()
        assert any("embedded store" in line for line in running.lines)
        answers = [httpx.post(f"{running.url}/v1/resolve", json={"key": "k", "session_id": "s"}).json() for _ in range(6)]
        assert len({answer["epoch"] for answer in answers}) == 1
        epochs.append(answers[0]["epoch"])
        assert running.stop() == 0
    assert epochs[0] == epochs[1]
