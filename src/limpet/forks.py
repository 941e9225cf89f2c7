"""Which process this is, without asking the kernel at every turn (that was a twentieth of a turn's time)."""

from __future__ import annotations

import os

__all__ = ["pid"]

_pid = os.getpid()


def _forked() -> None:
    global _pid
    _pid = os.getpid()


os.register_at_fork(after_in_child=_forked)


def pid() -> int:
    """This process's id, also in a child that was forked from Python (``os.fork``, multiprocessing)."""
    return _pid
