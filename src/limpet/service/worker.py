"""A worker process of ``limpet serve --workers N``: ``python -m limpet.service.worker LISTENER CHANNEL``.

Its settings come through the environment. CHANNEL is one end of a socket pair with the supervisor: one byte goes out
when requests are served; its end of file means that the supervisor is gone, even by kill -9, and begins a graceful
stop.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import Callable

from limpet.metrics import MULTIPROC
from limpet.service import logs
from limpet.service.build import Built, build
from limpet.service.serving import serve
from limpet.settings import Settings

__all__ = ["main"]


def main(listener_fd: int, channel_fd: int, make: Callable[[Settings], Built] = build) -> int:
    """Serve until told to stop; the exit code is :func:`limpet.service.serving.serve`'s."""
    settings = Settings.load()
    logs.configure(settings.log_level)
    listener = socket.socket(fileno=listener_fd)
    channel = socket.socket(fileno=channel_fd)
    channel.setblocking(False)
    orphaned = False

    def started(stop: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def gone() -> None:
            nonlocal orphaned
            try:
                if channel.recv(1):
                    return
            except BlockingIOError:
                return
            except OSError:
                pass  # reset: gone as well
            orphaned = True
            loop.remove_reader(channel)
            stop()

        loop.add_reader(channel, gone)
        channel.send(b"r")

    code = serve(settings, listener, started, make)
    directory = os.environ.get(MULTIPROC)
    if orphaned and directory:
        shutil.rmtree(directory, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
