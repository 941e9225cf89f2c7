"""The process that runs the embedded server for as long as somebody uses it (design, section 9).

Run by path in an isolated interpreter and with the standard library alone, so that it starts in milliseconds, stays small
and outlives an upgrade of the package. Every user holds a connection to it. The kernel closes the connection of a process
however it ends, so an end of file is a user who has gone, by kill -9 too. When the last one has gone, the server is told to stop
(SIGTERM: Valkey flushes its data), and then so do we. A server that ends earlier is started again on the same socket.

Should this process be killed, its server is stopped by the kernel (PR_SET_PDEATHSIG on Linux; we fork it from our only
thread, as that signal follows the thread) or by a guard that waits for the end of a pipe (elsewhere). Signals do not stop us:
where a service manager sends SIGTERM to all processes at once, the store must outlive those who still drain.

Protocol: a user sends ``?`` and gets one line of JSON once the server answers: ``{"pid": ...}`` or ``{"error": ...}``.
A user who has closed its half sees the end of file at once if others are left, else when the server has gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

STOP_S = 30.0  # for Valkey to flush and go before it is killed
APPEAR_S = 30.0  # for its socket to appear; loading data may then take as long as it takes
POLL_S = 0.01
LOG_BYTES = 1_000_000
LOG_LINES = 6
RESTARTS = 6  # in a row, of a server that each time ends within CALM_S
CALM_S = 60.0
PR_SET_PDEATHSIG = 1


class Failed(Exception):
    """The server does not start; the text is for people."""


class Supervisor:
    """One server and those who use it."""

    def __init__(self, plan: dict[str, str | bool], lock: int, first: socket.socket) -> None:
        self.data_dir = Path(str(plan["data_dir"]))
        self.store = Path(str(plan["store"]))
        self.control = Path(str(plan["control"]))
        self.log = Path(str(plan["log"]))
        self.binary = str(plan["binary"])
        self.ephemeral = bool(plan["ephemeral"])
        self.guarded = bool(plan["guarded"])
        self.lock = lock
        self.server: subprocess.Popen[bytes] | None = None
        self.guard: tuple[int, int] | None = None
        self.ready = False
        self.ever_ready = False
        self.failures = 0
        self.log_start = 0
        self.start_at = time.monotonic()
        self.give_up_at = 0.0
        self.users: set[socket.socket] = set()
        self.waiting: set[socket.socket] = set()
        self.leaving: list[socket.socket] = []
        self.selector = selectors.DefaultSelector()
        self.listener = socket.socket(socket.AF_UNIX)
        self.woken, self.wake = socket.socketpair()
        self.welcome(first)

    def run(self) -> None:
        """Until the last user has gone, or the server cannot be kept up."""
        self.woken.setblocking(False)
        self.wake.setblocking(False)
        signal.set_wakeup_fd(self.wake.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # not SIG_IGN, which the server would inherit
        try:
            self.listen()
            while self.users:
                self.tend()
                for key, _ in self.selector.select(self.patience()):
                    key.data()
        except Failed as error:
            self.tell(self.users, {"error": str(error)})  # also those who have not asked yet
        finally:
            self.end()

    def listen(self) -> None:
        """From here on others can join."""
        self.control.unlink(missing_ok=True)
        self.listener.bind(str(self.control))
        self.listener.listen(128)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        self.selector.register(self.woken, selectors.EVENT_READ, lambda: self.woken.recv(4096))

    # -- users ------------------------------------------------------------------------------------------------------

    def accept(self) -> None:
        """A user joins."""
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            self.welcome(self.listener.accept()[0])

    def welcome(self, user: socket.socket) -> None:
        """Count a user in."""
        user.setblocking(False)
        self.users.add(user)
        self.selector.register(user, selectors.EVENT_READ, lambda: self.hear(user))

    def hear(self, user: socket.socket) -> None:
        """A question, or the end of a user."""
        try:
            said = user.recv(64)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said:
            self.waiting.add(user)
            return
        self.selector.unregister(user)
        self.users.discard(user)
        self.waiting.discard(user)
        if self.users:
            user.close()
        else:
            self.leaving.append(user)  # is told by the end of file when the server has gone

    def tell(self, users: set[socket.socket], answer: dict[str, object]) -> None:
        """Answer those who asked."""
        for user in users:
            with contextlib.suppress(OSError):  # one that has just gone is heard of by its end of file
                user.send(json.dumps(answer).encode() + b"\n")

    # -- the server -------------------------------------------------------------------------------------------------

    def patience(self) -> float | None:
        """How long to wait for the next event, in seconds."""
        if self.server is None:
            return max(0.0, self.start_at - time.monotonic())
        return None if self.ready else POLL_S

    def tend(self) -> None:
        """Start the server when it is due, see whether it answers, notice its end."""
        if self.server is None and time.monotonic() >= self.start_at:
            self.start()
        if self.server is not None and self.server.poll() is not None:
            self.fallen(f"ended with status {self.server.returncode}")
        elif self.server is not None and not self.ready:
            answer = self.ping()
            self.ready = answer.startswith(b"+PONG")
            if answer:  # it is there; -LOADING may last
                self.give_up_at = time.monotonic() + APPEAR_S
            elif time.monotonic() > self.give_up_at:
                self.stop()
                self.fallen(f"did not answer within {APPEAR_S:.0f} s")
        if self.ready and self.server is not None:
            self.ever_ready = True
            self.tell(self.waiting, {"pid": self.server.pid})
            self.waiting.clear()

    def start(self) -> None:
        """Run the binary, on a socket and nothing else, with the append-only file as its only memory."""
        # fmt: off
        command = [
            self.binary, "--port", "0", "--unixsocket", str(self.store), "--unixsocketperm", "700", "--dir", str(self.data_dir),
            "--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory", "0",
            "--maxmemory-policy", "noeviction", "--daemonize", "no", "--logfile", "",
        ]
        # fmt: on
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("ab") as log:
            self.log_start = log.tell()
            try:
                self.server = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd="/",
                    pass_fds=(self.lock,),  # should we die first, nobody may open the data before the server has gone
                    preexec_fn=None if self.guarded else die_with_parent(os.getpid()),
                )
            except OSError as error:
                raise Failed(f"The embedded store's server {self.binary} cannot be run: {error.strerror or error}.") from error
        self.give_up_at = time.monotonic() + APPEAR_S
        if self.guarded:
            self.guard = guard(self.server.pid)

    def ping(self) -> bytes:
        """What the server answers; nothing while it does not listen."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            probe.connect(str(self.store))
            probe.sendall(b"PING\r\n")
            return probe.recv(64)
        return b""

    def fallen(self, how: str) -> None:
        """The server has ended by itself: start it again, but not for ever, and not if it never ran."""
        self.ready = False
        self.dismiss_guard()
        self.server = None
        self.failures = self.failures + 1 if time.monotonic() < self.start_at + CALM_S else 1
        if not self.ever_ready or self.failures > RESTARTS:
            with self.log.open("rb") as log:
                log.seek(self.log_start)
                lines = log.read().decode(errors="replace").splitlines()[-LOG_LINES:]
            raise Failed(f"The embedded store's server {how}. The last lines of {self.log}:\n" + "\n".join(lines))
        self.start_at = time.monotonic() + min(5.0, 0.05 * 2**self.failures)

    def stop(self) -> None:
        """Orderly: SIGTERM lets Valkey flush its data."""
        if self.server is not None and self.server.poll() is None:
            self.server.terminate()
            try:
                self.server.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()
        self.dismiss_guard()

    def dismiss_guard(self) -> None:
        """The server has gone, so its guard may go."""
        if self.guard is not None:
            pid, pipe = self.guard
            self.guard = None
            with contextlib.suppress(BrokenPipeError):  # it was killed
                os.write(pipe, b".")
            os.close(pipe)
            os.waitpid(pid, 0)

    def end(self) -> None:
        """Leave nothing but the data. The lock goes last but for the users, who are told by the end of file."""
        self.listener.close()
        self.stop()
        for path in (self.control, self.store):
            path.unlink(missing_ok=True)
        if self.control.parent.parent != self.data_dir:
            with contextlib.suppress(OSError):  # a short directory of ours, unless somebody put something in it
                self.control.parent.rmdir()
        if self.ephemeral:
            shutil.rmtree(self.data_dir, ignore_errors=True)
        os.close(self.lock)
        for user in (*self.users, *self.leaving):
            user.close()


def die_with_parent(parent: int) -> Callable[[], None]:
    """A function to call between fork and exec: the kernel sends SIGTERM when the parent has gone (Linux)."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def set_signal() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it went before we asked
            os._exit(1)

    return set_signal


def guard(server: int) -> tuple[int, int]:
    """A child that stops the server once we have gone without a word: its pid and the pipe to it."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.closerange(3, ours)  # above all the lock and the users' connections
        os.closerange(ours + 1, 1024)
        if os.read(ours, 1) == b"":
            os.kill(server, signal.SIGTERM)
        os._exit(0)
    os.close(ours)
    return pid, theirs


def main(arguments: list[str]) -> None:
    """``arguments``: the plan as JSON, the descriptor of the lock, the descriptor of the first user's connection."""
    plan, lock, first = json.loads(arguments[0]), int(arguments[1]), int(arguments[2])
    if os.fork():
        os._exit(0)  # nobody's child: who started us need not wait for us, nor be the last to go
    os.umask(0o077)
    os.chdir("/")
    Supervisor(plan, lock, socket.socket(fileno=first)).run()


if __name__ == "__main__":
    main(sys.argv[1:])
