"""Processes of a bench's own, which end with it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from limpet.errors import LimpetError

__all__ = ["BenchFailed", "Listening", "answer", "command", "gather", "listening"]

T = TypeVar("T")
END_S = 15.0
LONGEST_S = 300.0
COMMAND = "import sys; from limpet.cli import main; sys.exit(main(sys.argv[1:]))"


class BenchFailed(LimpetError):
    """The bench could not be carried out; that says nothing about what it measures."""

    code = "bench_failed"


class Listening(str):
    """The URL of a process, which is ``pid``."""

    pid: int


def command(*words: str) -> tuple[str, ...]:
    """The arguments of an interpreter that runs ``limpet`` with these words."""
    return ("-c", COMMAND, *words)


def _environ(**more: str) -> dict[str, str]:
    """Ours, without settings that would change what is measured."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_") and name != "REDIS_URL"}
    return kept | more


@contextlib.contextmanager
def listening(*arguments: str, **environ: str) -> Iterator[Listening]:
    """A process that says ``listening on URL``; the URL. Raises BenchFailed when it ends before that."""
    with tempfile.TemporaryDirectory(prefix="limpet-bench-") as folder:
        process = subprocess.Popen(
            [sys.executable, *arguments], env=_environ(**environ), cwd=folder, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                _, found, rest = line.partition("listening on ")
                if found:
                    url = Listening(rest.split()[0].rstrip(";"))
                    url.pid = process.pid
                    yield url
                    return
            raise BenchFailed(f"A part of the bench ended with {process.wait()} before it listened.")
        finally:
            process.terminate()
            process.wait(END_S)
            if process.stdout is not None:
                process.stdout.close()


def gather(module: str, plans: Sequence[Any], kind: type[T]) -> list[T]:
    """Runs ``python -m module`` once per plan, all at once: the plan as JSON on stdin, the result as JSON on stdout.

    Raises BenchFailed.
    """
    processes = [
        subprocess.Popen([sys.executable, "-m", module], env=_environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in plans
    ]
    try:
        for process, plan in zip(processes, plans, strict=True):
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(plan))
            process.stdin.close()
            process.stdin = None
        until = time.monotonic() + LONGEST_S
        answers = [process.communicate(timeout=max(until - time.monotonic(), 0.1))[0] for process in processes]
    except subprocess.TimeoutExpired as error:
        raise BenchFailed(f"A process of the bench was not done after {LONGEST_S:g} s.") from error
    finally:
        for process in processes:
            process.kill()
            process.wait(END_S)
            if process.stdout is not None:
                process.stdout.close()
    if any(process.returncode for process in processes):
        raise BenchFailed(f"A process of the bench ended with {[process.returncode for process in processes]}; see above.")
    return [msgspec.json.decode(answer, type=kind) for answer in answers]


def answer(result: Any) -> None:
    """How a process that :func:`gather` started tells its result: all of it, however long the others are read first."""
    data = memoryview(msgspec.json.encode(result))
    fd = sys.stdout.fileno()
    os.set_blocking(fd, True)
    while data:
        data = data[os.write(fd, data) :]
