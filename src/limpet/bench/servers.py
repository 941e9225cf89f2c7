"""Servers of a bench's own: the bundled Valkey in other shapes than the embedded store has (replicas, clusters, persistence)."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import redis

from limpet.embedded.binary import server_binary
from limpet.errors import InvalidRequest, StoreUnavailable

__all__ = ["Server", "cluster", "running"]

START_S: Final = 15.0
_LAUNCHER: Final = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""PR_SET_PDEATHSIG: a bench that is killed leaves no server behind (Linux)."""


class Server:
    """One server process, on a port of the loopback and a Unix socket."""

    def __init__(self, folder: Path, *arguments: str, binary: Path | None = None) -> None:
        folder.mkdir(parents=True)
        self.port = _free_port()
        self.socket = folder / "s"
        command = [
            str(binary or server_binary()),
            *("--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(self.socket)),
            *("--dir", str(folder), "--save", "", "--logfile", str(folder / "log")),
            *("--repl-diskless-sync-delay", "0", *arguments),
        ]
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client = redis.Redis(unix_socket_path=str(self.socket))

    @property
    def url(self) -> str:
        """For clients."""
        return f"unix://{self.socket}"

    def wait(self) -> None:
        """Until it answers. Raises StoreUnavailable."""
        until, tick = time.monotonic() + START_S, threading.Event()
        while time.monotonic() < until and self.process.poll() is None:
            with contextlib.suppress(redis.RedisError):
                self.client.ping()
                return
            tick.wait(0.01)
        raise StoreUnavailable(f"A server of the bench did not start; see {self.socket.parent / 'log'}.")

    def do(self, *words: str | int) -> Any:
        """One command."""
        return self.client.execute_command(*words)  # type: ignore[no-untyped-call]

    def replicate(self, primary: Server) -> None:
        """Becomes its replica, and waits until it is one."""
        self.do("REPLICAOF", "127.0.0.1", primary.port)
        until, tick = time.monotonic() + START_S, threading.Event()
        while self.client.info("replication")["master_link_status"] != "up":
            if time.monotonic() > until:
                raise StoreUnavailable("A replica of the bench did not reach its primary.")
            tick.wait(0.02)

    def stop(self) -> None:
        """Ends it."""
        self.client.close()
        self.process.kill()
        self.process.wait(START_S)


def _free_port() -> int:
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port <= 55_000:  # the cluster's bus listens 10,000 above
            return port


@contextlib.contextmanager
def running(*shapes: tuple[str, ...], binary: Path | None = None) -> Iterator[list[Server]]:
    """One server per tuple of arguments, in a folder that goes with them. ``binary``: another one than the bundled Valkey.

    Raises InvalidRequest where ``binary`` is no program.
    """
    if binary is not None and not (binary.is_file() and os.access(binary, os.X_OK)):
        raise InvalidRequest(f"{binary} is no program; name the file of a redis-server or valkey-server.", field="server")
    with tempfile.TemporaryDirectory(prefix="limpet-bench-") as folder, contextlib.ExitStack() as stack:
        servers = []
        for number, shape in enumerate(shapes):
            server = Server(Path(folder) / str(number), *shape, binary=binary)
            stack.callback(server.stop)
            servers.append(server)
        for server in servers:
            server.wait()
        yield servers


@contextlib.contextmanager
def cluster(primaries: int) -> Iterator[tuple[str, list[Server]]]:
    """A cluster of so many primaries: (its URL, its servers)."""
    shape = ("--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
    with running(*[shape] * primaries) as servers:
        for number, server in enumerate(servers):
            first, last = (16384 * edge // primaries for edge in (number, number + 1))
            server.do("CLUSTER", "ADDSLOTSRANGE", first, last - 1)
            server.do("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in servers[1:]:
            server.do("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
        until, tick = time.monotonic() + START_S, threading.Event()
        while not all(_whole(server, primaries) for server in servers):
            if time.monotonic() > until:
                raise StoreUnavailable("The cluster of the bench did not come together.")
            tick.wait(0.05)
        yield "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in servers), servers


def _whole(server: Server, primaries: int) -> bool:
    info = server.do("CLUSTER", "INFO")
    text = info if isinstance(info, dict) else dict(line.split(":") for line in info.decode().split())
    return text["cluster_state"] == "ok" and int(text["cluster_known_nodes"]) == primaries
