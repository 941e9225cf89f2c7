"""``--workers N``: starts the worker processes on one listening socket, replaces those that die, ends with them.

Each worker is a fresh interpreter, so that the metrics directory is known before its metrics are made. The directory is
private and goes with us. What a dead worker had counted stays in it: counters never go down.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any, Final

from prometheus_client.multiprocess import mark_process_dead

from limpet.clock import Clock, SystemClock
from limpet.metrics import MULTIPROC
from limpet.service.logs import logger
from limpet.service.serving import REFUSED
from limpet.settings import Settings

__all__ = ["Supervisor"]

YOUNG_S: Final = 2.0
"""A worker that dies younger than this is restarted after a pause that doubles."""
MAX_PAUSE_S: Final = 10.0
HOPELESS: Final = 3
"""So many deaths before any worker ever served end the attempt."""
KILL_AFTER_S: Final = 5.0
"""On top of the grace that the workers know of."""


class _Worker:
    """One place for a worker process, and the process that fills it now."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: socket.socket | None = None
        self.started_at = 0.0
        self.restart_at = 0.0
        self.pause_s = 0.0
        self.ready = False


class Supervisor:
    """Runs the workers.

    Args:
        settings: as the workers get them (through the environment).
        listener: bound, listening; shared by all.
        on_started: called once, when every worker has served.
        module: what a worker process runs.
    """

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        on_started: Callable[[], None],
        *,
        module: str = "limpet.service.worker",
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._on_started = on_started
        self._module = module
        self._clock = clock or SystemClock()
        self._workers = [_Worker(number) for number in range(settings.workers)]
        self._selector = selectors.DefaultSelector()
        self._signals = 0
        self._hangups = 0
        self._deaths = 0
        self._announced = False
        self._served = False
        self._code = 0
        self._directory = ""

    def run(self) -> int:
        """Until SIGTERM or SIGINT; a second one ends at once. The exit code: 0, or 1 when the workers cannot start."""
        self._directory = tempfile.mkdtemp(prefix="limpet-metrics-")
        wake, waker = socket.socketpair()
        for end in (wake, waker):
            end.setblocking(False)
        self._selector.register(wake, selectors.EVENT_READ)
        old_fd = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGCHLD]
        if self._settings.tls_cert is not None:  # the certificate was renewed; else a terminal's end ends us, as ever
            numbers.append(signal.SIGHUP)
        old: dict[int, Any] = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            self._loop(wake)
            return self._code
        finally:
            self._end()
            signal.set_wakeup_fd(old_fd)
            for number, handler in old.items():
                signal.signal(number, handler)
            self._selector.close()
            wake.close()
            waker.close()
            shutil.rmtree(self._directory, ignore_errors=True)

    def _on_signal(self, number: int, _: object) -> None:
        if number == signal.SIGHUP:
            self._hangups += 1
        elif number != signal.SIGCHLD:
            self._signals += 1

    def _loop(self, wake: socket.socket) -> None:
        while not self._signals:
            now = self._clock.monotonic()
            for worker in self._workers:
                if worker.process is None and now >= worker.restart_at:
                    self._start(worker)
            waits = [worker.restart_at - now for worker in self._workers if worker.process is None]
            self._look(wake, min(waits, default=None))
            for worker in self._workers:
                self._reap(worker)
            if self._hangups:
                self._hangups = 0
                for worker in self._workers:
                    if worker.process is not None and worker.ready:  # one that has not served yet reads the new one anyway
                        worker.process.send_signal(signal.SIGHUP)
            if self._code:
                return

    def _look(self, wake: socket.socket, timeout: float | None) -> None:
        """Wait for a signal, a child's end or a worker's word."""
        for key, _ in self._selector.select(None if timeout is None else max(timeout, 0.01)):
            if key.fileobj is wake:
                with contextlib.suppress(BlockingIOError):
                    wake.recv(4096)
            else:
                self._hear(key.data)

    def _hear(self, worker: _Worker) -> None:
        assert worker.channel is not None
        try:
            said = worker.channel.recv(16)
        except OSError:
            said = b""
        if not said:
            self._selector.unregister(worker.channel)
            worker.channel.close()
            worker.channel = None
            return
        worker.ready = self._served = True
        if not self._announced and all(each.ready for each in self._workers):
            self._announced = True
            self._on_started()

    def _start(self, worker: _Worker) -> None:
        ours, theirs = socket.socketpair()
        environ = os.environ | self._settings.to_environ() | {MULTIPROC: self._directory}
        # Ctrl-C goes to the whole process group, but is for us: the workers get a SIGTERM then. They inherit that it is blocked,
        # for it may come before any statement of theirs. One that comes to us meanwhile waits, and is not lost.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            worker.process = subprocess.Popen(
                [sys.executable, "-m", self._module, str(self._listener.fileno()), str(theirs.fileno())],
                pass_fds=(self._listener.fileno(), theirs.fileno()),
                env=environ,
                stdin=subprocess.DEVNULL,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        worker.channel, worker.ready, worker.started_at = ours, False, self._clock.monotonic()
        self._selector.register(ours, selectors.EVENT_READ, worker)

    def _reap(self, worker: _Worker) -> None:
        process = worker.process
        if process is None or process.poll() is None:
            return
        if worker.channel is not None:
            self._selector.unregister(worker.channel)
            worker.channel.close()
            worker.channel = None
        worker.process = None
        mark_process_dead(process.pid, self._directory)  # type: ignore[no-untyped-call]
        if process.returncode == REFUSED:
            self._code = 1
            return
        now = self._clock.monotonic()
        if now - worker.started_at < YOUNG_S:
            worker.pause_s = min(max(worker.pause_s * 2, 0.25), MAX_PAUSE_S)
        else:
            worker.pause_s = 0.0
        worker.restart_at = now + worker.pause_s
        self._deaths += 1
        logger.warning("worker died", pid=process.pid, exit=process.returncode, restart_in_s=worker.pause_s)
        if not self._served and self._deaths >= HOPELESS:
            logger.error("no worker could start")
            self._code = 1

    def _end(self) -> None:
        """Stop listening, let the workers finish, kill those that do not."""
        self._listener.close()
        running = [worker.process for worker in self._workers if worker.process is not None]
        for process in running:
            process.terminate()
        deadline = self._clock.monotonic() + self._settings.shutdown_grace_s + KILL_AFTER_S
        for process in running:
            while process.poll() is None:
                if self._signals > 1 or self._clock.monotonic() >= deadline:
                    process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.2)
        for worker in self._workers:
            if worker.channel is not None:
                worker.channel.close()
