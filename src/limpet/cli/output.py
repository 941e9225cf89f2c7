"""rich's console, for a stdout that may be closed by whoever reads it (`limpet demo | head -5`), and for a COLUMNS of 0."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from rich.console import Console

__all__ = ["Output"]


class Output(Console):
    """Where rich would leave the process by SystemExit, which an event loop reports as a task's failure, this raises what
    happened: `main` ends the command for it."""

    def __init__(self, **options: Any) -> None:
        # rich takes a COLUMNS of 0 at its word, and prints nothing into that. Any digits will do for it, also those that are
        # no number to int().
        faulty = {name for name in ("COLUMNS", "LINES") if name in os.environ and not _positive(os.environ[name])}
        super().__init__(_environ={name: value for name, value in os.environ.items() if name not in faulty}, **options)

    def on_broken_pipe(self) -> NoReturn:
        """Raises the BrokenPipeError that rich has caught, by which `main` knows it, and prints nothing from now on."""
        self.quiet = True
        raise  # what our caller, in an except clause, handles


def _positive(text: str) -> bool:
    try:
        return int(text) > 0
    except ValueError:
        return False
