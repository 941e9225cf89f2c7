"""Real servers to be broken: standalone, a primary with replicas and sentinels, a cluster of 3 + 3. All with an append-only file.

``appendfsync no``: what a killed process wrote is the kernel's and stays (only a power cut would lose it), and no background
fsync ever holds a write back.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from limpet.chaos.nemesis import pause
from limpet.chaos.recording import now_us
from limpet.embedded.binary import server_binary

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
SETTLE_S = 45.0


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Waits for a condition; servers that do not answer yet count as not yet."""
    end = now_us() + seconds * 1_000_000
    while True:
        with contextlib.suppress(redis.RedisError, OSError):
            if result := condition():
                return result
        assert now_us() < end, f"{what} did not come within {seconds} s"
        pause(0.05)


def _first_port() -> int:
    with socket.socket() as probe:  # runs that share the machine begin at different places
        probe.bind(("127.0.0.1", 0))
        return 10_000 + int(probe.getsockname()[1]) % 20_000


_ports = itertools.count(_first_port())


def free_port() -> int:
    """A port that nobody listens on, below the range of outgoing connections."""
    for port in _ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise AssertionError("no port is free")


class Node:
    """One server process."""

    def __init__(self, folder: Path, *arguments: str | int, config: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.name, self.port = folder, folder.name, free_port()
        self.clock_offset_s = 0
        first = () if config is None else (str(config), "--sentinel")
        self._arguments = (*first, "--port", self.port, "--bind", "127.0.0.1", "--dir", str(folder), *arguments)
        self.process: subprocess.Popen[bytes] | None = None
        retry: Retry = Retry(NoBackoff(), 0)
        self._client = redis.Redis("127.0.0.1", self.port, socket_timeout=2, retry=retry, decode_responses=True, protocol=2)
        self._client.response_callbacks.clear()

    def do(self, *words: str | int | bytes) -> Any:
        return self._client.execute_command(*words)

    def info(self, section: str) -> dict[str, str]:
        lines = [line.split(":", 1) for line in self.do("INFO", section).splitlines() if ":" in line]
        return dict(lines)

    def start(self) -> None:
        environment = dict(os.environ)
        if self.clock_offset_s:
            environment |= {"LD_PRELOAD": str(FAKETIME), "FAKETIME": f"{self.clock_offset_s:+d}"}
            environment |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        with (self.folder / "log").open("ab") as log:
            command = [str(server_binary()), *map(str, self._arguments)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        until(lambda: self.do("PING"), 20, f"the server in {self.folder}")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def cont(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def take_copy(self) -> None:
        """The append-only file as it is now; a last command that is cut short is dropped when it is loaded."""
        shutil.rmtree(self.folder / "copy", ignore_errors=True)
        shutil.copytree(self.folder / "appendonlydir", self.folder / "copy")

    def put_copy_back(self) -> None:
        shutil.rmtree(self.folder / "appendonlydir")
        shutil.copytree(self.folder / "copy", self.folder / "appendonlydir")


DATA = ("--save", "", "--appendonly", "yes", "--appendfsync", "no", "--repl-diskless-sync-delay", 0, "--repl-timeout", 5)


class _Rig:
    nodes: list[Node]

    def __enter__(self) -> Any:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        raise NotImplementedError

    def everything(self) -> list[Node]:
        return self.nodes

    def stop(self) -> None:
        for node in self.everything():
            node.kill()

    def primaries(self) -> list[Node]:
        return [node for node in self.nodes if node.process is not None and node.info("replication")["role"] == "master"]

    def replicas(self, primary: Node) -> list[Node]:
        def follows(node: Node) -> bool:
            return node.process is not None and node.info("replication").get("master_port") == str(primary.port)

        return [node for node in self.nodes if node is not primary and follows(node)]

    def reign(self) -> object:
        if len(self.nodes) == 1:
            return None
        return sorted((node.name, node.info("replication")["master_replid"]) for node in self.primaries())

    def settle(self) -> None:
        for node in self.everything():
            node.cont()
            if node.process is None:
                node.start()
        until(lambda: self.whole() and (pause(0.3) or self.whole()), SETTLE_S, "a whole set of servers")

    def whole(self) -> bool:
        raise NotImplementedError


class Standalone(_Rig):
    """One server."""

    def __init__(self, folder: Path) -> None:
        self.nodes = [Node(folder / "d0", *DATA)]
        self.url = f"redis://127.0.0.1:{self.nodes[0].port}/0"

    def start(self) -> None:
        self.nodes[0].start()

    def whole(self) -> bool:
        return bool(self.nodes[0].do("PING"))


def _in_step(primary: Node, replicas: int) -> bool:
    """All replicas stream, and none is far behind."""
    info = primary.info("replication")
    online = [info.get(f"slave{i}", "") for i in range(int(info["connected_slaves"]))]
    if len(online) != replicas or not all("state=online" in each for each in online):
        return False
    offsets = [int(each.split("offset=")[1].split(",")[0]) for each in online]
    return all(int(info["master_repl_offset"]) - offset < 100_000 for offset in offsets)


class Sentinels(_Rig):
    """One primary, two replicas, three sentinels."""

    service = "mymaster"

    def __init__(self, folder: Path) -> None:
        self.nodes = [Node(folder / f"d{i}", *DATA) for i in range(3)]
        self.sentinels = []
        for i in range(3):
            config = folder / f"s{i}" / "sentinel.conf"
            config.parent.mkdir(parents=True)
            lines = [f"sentinel monitor {self.service} 127.0.0.1 {self.nodes[0].port} 2"]
            lines += [f"sentinel down-after-milliseconds {self.service} 1000", f"sentinel failover-timeout {self.service} 4000"]
            config.write_text("\n".join([*lines, f"sentinel parallel-syncs {self.service} 2", ""]))
            self.sentinels.append(Node(config.parent, config=config))
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        self.url = f"redis+sentinel://{hosts}/{self.service}/0"

    def everything(self) -> list[Node]:
        return [*self.sentinels, *self.nodes]

    def start(self) -> None:
        for i, node in enumerate(self.nodes):
            node.start()
            if i:
                node.do("REPLICAOF", "127.0.0.1", self.nodes[0].port)
        until(lambda: _in_step(self.nodes[0], 2), 20, "the replicas")
        for sentinel in self.sentinels:
            sentinel.start()
        self.settle()

    def whole(self) -> bool:
        primaries = self.primaries()
        if len(primaries) != 1 or not _in_step(primaries[0], 2):
            return False
        for sentinel in self.sentinels:
            flat = sentinel.do("SENTINEL", "MASTER", self.service)
            state = dict(zip(flat[::2], flat[1::2], strict=True))
            if int(state["port"]) != primaries[0].port or state["flags"] != "master" or state["num-other-sentinels"] != "2":
                return False
            replicas = sentinel.do("SENTINEL", "REPLICAS", self.service)
            states = [dict(zip(each[::2], each[1::2], strict=True)) for each in replicas]
            if len(states) != 2 or any(each["flags"] != "slave" for each in states):
                return False
        return True


class Cluster(_Rig):
    """Three primaries, a replica each."""

    def __init__(self, folder: Path) -> None:
        shared = (*DATA, "--cluster-enabled", "yes", "--cluster-node-timeout", 1000, "--cluster-replica-validity-factor", 0)
        shared += ("--cluster-allow-replica-migration", "no", "--cluster-require-full-coverage", "no")
        self.nodes = []
        for i in range(6):
            self.nodes.append(Node(folder / f"n{i}", *shared, "--cluster-port", free_port()))
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def start(self) -> None:
        bounds = (0, 5461, 10923, 16384)
        for i, node in enumerate(self.nodes):
            node.start()
            node.do("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            if i < 3:
                node.do("CLUSTER", "ADDSLOTSRANGE", bounds[i], bounds[i + 1] - 1)
            if i:
                bus = self.nodes[0]._arguments[-1]
                node.do("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, bus)
        for node in self.nodes:
            until(lambda node=node: "cluster_known_nodes:6" in node.do("CLUSTER", "INFO"), 20, "the nodes' acquaintance")
        for primary, replica in zip(self.nodes[:3], self.nodes[3:], strict=True):
            name = primary.do("CLUSTER", "MYID")
            until(lambda name=name, replica=replica: name in replica.do("CLUSTER", "NODES"), 20, "acquaintance")
            replica.do("CLUSTER", "REPLICATE", name)
        self.settle()

    def whole(self) -> bool:
        views = set()
        for node in self.nodes:
            if "cluster_state:ok" not in node.do("CLUSTER", "INFO"):
                return False
            lines = [line.split() for line in node.do("CLUSTER", "NODES").splitlines()]
            if any("fail" in line[2] or "handshake" in line[2] or (line[7] != "connected") for line in lines):
                return False
            owners = sorted((line[0], *line[8:]) for line in lines if "master" in line[2])
            followers = sorted((line[0], line[3]) for line in lines if "slave" in line[2])
            views.add((tuple(owners), tuple(followers)))
        primaries = self.primaries()
        return len(views) == 1 and len(primaries) == 3 and all(_in_step(each, 1) for each in primaries)

    def used_slots(self, primary: Node) -> list[int]:
        """Slots of a primary that hold keys."""
        slots = []
        for line in primary.do("CLUSTER", "SLOTS"):
            if line[2][1] == primary.port:
                slots += [slot for slot in range(line[0], line[1] + 1) if primary.do("CLUSTER", "COUNTKEYSINSLOT", slot)]
        return slots

    def move(self, slot: int, source: Node, target: Node) -> None:
        """Key by key, as redis-cli does it, but slowly, so that turns meet the slot half moved."""
        here, there = source.do("CLUSTER", "MYID"), target.do("CLUSTER", "MYID")
        target.do("CLUSTER", "SETSLOT", slot, "IMPORTING", here)
        source.do("CLUSTER", "SETSLOT", slot, "MIGRATING", there)
        while keys := source.do("CLUSTER", "GETKEYSINSLOT", slot, 20):
            source.do("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
            pause(0.02)
        for node in (target, source):
            node.do("CLUSTER", "SETSLOT", slot, "NODE", there)
