"""The handle of a process on the embedded store: start it, or share the one that runs on the same directory."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from limpet.clock import SystemClock
from limpet.embedded import _supervisor
from limpet.embedded.binary import server_binary
from limpet.embedded.places import CONTROL, LOCK, LOG, STORE, default_data_dir, find_run_dir, prepare_data_dir, prepare_run_dir
from limpet.errors import InvalidRequest, StoreUnavailable

__all__ = ["EmbeddedStore"]

_BUSY_S: Final = 60.0  # longer than a supervisor takes to stop its server
_POLL_S: Final = 0.02
_GUARDED = not sys.platform.startswith("linux")  # no signal from the kernel there when a parent dies


class EmbeddedStore:
    """A running Valkey of our own, which lives until the last process that holds a handle on it has gone.

    Use as a context manager, or call `release`. Threads may share a handle.
    """

    def __init__(self, data_dir: Path, connection: socket.socket, owner: bool) -> None:
        self.data_dir: Final = data_dir
        """Where the data are. Gone after the release of an ephemeral one."""
        self.owner: Final = owner
        """Whether this handle started the server; everybody else shares it."""
        self._socket_path = find_run_dir(data_dir) / STORE
        self._connection = connection
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._released = False

    @classmethod
    def acquire(cls, data_dir: Path | None = None, *, ephemeral: bool = False) -> EmbeddedStore:
        """Start the store of a directory, or share the one that runs there. Blocks until it answers.

        Args:
            data_dir: where the data are kept; `default_data_dir` by default. One server per directory.
            ephemeral: a new temporary directory instead, removed at the end, however the end comes.

        Raises:
            InvalidRequest: the directory cannot be used.
            StoreUnavailable: there is no binary for this platform, or the server did not start (with its last words).
        """
        if ephemeral and data_dir is not None:
            raise InvalidRequest("An ephemeral store has no data directory of yours: give one or the other.", field="data_dir")
        binary = server_binary()
        if ephemeral:
            directory = Path(tempfile.mkdtemp(prefix="limpet-")).absolute()
        else:
            directory = prepare_data_dir(default_data_dir() if data_dir is None else data_dir)
        try:
            return cls._open(binary, directory, ephemeral)
        except BaseException:
            if ephemeral:
                shutil.rmtree(directory, ignore_errors=True)
            raise

    @classmethod
    def _open(cls, binary: Path, directory: Path, ephemeral: bool) -> EmbeddedStore:
        clock = SystemClock()
        give_up_at = clock.monotonic() + _BUSY_S
        while clock.monotonic() < give_up_at:
            connection, owner = _join(directory), False
            if connection is None:
                connection, owner = _start(binary, directory, ephemeral=ephemeral), True
            if connection is not None:
                store = cls(directory, connection, owner)
                try:
                    answered = store._ask() is not None
                except BaseException:  # Ctrl-C too: whoever does not get the handle must not go on holding it
                    store.release()
                    raise
                if answered:
                    return store
                store.release()
                if owner:
                    raise StoreUnavailable(f"The embedded store's supervisor ended at once: see {directory / LOG}.")
            time.sleep(_POLL_S)  # another process is just starting or stopping it
        raise StoreUnavailable(
            f"Another process has held {directory / LOCK} for {_BUSY_S:.0f} s, and its store cannot be reached: end that "
            "process, or set another --data-dir."
        )

    @property
    def url(self) -> str:
        """``unix://<path>?db=0``, as redis-py reads it (the path is percent-encoded)."""
        return f"unix://{quote(str(self._socket_path))}?db=0"

    @property
    def pid(self) -> int:
        """The process id of the server as it is now: one that died has been started again under another.

        Raises:
            StoreUnavailable: the supervisor was killed, or cannot keep the server up; release, and acquire again.
        """
        pid = self._ask()
        if pid is None:
            raise StoreUnavailable("The embedded store's supervisor has gone: release this handle and acquire a new one.")
        return pid

    def release(self) -> None:
        """Leave. The last one to leave waits until the server has flushed its data and gone. Idempotent."""
        with self._guard:
            if self._released:
                return
            self._released = True
            with self._connection as connection, contextlib.suppress(OSError):  # of one that has gone already
                if self._pid != os.getpid():  # a fork: leaving must not take the parent's connection along
                    return
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(_BUSY_S)
                while connection.recv(4096):
                    pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.release()

    def _ask(self) -> int | None:
        """The server's pid once it answers; None when nobody answers any more."""
        with self._guard:
            if self._released:
                raise StoreUnavailable("This handle on the embedded store was released.")
            line = bytearray()
            with contextlib.suppress(OSError):  # one that failed may have said why before it went
                self._connection.sendall(b"?")
            with contextlib.suppress(ConnectionError):
                while not line.endswith(b"\n") and (said := self._connection.recv(65536)):
                    line += said
            if not line.endswith(b"\n"):
                return None
        answer = json.loads(line)
        if "error" in answer:
            raise StoreUnavailable(answer["error"])
        return int(answer["pid"])


def _join(directory: Path) -> socket.socket | None:
    """A connection to the supervisor that runs; None where none does."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(find_run_dir(directory) / CONTROL))
    except OSError:  # none, or one that is stopping; the lock tells which
        connection.close()
        return None
    return connection


def _start(binary: Path, directory: Path, *, ephemeral: bool) -> socket.socket | None:
    """A connection to a supervisor of ours; None where another process holds the lock."""
    import fcntl  # there is none on Windows, where there is no binary either

    try:
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidRequest(
            f"The embedded store cannot lock {directory / LOCK} ({error.strerror or error}): set another --data-dir.",
            field="data_dir",
        ) from error
    with contextlib.closing(os.fdopen(lock, "rb")):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        run = prepare_run_dir(directory)
        plan: dict[str, str | bool] = {
            "data_dir": str(directory),
            "store": str(run / STORE),
            "control": str(run / CONTROL),
            "log": str(directory / LOG),
            "binary": str(binary),
            "ephemeral": ephemeral,
            "guarded": _GUARDED,
        }
        ours, theirs = socket.socketpair()
        try:
            _launch(plan, lock, theirs, directory / LOG)
        except BaseException:
            ours.close()
            raise
        return ours


def _launch(plan: dict[str, str | bool], lock: int, connection: socket.socket, log_path: Path) -> None:
    """Run the supervisor, which takes over the lock (an inherited descriptor holds it too) and becomes nobody's child."""
    with connection:
        command = [sys.executable, "-I", _supervisor.__file__, json.dumps(plan), str(lock), str(connection.fileno())]
        try:
            with open(log_path, "ab", opener=_private) as log:
                launched = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(lock, connection.fileno()),
                    start_new_session=True,  # Ctrl-C and a closed terminal are for us, not for the store
                    check=False,
                )
        except OSError as error:
            raise StoreUnavailable(f"The embedded store's supervisor cannot be run: {error}.") from error
    if launched.returncode != 0:
        raise StoreUnavailable(f"The embedded store's supervisor ended with status {launched.returncode}: see {log_path}.")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
