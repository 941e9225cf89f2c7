"""rich's console, for a stdout that may be closed by whoever reads it (`limpet demo | head -5`)."""

from __future__ import annotations

from typing import NoReturn

from rich.console import Console

__all__ = ["Output"]


class Output(Console):
    """Where rich would leave the process by SystemExit, which an event loop reports as a task's failure, this raises what
    happened: `main` ends the command for it."""

    def on_broken_pipe(self) -> NoReturn:
        """Raises BrokenPipeError, and prints nothing from now on."""
        self.quiet = True
        raise BrokenPipeError
