"""Servers of their own for the scripts, of each kind that this machine has."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tests.support.servers import BINARIES

from .rig import Rig

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
