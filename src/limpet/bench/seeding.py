"""Conversations made in bulk, by the scripts themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hiredis

from limpet.bench.pipe import Pipe
from limpet.bind import Bind
from limpet.calls import Call, Target
from limpet.commands import Commands
from limpet.scripts import every_script

__all__ = ["bound", "load_scripts", "packed", "unbound"]

DEPTH = 256


def packed(command: Call[Any] | tuple[str | int | bytes, ...]) -> bytes:
    """The bytes of a call."""
    words: Any = command.command() if isinstance(command, Call) else command
    return bytes(hiredis.pack_command(words))


def load_scripts(pipe: Pipe) -> None:
    """All scripts, so that no call meets NOSCRIPT."""
    pipe.run([packed(("SCRIPT", "LOAD", each.text)) for each in every_script()], DEPTH)


def bound(pipe: Pipe, commands: Commands, targets: Sequence[Target]) -> None:
    """A conversation per target, bound to one of a hundred workers."""
    load_scripts(pipe)
    pipe.run(
        [
            packed(
                commands.resolve(
                    target,
                    session_id="s",
                    bind=Bind(worker=f"worker-{number % 100}", commit=True),
                    request_id="seeded",
                    look_up=False,
                )
            )
            for number, target in enumerate(targets)
        ],
        DEPTH,
    )


def unbound(pipe: Pipe, commands: Commands, targets: Sequence[Target]) -> None:
    """A conversation per target, bound to nothing."""
    load_scripts(pipe)
    pipe.run([packed(commands.resolve(target, session_id="s", request_id="seeded", look_up=False)) for target in targets], DEPTH)
