"""A store of their own for the histories: they flush it, restore it and delete keys behind the scripts' back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tests.support.servers import BINARY


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    """A client of an empty store that nobody else uses, on a socket, without persistence."""
    folder = tmp_path_factory.mktemp("histories")
    socket = folder / "s"
    process = subprocess.Popen(
        [BINARY, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", folder],
        stdout=subprocess.DEVNULL,
    )
    try:
        with connect(socket) as client:
            yield client
    finally:
        process.kill()
        process.wait()


def connect(socket: Path) -> redis.Redis:
    """Connects as soon as the server listens (10 s at most)."""
    retry = Retry(ConstantBackoff(0.02), 500)
    client = redis.Redis(unix_socket_path=str(socket), retry=retry, retry_on_error=[redis.ConnectionError])
    client.ping()
    return client
