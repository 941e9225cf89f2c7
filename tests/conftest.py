"""Real servers for every test: one store per test process, emptied before each test, and servers of a test's own."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator

import pytest
import redis
from hypothesis import HealthCheck, settings

from limpet.client_settings import Settings
from tests.support.leaks import immortal_keys
from tests.support.servers import BINARIES, BINARY, Server, wait_until_async

_names = itertools.count()

# On a busy machine an example may take long for reasons that are none of its own.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


def pytest_configure(config: pytest.Config) -> None:
    """Where Python is told to keep no bytecode, as in many containers, it compiles all that a process imports each time: 1.5 s
    for each of the hundreds that tests start. They keep theirs in pytest's cache (or a folder of the run) instead."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", "") and not hasattr(config, "workerinput"):
        cache = getattr(config, "cache", None)
        if cache is None:
            made = tempfile.TemporaryDirectory(prefix="limpet-bytecode-", ignore_cleanup_errors=True)
            config.add_cleanup(made.cleanup)
            os.environ["PYTHONPYCACHEPREFIX"] = made.name
        else:
            os.environ["PYTHONPYCACHEPREFIX"] = str(cache.mkdir("bytecode"))


def pytest_xdist_auto_num_workers() -> int:
    """Two per core: half of a test's time it waits, for a failover, a ttl, a process to come up."""
    return 2 * (os.cpu_count() or 1)


@pytest.fixture(autouse=True)
def patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that names no deadline has one of two seconds: the product's 250 ms degrades turns where two cores run four
    servers, a cluster and other tests at once. Tests of the deadline itself are marked ``default_deadline``."""
    if request.node.get_closest_marker("default_deadline") is None:
        monkeypatch.setitem(Settings.__init__.__kwdefaults__, "deadline_ms", 2000)


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The bundled Valkey (or what TESTS_SERVER names), without persistence, shared by the tests of one process."""
    server = Server(tmp_path_factory.mktemp("valkey")).start()
    yield server
    server.kill9()


@pytest.fixture
def store_url(valkey: Server) -> str:
    """An empty store that has none of our scripts."""
    with redis.Redis.from_url(valkey.url) as client:
        client.flushall()
        client.script_flush()
    return valkey.url


@pytest.fixture
def fresh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Makes started servers that the test may stop, kill and restore; arguments go to the server, ``binary`` is of BINARIES."""
    made: list[Server] = []

    def make(*arguments: str, binary: str = BINARY) -> Server:
        server = Server(tmp_path_factory.mktemp("server"), *arguments, binary=binary)
        made.append(server)
        return server.start()

    yield make
    for server in made:
        server.kill9()


@pytest.fixture(params=sorted(BINARIES))
def each_server(request: pytest.FixtureRequest, fresh_server: Callable[..., Server]) -> Server:
    """A fresh server of each kind that this machine has."""
    return fresh_server(binary=BINARIES[request.param])


@pytest.fixture
def no_leaks(store_url: str) -> Iterator[None]:
    """After the test, whatever is left in the store goes by itself some day (design, section 4: the table of keys)."""
    yield
    with redis.Redis.from_url(store_url) as client:
        assert immortal_keys(client) == []


@pytest.fixture
def wait_for() -> Callable[[Callable[[], Awaitable[object]], float, str], Awaitable[None]]:
    """Waits for a condition instead of sleeping."""
    return wait_until_async
