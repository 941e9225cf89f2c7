"""One line for each error: what happened, what it means, what to do."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import Final

import msgspec

from limpet.errors import InvalidRequest, LimpetError

__all__ = ["Problem", "ServiceProblem", "explain", "say"]

_HINTS: Final = {
    "unauthorized": "Set LIMPET_TOKEN to one of the service's tokens.",
    "forbidden": "Leave --namespace away to use the token's own, or use a token with that right.",
    "store_unavailable": "See its /readyz for what it misses.",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """``code`` is for programs, ``detail`` for people."""

    code: str
    detail: str
    exit_code: int


class ServiceProblem(LimpetError):
    """The service answered with an error, or not at all. ``problem_code`` is the stable code of its answer."""

    def __init__(self, message: str, *, problem_code: str, status: int | None = None) -> None:
        super().__init__(message)
        self.problem_code = problem_code
        self.http_status = status


def explain(error: LimpetError) -> Problem:
    """What to say about an error, and the exit code that goes with it."""
    code, wrong = error.code, isinstance(error, InvalidRequest)
    if isinstance(error, ServiceProblem):
        code, wrong = error.problem_code, error.http_status == 400
    detail = " ".join(str(error).split())
    hint = _HINTS.get(code) if isinstance(error, ServiceProblem) else None
    return Problem(code, detail if hint is None else f"{detail} {hint}", 2 if wrong else 1)


def say(problem: Problem, *, as_json: bool) -> None:
    """Prints it: one line on stderr; with ``as_json`` a document on stdout as well."""
    if as_json:
        document = {"error": {"code": problem.code, "detail": problem.detail}}
        with contextlib.suppress(OSError):  # where stdout is closed or full, the line below still tells
            sys.stdout.write(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n")
            sys.stdout.flush()
    sys.stderr.write(f"limpet: {problem.detail}\n")
