"""Whatever happens, a command ends with one line and a meaningful exit code."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from limpet.cli import main

BENCHES = ("lua", "library", "http", "gateway", "memory", "peers", "durability", "scale")
COMMANDS = (
    *("demo", "serve", "gateway", "resolve", "advance", "inspect", "workers", "drain", "watch"),
    *("doctor", "upgrade", "bench", "chaos", "config"),
)


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """No .env, and a service that is not there: port 1 is refused everywhere."""
    monkeypatch.chdir(str(tmp_path))
    monkeypatch.setenv("LIMPET_URL", "http://127.0.0.1:1")


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    """Bare ``limpet`` is help, and names every command with its whole sentence."""
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {command} " in text for command in COMMANDS)
    assert not [line for line in text.splitlines()[1:] if line.endswith("...")]
    assert "limpet demo" in text


def test_bare_bench_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    """A group without a command is help, not an error, and names every bench with its whole sentence."""
    assert main(["bench"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("  peers ")]
    assert not [line for line in lines[1:] if line.endswith("...")]


@pytest.mark.parametrize("command", [*COMMANDS, *(f"bench {each}" for each in BENCHES)])
def test_the_help_of_each_command_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What can be copied is the quickest lesson."""
    assert main([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert f"Examples:\n    limpet {command}" in text
    assert "--json" in text or command in ("serve", "gateway")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nope"], "No such command"),
        (["resolve", "k", "--bogus"], "No such option"),
        (["advance"], "Missing argument"),
        (["resolve"], "--session-id"),
        (["resolve", "k", "--kind", "fork"], "--session-id"),
        (["resolve", "k", "--kind", "nope"], "--kind"),
        (["resolve", "k", "--daily-at", "04:00"], "--tz"),
        (["resolve", "k", "--worker", "w"], "--bind"),
        (["resolve", "k" * 257], "257 bytes"),
        (["inspect", ""], "is empty"),
        (["inspect", "a\nb"], "control character"),
        (["advance", "k", "--expected-epoch", "x"], "--expected-epoch"),
        (["inspect", "k", "--namespace", "Not One"], "namespace"),
        (["inspect", "k", "--url", "ftp://host"], "http://"),
        (["inspect", "k", "--url", "http://user:secret@host"], "LIMPET_TOKEN"),
        (["inspect", "k", "--url", "http://host:port"], "no URL"),
        (["bench", "lua", "--plot", "x.png"], "has to end in .svg"),
        (["demo", "--conversations", "1"], "--conversations"),
        (["demo", "--replay", "missing.jsonl"], "Cannot read missing.jsonl"),
        (["serve", "--port", "123456"], "LIMPET_PORT"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(args: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong, on stderr; nothing on stdout; never the value of a secret."""
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("limpet: ")
    assert err.count("\n") == 1
    assert says in err
    assert "secret" not in err


@pytest.mark.parametrize("command", ["resolve", "advance", "inspect"])
def test_without_a_service_the_line_says_what_to_do(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The likeliest error of all: nobody has started it."""
    assert main([command, "k"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "limpet: The Limpet service at http://127.0.0.1:1 does not answer (connection refused); start it with `limpet serve`, "
        "or point LIMPET_URL to where it is.\n"
    )


@pytest.mark.parametrize(("args", "code"), [(["inspect", "k"], "service_unreachable"), (["inspect"], "usage")])
def test_with_json_an_error_is_the_one_document(args: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs read stdout and nothing else."""
    assert main([*args, "--json"]) == (2 if code == "usage" else 1)
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["error"]["code"] == code
    assert err == f"limpet: {document['error']['detail']}\n"


def test_a_token_that_cannot_be_sent_is_refused_unseen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would end up in an exception's text otherwise."""
    monkeypatch.setenv("LIMPET_TOKEN", "sesame\nopen")
    assert main(["inspect", "k"]) == 2
    assert "sesame" not in "".join(capsys.readouterr())


def test_what_nobody_expected_is_one_line_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback, but the way to one."""

    def broken(*_: object, **__: object) -> int:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr("limpet.cli.config.config", broken)
    assert main(["config"]) == 1
    assert capsys.readouterr().err == (
        "limpet: This is a mistake in Limpet (ZeroDivisionError: by zero); LIMPET_LOG_LEVEL=debug shows where.\n"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
def test_a_full_disk_is_told_from_inside_a_task_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A task group makes an exception of its own of what its tasks fail for."""

    async def tell() -> None:
        sys.stdout.write("done")
        sys.stdout.flush()

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(tell())

    monkeypatch.setattr("limpet.cli.config.config", lambda **_: asyncio.run(work()))
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["config"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("limpet: The output cannot be written (No space left on device)")
    assert err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
def test_another_full_disk_is_not_taken_for_that_of_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even after stdout was given up, as the service does; and nothing is left for a last flush that would fail again."""

    def broken(*_: object, **__: object) -> int:
        with contextlib.suppress(OSError):
            sys.stdout.write("listening\n")
            sys.stdout.flush()
        raise OSError(errno.ENOSPC, "No space left on device", "plot.svg")

    monkeypatch.setattr("limpet.cli.config.config", broken)
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["config"]) == 1
    err = capsys.readouterr().err
    assert "plot.svg" in err
    assert err.count("\n") == 1


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As shells have it."""

    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("limpet.cli.config.config", interrupted)
    assert main(["config"]) == 130
    assert capsys.readouterr() == ("", "")


def test_help_imports_none_of_what_the_commands_need() -> None:
    """That is why it is quick."""
    heavy = ("redis", "uvicorn", "starlette", "pydantic", "rich", "prometheus_client", "asyncio", "structlog")
    program = (
        "import sys; from limpet.cli import main; code = main(['--help']); "
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
