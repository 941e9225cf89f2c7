"""``limpet demo`` as a newcomer runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from limpet.cli.demo_view import Silent
from limpet.clock import SystemClock
from limpet.demo import run as demos
from limpet.demo.plan import generate
from limpet.demo.protocol import Setup
from limpet.embedded import EmbeddedStore

LIMPET = Path(sys.executable).with_name("limpet")
RECORDED = Path(__file__).parents[1] / "data" / "aiperf_requests.jsonl"


def environment(**variables: str) -> dict[str, str]:
    """The process's own without anything of ours, and these."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_") and name != "REDIS_URL"}
    return clean | variables


def run(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """One demo to its end."""
    return subprocess.run(
        [LIMPET, "demo", *args], env=environment(**variables), capture_output=True, text=True, timeout=55, check=False
    )


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("lines", [1, 4, 5])
def test_a_reader_that_has_had_enough_is_no_traceback(lines: int) -> None:
    """``limpet demo | head -5``: whichever part of it meets the closed pipe, it ends, and without a word."""
    with subprocess.Popen(
        [LIMPET, "demo", "--conversations", "10"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        read = [demo.stdout.readline() for _ in range(lines)]
        demo.stdout.close()
        assert demo.stderr.read() == ""
        assert demo.wait(timeout=55) == 1
    assert len(read) == lines


def test_the_demo_shows_the_point_in_time() -> None:
    """Under 30 s: the events as they happen, the two columns, the verdict, and exit code 0."""
    clock = SystemClock()
    began = clock.monotonic()
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert clock.monotonic() - began < 30
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    for line in (
        r"4 gateways are up, each a process of its own",
        r"gateway-4 \(pid \d+\) killed by SIGKILL while it held 8 claims",
        r"8 of 8 bound by another gateway within [\d.]+ s, each with a larger fence .*; 8 late confirms of the dead one refused",
        r"300 of 300 done",
        r"binds per conversation +1 +\d\.\d \(up to 4\)",
        r"split over several workers +0 of \d{3} +\d{3} of \d{3}",
        r"affinity scopes per conversation +1 +\d\.\d",
        r"Every guarantee held\.",
    ):
        assert re.search(line, done.stdout), f"{line} is missing in\n{done.stdout}"


def test_the_numbers_as_json() -> None:
    """One document; the column with Limpet is 1, 0 and 1, the other one is what it happens to be, and worse."""
    done = run("--json", "--conversations", "60")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    report = json.loads(done.stdout)
    counted, number = report["counted"], report["counted"]["conversations"]
    assert report["ok"] is True
    assert report["failures"] == []
    assert number + 6 * 2 >= 60 + counted["new"] + counted["idle"]
    assert counted["limpet"] == {"binds": number, "binds_most": 1, "split": 0, "scopes": number, "scopes_most": 1}
    assert counted["alone"]["binds"] > 2 * number
    assert counted["alone"]["split"] > number / 2
    assert counted["alone"]["scopes"] == counted["turns"]
    killed = report["killed"]
    assert (killed["claims"], killed["handed_over"], killed["late_confirms_refused"]) == (8, 8, 8)
    assert gone(killed["pid"])


def test_recorded_requests_of_a_load_generator() -> None:
    """36 sessions from the headers, all 156 requests answered, and none of the sessions split."""
    done = run("--replay", str(RECORDED), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    counted = json.loads(done.stdout)["counted"]
    assert (counted["turns"], counted["conversations"]) == (156, 36)
    assert counted["limpet"] == {"binds": 36, "binds_most": 1, "split": 0, "scopes": 36, "scopes_most": 1}
    assert counted["alone"]["split"] > 18
    assert counted["alone"]["scopes"] == 36  # this client's session ids are stable: only the workers scatter


@pytest.mark.parametrize("sessions", [1, 5, 13])
def test_a_short_recording_is_enough(tmp_path: Path, sessions: int) -> None:
    """Fewer sessions than the kill would like to have, in the file's own order."""
    file = tmp_path / "short.jsonl"
    lines = [json.dumps({"path": "/", "headers": [["X-Session-ID", f"s{number}"]]}) for number in range(sessions)]
    file.write_text("\n".join(lines * 2))
    done = run("--replay", str(file), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["counted"]["turns"], report["counted"]["conversations"]) == (2 * sessions, sessions)
    assert report["killed"]["claims"] == min(sessions, 8)


def test_a_malformed_recording_is_one_line(tmp_path: Path) -> None:
    """Before anything is started."""
    file = tmp_path / "bad.jsonl"
    file.write_text("{}\n")
    done = run("--replay", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "line 1" in done.stderr


@pytest.fixture
def store() -> Iterator[EmbeddedStore]:
    """A store that is not the demo's own."""
    with EmbeddedStore.acquire(ephemeral=True) as embedded:
        yield embedded


def test_a_store_that_is_not_its_own_is_left_as_it_was(store: EmbeddedStore) -> None:
    """With LIMPET_REDIS_URL the demo uses that store, and takes every key of its own away again."""
    with redis.Redis.from_url(store.url) as client:
        client.set("somebody:else", "1")
        done = run("--conversations", "20", LIMPET_REDIS_URL=store.url)
        assert done.returncode == 0, done.stdout + done.stderr
        assert client.keys("*") == [b"somebody:else"]


def test_gateways_that_do_not_share_are_found_out(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real fault, planted in real processes: each gateway in a namespace of its own. The verdict names what broke."""

    def apart(**fields: Any) -> Setup:
        return Setup(**fields | {"namespace": f"{fields['namespace']}-{fields['name']}"})

    monkeypatch.setattr(demos, "Setup", apart)
    report = demos.run(generate(20, gateways=4, victims=0), store.url, "demo-apart", Silent())
    assert not report.ok
    assert {failure[:2] for failure in report.failures} >= {"G1", "G4"}
    assert report.counted.limpet.binds_most > 1
    assert report.counted.limpet.split > 0


def test_a_store_that_is_not_there_is_one_line() -> None:
    """What happened and what to do, not four tracebacks."""
    done = run("--json", LIMPET_REDIS_URL="unix:///nowhere.sock")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == "demo_failed"
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_however_it_ends_no_process_is_left(number: signal.Signals, code: int) -> None:
    """Ctrl-C in the middle, or worse: the gateways and the store end too."""
    process = subprocess.Popen(
        [LIMPET, "demo"], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    pids: list[int] = []
    while len(pids) < 5:
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        if found := re.search(r"\(pids? ([\d, ]+)\)", line):
            pids += [int(pid) for pid in found[1].split(", ")]
    process.send_signal(number)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == code
    assert stderr == ""
    clock = SystemClock()
    deadline = clock.monotonic() + 15
    while left := [pid for pid in pids if not gone(pid)]:
        assert clock.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)
