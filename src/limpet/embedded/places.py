"""Where the embedded store keeps its things.

    <data dir>/limpet.lock    held (flock) by the supervisor and by the server, so that there is never a second one
    <data dir>/limpet.log     what the server and the supervisor say
    <data dir>/appendonlydir/ the data, written by Valkey
    <data dir>/limpet.run/    0700: store.sock (Valkey) and control.sock (the supervisor)

A Unix socket's path holds 104 bytes on macOS and 108 on Linux, its final NUL included. Below a longer data directory
``limpet.run`` is a link to a short private directory, which anyone who shares the store follows. The names are ours alone: the
directory may hold other things (``/var`` has a ``run`` of its own).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import Final

from limpet.errors import InvalidRequest

__all__ = ["CONTROL", "LOCK", "LOG", "STORE", "default_data_dir", "find_run_dir", "prepare_data_dir", "prepare_run_dir"]

LOCK: Final = "limpet.lock"
LOG: Final = "limpet.log"
STORE: Final = "store.sock"
CONTROL: Final = "control.sock"
_RUN: Final = "limpet.run"
_PATH_BYTES: Final = 103


def default_data_dir() -> Path:
    """``$XDG_DATA_HOME/limpet`` or ``~/.local/share/limpet``; on macOS ``~/Library/Application Support/limpet``."""
    home = os.environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(home):  # the XDG rules say to ignore a relative one
        return Path(home) / "limpet"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "limpet"
    return Path.home() / ".local" / "share" / "limpet"


def prepare_data_dir(path: Path) -> Path:
    """Make the data directory (0700 where it is new), and answer its absolute path.

    Raises:
        InvalidRequest: it cannot be made, or cannot be written.
    """
    path = path.expanduser().resolve()  # one directory has one name, whichever link leads to it
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    if not os.access(path, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise _unusable(path, "not writable for this user")
    return path


def find_run_dir(data_dir: Path) -> Path:
    """The directory of the sockets as it is now; it may not exist."""
    run = data_dir / _RUN
    return Path(os.readlink(run)) if run.is_symlink() else run


def prepare_run_dir(data_dir: Path) -> Path:
    """Make the directory of the sockets, private, and with paths that fit. Only for who holds the lock.

    Raises:
        InvalidRequest: no private directory with a path that is short enough can be made.
    """
    run = data_dir / _RUN
    try:
        if run.is_symlink():
            run.unlink()
        if _fits(run):
            return _private(run)
        short = _short_dir(data_dir)
        if run.is_dir():  # the whole data directory was moved to a longer path
            shutil.rmtree(run)
        run.symlink_to(short)
    except OSError as error:
        raise _unusable(run, error.strerror or str(error)) from error
    return short


def _short_dir(data_dir: Path) -> Path:
    name = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    bases = [Path(base) for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp") if base]
    problem = "every directory for temporary files has too long a path"
    for base in bases:
        parent = base / f"limpet-{os.geteuid()}"
        if not _fits(parent / name):
            continue
        try:
            _private(parent)
            return _private(parent / name)
        except OSError as error:
            problem = error.strerror or str(error)
    raise InvalidRequest(
        f"The path of the data directory {data_dir} is too long for a Unix socket, and no shorter private directory could be "
        f"used ({problem}): set a shorter --data-dir.",
        field="data_dir",
    )


def _fits(run: Path) -> bool:
    return len(os.fsencode(run / CONTROL)) <= _PATH_BYTES


def _private(path: Path) -> Path:
    """Make a directory of mode 0700; one that is there must be ours and no link (anyone may write to /tmp)."""
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(None, f"{path} belongs to somebody else")
    path.chmod(0o700)
    return path


def _unusable(path: Path, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"The embedded store cannot keep its data in {path} ({why}): set --data-dir or LIMPET_DATA_DIR to a directory that "
        "this user can write.",
        field="data_dir",
    )
