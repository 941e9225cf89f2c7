"""One cluster for all tests of the folder, whole again before each; a namespace per test."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from limpet import Limpet

from .rig import Cluster, Sentinels, Server, make_certificates, running

_names = itertools.count()


@pytest.fixture(scope="session")
def one_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Started once: it takes some seconds."""
    with running(Cluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


@pytest.fixture
def cluster(one_cluster: Cluster) -> Cluster:
    """The cluster, whole."""
    one_cluster.wait_whole()
    return one_cluster


@pytest.fixture
def sentinels(tmp_path: Any) -> Iterator[Sentinels]:
    """A primary, two replicas and three sentinels of the test's own."""
    with running(Sentinels(tmp_path / "sentinels")) as made:
        yield made


@pytest.fixture
def server(tmp_path: Any) -> Iterator[Server]:
    """One server of the test's own."""
    with running(Server(tmp_path / "server", "--appendonly", "no")) as made:
        yield made


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files of a CA and of a server's certificate."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def namespace() -> str:
    """Nobody else's."""
    return f"c{next(_names)}"


@pytest.fixture
async def connect(namespace: str) -> AsyncIterator[Callable[..., Awaitable[Limpet]]]:
    """Opens clients, in the test's namespace unless another is named, and closes them in the end."""
    clients: list[Limpet] = []

    async def opened(url: str, **settings: Any) -> Limpet:
        client = Limpet.connect(url, **{"namespace": namespace, "partitions": 64, **settings})
        clients.append(client)
        await client.open()
        return client

    yield opened
    await asyncio.gather(*(client.close() for client in clients))
