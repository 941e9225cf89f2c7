"""The command line: ``limpet serve | demo | resolve | advance | inspect | config`` (design, section 9).

Exit codes: 0 it worked, 1 it did not (or a guarantee did not hold), 2 it was asked for in a wrong way, 130 Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from limpet.cli.streams import Stdout, standard_streams, stems_from

if TYPE_CHECKING:
    from limpet.cli.problem import Problem

__all__ = ["main"]

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code. Every error is one line on stderr, never a traceback.

    With ``--json`` an error is also the one JSON document on stdout: ``{"error": {"code", "detail"}}``.
    """
    args = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if os.getpid() == 1:
        # Process 1 of a container: the kernel drops a SIGTERM that has no handler, so one that comes before the server has
        # installed its own would be lost, and the container be killed at the end of its patience.
        signal.signal(signal.SIGTERM, _leave)
    with standard_streams() as out:
        try:
            return _run(args, out)
        except KeyboardInterrupt:
            return INTERRUPTED


def _leave(number: int, _: object) -> None:
    sys.exit(128 + number)


def _run(args: list[str], out: Stdout) -> int:
    import typer

    import limpet.cli.bench
    import limpet.cli.gateway
    import limpet.cli.upgrade
    import limpet.cli.watch
    import limpet.cli.workers  # noqa: F401  (commands in files of their own)
    from limpet.cli.app import app
    from limpet.cli.problem import Problem, explain, say
    from limpet.errors import LimpetError

    try:
        code = app(args, prog_name="limpet", standalone_mode=False)
        out.flush()
    except typer.Abort:
        return INTERRUPTED
    except LimpetError as error:
        problem = explain(error)
    except Exception as error:  # noqa: BLE001  (the last line of defence: said in one line, with the way to learn more)
        if out.lost is not None and stems_from(error, out.lost):
            if isinstance(out.lost, BrokenPipeError):  # whoever read our output has had enough (`limpet config | head -1`)
                return FAILED
            problem = _unheard(out.lost)
        elif not hasattr(error, "format_message"):
            problem = _unexpected(error)
        else:
            context = getattr(error, "ctx", None)
            command = context.command_path if context is not None else "limpet"
            text = " ".join(str(error.format_message()).split()).rstrip(".")
            problem = Problem("usage", f"{text}. See `{command} --help`.", WRONG_USAGE)
    else:
        return code if isinstance(code, int) else 0
    say(problem, as_json="--json" in args)
    return problem.exit_code


def _unheard(error: OSError) -> Problem:
    from limpet.cli.problem import Problem

    text = (
        f"The output cannot be written ({error.strerror or error}), so it is lost, though what was asked for may have been done; "
        "send stdout to where it can be written."
    )
    return Problem("output_lost", text, FAILED)


def _unexpected(error: Exception) -> Problem:
    from limpet.cli.problem import Problem

    if os.environ.get("LIMPET_LOG_LEVEL") == "debug":
        raise error
    text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return Problem("internal", f"This is a mistake in Limpet ({text}); LIMPET_LOG_LEVEL=debug shows where.", FAILED)
