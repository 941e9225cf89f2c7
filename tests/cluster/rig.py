"""Real servers for the topologies: a node, a cluster of 3 + 3, and a primary with replicas and sentinels."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from tests.support.servers import BINARY

NODE_TIMEOUT_MS = 1000
BUS = 10_000  # the distance of the bus from the port: Redis 6.2 has no setting for it
DOWN_AFTER_MS = 1200  # longer than a busy machine keeps a process waiting: no second failover that no test asked for


def tls_binary() -> str:
    """The bundled server has no TLS; Debian's redis-server has, and runs as a sentinel too."""
    found = shutil.which("redis-server")
    assert found is not None, "the TLS tests need redis-server (apt-get install redis-server)"
    return found


def until(condition: Callable[[], Any], timeout_s: float = 15.0, what: str = "the condition") -> Any:
    """Waits for a condition; what it gave. Errors of servers that are not up yet count as not yet."""
    end = time.monotonic() + timeout_s
    pause = threading.Event()
    while True:
        with contextlib.suppress(redis.RedisError, OSError):
            if result := condition():
                return result
        assert time.monotonic() < end, f"{what} did not come within {timeout_s} s"
        pause.wait(0.02)


async def eventually(condition: Callable[[], Any], timeout_s: float = 15.0, what: str = "the condition") -> Any:
    """Waits, in the event loop, for a condition that may be a coroutine function; what it gave."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    while True:
        result = condition()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return result
        assert loop.time() < end, f"{what} did not come within {timeout_s} s"
        await asyncio.sleep(0.01)


def free_port() -> int:
    """A port that nobody listens on, nor on the cluster bus beside it; both below the range of outgoing connections."""
    return next(port for port in _ports if _is_free(port) and _is_free(port + BUS))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _first_port() -> int:
    with socket.socket() as probe:  # runs that share the machine begin at different places
        probe.bind(("127.0.0.1", 0))
        return 11_000 + int(probe.getsockname()[1]) % 9_500


_ports = itertools.count(_first_port())


class Server:
    """One server process in a folder of its own."""

    def __init__(
        self, folder: Path, *arguments: str | int, binary: str = BINARY, tls: dict[str, str] | None = None, **login: str
    ):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.binary, self.tls, self.login = folder, binary, tls, login
        self.port = free_port()
        ports: tuple[str | int, ...] = ("--port", self.port)
        if tls is not None:
            ports = ("--port", 0, "--tls-port", self.port, "--tls-replication", "yes", "--tls-auth-clients", "no")
            ports += ("--tls-cert-file", tls["cert"], "--tls-key-file", tls["key"], "--tls-ca-cert-file", tls["ca"])
        self.arguments = (*ports, "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", *arguments)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Server:
        with (self.folder / "log").open("ab") as out:
            command = [self.binary, *map(str, self.arguments)]
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        until(self.pings, what=f"the server in {self.folder}")
        return self

    def pings(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        return bool(self.do("PING"))

    def client(self, **options: Any) -> redis.Redis:
        tls = {} if self.tls is None else {"ssl": True, "ssl_ca_certs": self.tls["ca"]}
        login = {**self.login, **tls, **options}
        return redis.Redis(port=self.port, host="127.0.0.1", socket_timeout=5, retry=Retry(NoBackoff(), 0), protocol=2, **login)

    def do(self, *words: Any) -> Any:
        with self.client() as client:
            return client.execute_command(*words)

    def info(self, section: str) -> dict[str, Any]:
        with self.client() as client:
            return client.info(section)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    @property
    def runs(self) -> bool:
        return self.process is not None


class Cluster:
    """Three primaries, a replica each."""

    def __init__(self, folder: Path) -> None:
        shared = ("--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS, "--appendonly", "no")
        shared += ("--cluster-replica-validity-factor", 0, "--cluster-allow-replica-migration", "no")
        shared += ("--repl-diskless-sync-delay", 0, "--cluster-require-full-coverage", "no")
        self.nodes = [Server(folder / f"n{i}", *shared) for i in range(6)]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:3])

    def start(self) -> Cluster:
        for node in self.nodes:
            node.start()
        first = self.nodes[0]
        bounds = (0, 5461, 10923, 16384)
        for i, node in enumerate(self.nodes):
            node.do("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            if i < 3:
                node.do("CLUSTER", "ADDSLOTS", *range(bounds[i], bounds[i + 1]))  # no ADDSLOTSRANGE before 7.0
            if i:
                node.do("CLUSTER", "MEET", "127.0.0.1", first.port)
        for node in self.nodes:
            until(lambda node=node: b"cluster_known_nodes:6" in node.do("CLUSTER", "INFO"), what="the nodes' acquaintance")
        for primary, replica in zip(self.nodes[:3], self.nodes[3:], strict=True):
            replica.do("CLUSTER", "REPLICATE", self.id_of(primary))
        self.wait_whole()
        return self

    @staticmethod
    def id_of(node: Server) -> str:
        return str(node.do("CLUSTER", "MYID").decode())

    def primaries(self) -> list[Server]:
        return [node for node in self.nodes if node.runs and node.info("replication")["role"] == "master"]

    def whole(self) -> bool:
        """Every node agrees on the same three primaries, each with its replica in step."""
        views = set()
        for node in self.nodes:
            if b"cluster_state:ok" not in node.do("CLUSTER", "INFO"):
                return False
            views.add(tuple(sorted((first, last, primary[1]) for first, last, primary, *_ in _slots(node))))
            info = node.info("replication")
            if info["role"] == "slave" and (info["master_link_status"] != "up" or info["master_sync_in_progress"]):
                return False
            if info["role"] == "master" and info["connected_slaves"] < 1:
                return False
        return len(views) == 1 and len(self.primaries()) == 3

    def wait_whole(self) -> None:
        for node in self.nodes:
            if not node.runs:
                node.start()
            node.resume()
        until(self.whole, 20, "the whole cluster")

    def owner(self, key: str) -> Server:
        return self.owner_of_slot(key_slot(key.encode()))

    def owner_of_slot(self, slot: int) -> Server:
        """Whom a node that is no party to it believes to own the slot."""
        for node in self.nodes:
            if node.runs:
                for first, last, primary, *_ in _slots(node):
                    if first <= slot <= last:
                        return next(each for each in self.nodes if each.port == primary[1])
        raise AssertionError(f"nobody owns slot {slot}")

    def settled_owner_of_slot(self, slot: int) -> Server:
        """Whom all nodes believe to own the slot, once they agree: before 7.0 the news of a move goes round by gossip."""

        def agreed() -> Server | None:
            ports = {primary[1] for node in self.nodes for first, last, primary, *_ in _slots(node) if first <= slot <= last}
            return next(node for node in self.nodes if node.port in ports) if len(ports) == 1 else None

        found: Server = until(agreed, what=f"agreement of the nodes about slot {slot}")
        return found

    def begin_move(self, slot: int, source: Server, target: Server) -> None:
        target.do("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        source.do("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))

    def move_keys(self, slot: int, source: Server, target: Server, at_most: int = 1000) -> int:
        keys = source.do("CLUSTER", "GETKEYSINSLOT", slot, at_most)
        if keys:
            source.do("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        return len(keys)

    def end_move(self, slot: int, source: Server, target: Server) -> None:
        name = self.id_of(target)
        for node in (target, source):
            node.do("CLUSTER", "SETSLOT", slot, "NODE", name)

    def move(self, slot: int, source: Server, target: Server) -> None:
        self.begin_move(slot, source, target)
        while self.move_keys(slot, source, target):
            pass
        self.end_move(slot, source, target)

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()


def _slots(node: Server) -> list[Any]:
    with node.client() as client:
        client.response_callbacks.clear()
        found: list[Any] = client.execute_command("CLUSTER SLOTS")
        return found


class Sentinels:
    """One primary, two replicas, three sentinels.

    ``login``: user and password of the data nodes; ``sentinel_password``: that of the sentinels; ``tls``: certificate files.
    """

    SERVICE = "mymaster"

    def __init__(
        self,
        folder: Path,
        *,
        tls: dict[str, str] | None = None,
        login: tuple[str, str] | None = None,
        sentinel_password: str = "",
        binary: str = BINARY,
    ) -> None:
        binary = tls_binary() if tls else binary
        access: tuple[str, ...] = ()
        known: dict[str, str] = {}
        if login is not None:
            user, password = login
            access = ("--user", user, "on", f">{password}", "~*", "&*", "+@all", "--user", "default", "off")
            access += ("--masteruser", user, "--masterauth", password)
            known = {"username": user, "password": password}
        shared = ("--repl-diskless-sync-delay", "0", "--appendonly", "no", "--repl-timeout", "5", *access)
        self.nodes = [Server(folder / f"d{i}", *shared, binary=binary, tls=tls, **known) for i in range(3)]
        self.sentinels = []
        for i in range(3):
            conf = folder / f"s{i}" / "sentinel.conf"
            conf.parent.mkdir(parents=True)
            lines = [f"sentinel monitor {self.SERVICE} 127.0.0.1 {self.nodes[0].port} 2"]
            lines += [f"sentinel down-after-milliseconds {self.SERVICE} {DOWN_AFTER_MS}"]
            lines += [f"sentinel failover-timeout {self.SERVICE} 4000", f"sentinel parallel-syncs {self.SERVICE} 2"]
            if login is not None:
                lines += [f"sentinel auth-user {self.SERVICE} {login[0]}", f"sentinel auth-pass {self.SERVICE} {login[1]}"]
            if sentinel_password:
                lines += [f"requirepass {sentinel_password}"]
            conf.write_text("\n".join(lines) + "\n")
            secret = {"password": sentinel_password} if sentinel_password else {}
            server = Server(conf.parent, binary=binary, tls=tls, **secret)
            kept = list(server.arguments)
            del kept[kept.index("--save") : kept.index("--save") + 2]
            server.arguments = (str(conf), *kept, "--sentinel")
            self.sentinels.append(server)

    def start(self) -> Sentinels:
        for i, node in enumerate(self.nodes):
            node.start()
            if i:
                node.do("REPLICAOF", "127.0.0.1", self.nodes[0].port)
        until(lambda: self.nodes[0].info("replication")["connected_slaves"] == 2, what="the replicas")
        for sentinel in self.sentinels:
            sentinel.start()
        self.wait_whole()
        return self

    def state(self, sentinel: Server) -> dict[str, Any]:
        with sentinel.client() as client:
            return client.sentinel_master(self.SERVICE)

    def named(self) -> Server:
        """Whom all sentinels that run name, once they agree."""

        def agreed() -> Server | None:
            ports = {int(each.do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.SERVICE)[1]) for each in self.sentinels if each.runs}
            return next(node for node in self.nodes if node.port in ports) if len(ports) == 1 else None

        found: Server = until(agreed, what="agreement of the sentinels")
        return found

    def wait_whole(self, replicas: int = 2) -> None:
        def whole() -> bool:
            states = [self.state(each) for each in self.sentinels]
            return all(each["num-slaves"] >= replicas and each["num-other-sentinels"] == 2 for each in states)

        until(whole, 20, "the sentinels' acquaintance")

    def url(self, query: str = "", userinfo: str = "") -> str:
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        return f"redis+sentinel://{userinfo}{hosts}/{self.SERVICE}/0{query}"

    def stop(self) -> None:
        for server in (*self.sentinels, *self.nodes):
            server.kill()


def make_certificates(folder: Path) -> dict[str, str]:
    """A CA and a certificate for 127.0.0.1, made with openssl."""
    folder.mkdir(parents=True, exist_ok=True)
    ca_key, ca, key, request, cert = (str(folder / name) for name in ("ca.key", "ca.crt", "s.key", "s.csr", "s.crt"))
    extension = folder / "ext"
    extension.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True)

    curve: Sequence[str] = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *curve, "-keyout", ca_key, "-out", ca, "-days", "2", "-subj", "/CN=Limpet test CA")
    openssl("req", *curve, "-keyout", key, "-out", request, "-subj", "/CN=127.0.0.1")
    signing = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2", "-extfile", str(extension))
    openssl("x509", "-req", "-in", request, "-out", cert, *signing)
    return {"ca": ca, "cert": cert, "key": key}


@contextlib.contextmanager
def running(made: Any) -> Iterator[Any]:
    """Starts it, and stops it whatever happens."""
    try:
        yield made.start()
    finally:
        if isinstance(made, Server):
            made.kill()
        else:
            made.stop()
