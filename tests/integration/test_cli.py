"""The commands as people run them: real processes, against a real service on the embedded store."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

LIMPET = Path(sys.executable).with_name("limpet")
LISTENING = re.compile(r"listening on (http://\S+?)[; ]")
TOKEN = "open-sesame"


def environment(**variables: str) -> dict[str, str]:
    """The process's own without anything of ours, and these."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_") and name != "REDIS_URL"}
    return clean | variables


class Shell:
    """Runs commands against one service."""

    def __init__(self, directory: Path, **variables: str) -> None:
        self.directory = directory
        self.variables = variables

    def run(self, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """One command to its end."""
        return subprocess.run(
            [LIMPET, *args],
            env=environment(**self.variables | variables),
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def json(self, *args: str) -> dict[str, object]:
        """A command that works; its document."""
        done = self.run(args[0], "--json", *args[1:])
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        document: dict[str, object] = json.loads(done.stdout)
        return document


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    """``limpet serve`` as a process, without tokens, on a store of its own."""
    yield from _served()


@pytest.fixture(scope="module")
def guarded() -> Iterator[Shell]:
    """The same, with a token for the namespace prod."""
    tokens = [{"sha256": hashlib.sha256(TOKEN.encode()).hexdigest(), "namespace": "prod", "rights": ["resolve"]}]
    yield from _served(LIMPET_TOKENS=json.dumps(tokens))


def _served(**variables: str) -> Iterator[Shell]:
    with tempfile.TemporaryDirectory(prefix="limpet-test-") as base, (Path(base) / "stderr").open("w+") as stderr:
        process = subprocess.Popen(
            [LIMPET, "serve", "--port", "0", "--data-dir", f"{base}/data"],
            env=environment(**variables),
            cwd=base,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        try:
            assert process.stdout is not None
            found = next((match for line in process.stdout if (match := LISTENING.search(line))), None)
            assert found is not None, Path(stderr.name).read_text()
            yield Shell(Path(base), LIMPET_URL=found[1])
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                assert process.wait(20) == 0
            finally:
                process.kill()
                process.communicate()


def test_a_conversation_from_the_command_line(shell: Shell) -> None:
    """resolve, inspect, advance, resolve: one scope per conversation, whatever the session id."""
    first = shell.json("resolve", "cli:life", "--session-id", "resp_1")
    again = shell.json("resolve", "cli:life", "--session-id", "resp_2")
    assert first["created"] is True
    assert again["scope"] == first["scope"]
    seen = shell.json("inspect", "cli:life")
    assert (seen["scope"], seen["epoch"]) == (first["scope"], first["epoch"])
    advanced = shell.json("advance", "cli:life", "--expected-epoch", str(first["epoch"]))
    assert (advanced["ordinal"], advanced["previous_epoch"]) == (2, first["epoch"])
    assert shell.json("resolve", "cli:life")["scope"] == advanced["scope"] != first["scope"]


def test_an_advance_that_did_not_apply_is_exit_code_1(shell: Shell) -> None:
    """A script can tell without reading."""
    first = shell.json("resolve", "cli:cas")
    done = shell.run("advance", "cli:cas", "--expected-epoch", "5", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["epoch"] == first["epoch"]
    told = shell.run("advance", "cli:cas", "--expected-epoch", "5")
    assert (told.returncode, told.stderr) == (1, "")
    assert "nothing changed" in told.stdout


def test_a_binding_from_the_command_line(shell: Shell) -> None:
    """The first is told to bind, the next to wait; --commit does both at once; people are told what to do."""
    first = shell.run("resolve", "cli:bind", "--bind", "--worker", "gpu-3")
    assert "yours to bind: dispatch, then confirm with fence" in first.stdout
    assert "gpu-3" in first.stdout
    assert "dispatch without asking for a bind" in shell.run("resolve", "cli:bind", "--bind", "--wait-ms", "10").stdout
    shell.json("resolve", "cli:commit", "--bind", "--worker", "gpu-3", "--commit")
    binding = shell.json("inspect", "cli:commit")["binding"]
    assert isinstance(binding, dict)
    assert (binding["state"], binding["worker"]) == ("bound", "gpu-3")


def test_a_fork_shows_its_parents_scope_beside_its_own(shell: Shell) -> None:
    """And keeps to its own."""
    parent = shell.json("resolve", "cli:parent")
    fork = shell.json("resolve", "--session-id", "branch_1", "--kind", "fork", "--parent-key", "cli:parent")
    assert fork["parent_scope"] == parent["scope"] != fork["scope"]


def test_a_policy_reaches_the_service(shell: Shell) -> None:
    """What the service refuses is wrong usage, in its own words."""
    assert shell.json("resolve", "cli:daily", "--daily-at", "04:00", "--tz", "Europe/Paris", "--idle-s", "60")["created"] is True
    done = shell.run("resolve", "cli:daily", "--daily-at", "04:00", "--tz", "Mars/Olympus")
    assert (done.returncode, done.stdout) == (2, "")
    assert "daily.tz" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("key", ["a/b", "..", "%2F?x=1#y", "späße 🐚", "-"])
def test_any_key_can_be_asked_for(shell: Shell, key: str) -> None:
    """Keys are opaque, also in a path."""
    created = shell.json("resolve", "--", key) if key.startswith("-") else shell.json("resolve", key)
    assert shell.json("inspect", key)["scope"] == created["scope"]


def test_an_unknown_key_is_exit_code_1(shell: Shell) -> None:
    """One line that says so."""
    done = shell.run("inspect", "cli:nobody")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "limpet: There is no record of that key: never seen, forgotten, or past its retention.\n"


def test_namespaces_are_apart(shell: Shell) -> None:
    """--namespace, or LIMPET_NAMESPACE."""
    one = shell.json("resolve", "cli:tenant", "--namespace", "one")
    assert shell.json("resolve", "cli:tenant", "--namespace", "two")["scope"] != one["scope"]
    done = shell.run("inspect", "cli:tenant", "--json", LIMPET_NAMESPACE="one")
    assert json.loads(done.stdout)["scope"] == one["scope"]


def test_a_token_comes_from_the_environment_and_is_never_shown(guarded: Shell) -> None:
    """Its namespace is the one that is used; without it, the line says what is missing."""
    done = guarded.run("resolve", "k", "--json", LIMPET_TOKEN=TOKEN)
    assert done.returncode == 0, done.stderr
    for variables, args, says in (
        ({}, (), "Set LIMPET_TOKEN"),
        ({"LIMPET_TOKEN": "wrong-one"}, (), "Set LIMPET_TOKEN"),
        ({"LIMPET_TOKEN": TOKEN}, ("-n", "other"), "another namespace"),
    ):
        refused = guarded.run("resolve", "k", *args, **variables)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert says in refused.stderr
        assert refused.stderr.count("\n") == 1
        assert not any(value in refused.stderr for value in variables.values())


def test_colours_are_for_terminals_only(shell: Shell) -> None:
    """And a line stays a line, however narrow."""
    done = shell.run("resolve", "cli:plain", COLUMNS="20")
    assert "\x1b" not in done.stdout
    assert len(done.stdout.splitlines()) == 3


def test_a_reader_that_has_had_enough_is_no_traceback(tmp_path: Path) -> None:
    """``limpet config | head -1``."""
    done = subprocess.run(
        ["bash", "-c", f'"{LIMPET}" config --json | (exec 0<&-; true); echo "${{PIPESTATUS[0]}}"'],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1\n"
    assert done.stderr == ""


PRINT = (
    *(["--help"], ["--version"], ["bench"], ["demo", "--help"], ["demo"]),
    *(["config"], ["config", "--json"], ["config", "--new-token"], ["config", "--new-token", "--json"]),
    *(["resolve", "cli:mute"], ["resolve", "cli:mute", "--json"], ["advance", "cli:mute"], ["advance", "cli:mute", "--json"]),
    *(["workers"], ["workers", "--json"], ["doctor"]),
)
NOWHERE = {">&-": "stdout is closed", ">/dev/full": "No space left on device"}


def into(where: str, *args: str) -> list[str]:
    """A command line with a redirection."""
    return ["bash", "-c", f'exec "$0" "$@" {where}', str(LIMPET), *args]


@pytest.mark.parametrize("args", PRINT, ids=" ".join)
@pytest.mark.parametrize("where", NOWHERE)
def test_a_result_that_cannot_be_told_is_a_failure(shell: Shell, args: list[str], where: str, tmp_path: Path) -> None:
    """Exit code 1 and one line that says why, whether Python keeps the output back until the end or not."""
    for unbuffered in ("", "1"):
        done = subprocess.run(
            into(where, *args),
            env=environment(**shell.variables, LIMPET_DATA_DIR=str(tmp_path), PYTHONUNBUFFERED=unbuffered),
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            timeout=15,
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr.startswith(f"limpet: The output cannot be written ({NOWHERE[where]})")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("args", "code"), [(["inspect", "cli:nobody"], 1), (["inspect"], 2), (["nope"], 2)])
@pytest.mark.parametrize("where", NOWHERE)
def test_an_error_stays_what_it_is_when_nothing_can_be_told(shell: Shell, args: list[str], code: int, where: str) -> None:
    """Its line, and its exit code; without stderr the exit code alone."""
    told = shell.run(*args)
    assert told.returncode == code
    for streams, line in ((where, told.stderr), (f"{where} 2{where}", "")):
        done = subprocess.run(
            into(streams, *args, "--json"),
            env=environment(**shell.variables),
            cwd=shell.directory,
            capture_output=True,
            text=True,
            timeout=15,
            check=False,
        )
        assert (done.returncode, done.stderr) == (code, line)


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full"])
def test_a_stderr_that_cannot_be_written_takes_nothing_from_the_result(shell: Shell, streams: str) -> None:
    """A remark has nowhere to go; the command does what it does."""
    done = subprocess.run(
        into(streams, "config", "--json"),
        env=environment(LIMPET_NO_SUCH_THING="1"),
        cwd=shell.directory,
        stdout=subprocess.PIPE,
        text=True,
        timeout=15,
        check=False,
    )
    assert done.returncode == 0
    assert "LIMPET_PORT" in json.loads(done.stdout)


@pytest.mark.parametrize("command", ["serve", "gateway"])
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("where", "says"),
    [(">&-", ""), (">&- 2>&-", ""), (">/dev/full", "No space left on device"), ("> >(exec true)", "Broken pipe")],
)
def test_a_server_serves_whoever_reads_its_stdout(tmp_path: Path, command: str, workers: str, where: str, says: str) -> None:
    """Where it listens can be told to nobody: no reason not to. One line on stderr, none if stdout was closed on purpose."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    extra = ["--upstream", "http://127.0.0.1:1", "--profile", "openai-chat"] if command == "gateway" else []
    process = subprocess.Popen(
        into(where, command, *extra, "--port", port, "--workers", workers, "--data-dir", str(tmp_path / "data")),
        env=environment(),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 15
        while not _lives(port):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            threading.Event().wait(0.05)
        process.send_signal(signal.SIGTERM)
        stderr = process.communicate(timeout=15)[1]
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    assert says in stderr
    assert stderr.count("\n") == bool(says)


def _lives(port: str) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/livez").is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("columns", ["0", "00", "²", "9" * 5000], ids=lambda text: text[:9])
def test_a_width_that_is_none_is_ignored(shell: Shell, columns: str) -> None:
    """COLUMNS and LINES as broken terminals and cron jobs have them: everything is printed as without them."""
    shell.json("resolve", "cli:width")
    for args in (["resolve", "cli:width"], ["inspect", "cli:width"], ["workers"], ["config"]):
        done = shell.run(*args, COLUMNS=columns, LINES=columns)
        assert (done.returncode, done.stderr) == (0, "")
        usual = shell.run(*args, COLUMNS="80", LINES="25").stdout
        assert usual
        assert re.sub(r"began .*", "", done.stdout) == re.sub(r"began .*", "", usual)


def test_off_loopback_without_tokens_is_refused(tmp_path: Path) -> None:
    """Options reach the service's runner, and its exit code comes back."""
    done = Shell(tmp_path).run("serve", "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 2
    assert "without tokens" in done.stderr
