"""A real gateway (uvicorn, in the test's own loop) between a real client, real upstreams and a real store."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn

from limpet import Limpet
from limpet.gateway.build import build
from limpet.service.build import Built
from limpet.service.serving import configure
from limpet.settings import Settings
from tests.integration.gateway.upstream import Upstream


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Running:
    """A gateway, or what else ``make`` makes, and a client of it."""

    def __init__(self, settings: Settings, make: Callable[[Settings], Built] = build) -> None:
        self.parts = make(settings)
        self.server = _Server(configure(self.parts.app, settings))
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.AsyncClient(base_url=self.url, timeout=20)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Running:
        self._task = asyncio.create_task(self.server.serve(sockets=[self.socket]))
        while not self.server.started:
            assert not self._task.done(), self._task.exception()
            await asyncio.sleep(0.005)
        return self

    async def stop(self) -> None:
        await self.http.aclose()
        self.server.should_exit = True
        assert self._task is not None
        await self._task

    async def chat(
        self, key: str | None = "k", text: str = "hello", *, headers: dict[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        """One turn."""
        body = {"model": "mock", "messages": [{"role": "user", "content": text}], **more}
        sent = {**({"X-Limpet-Key": key} if key is not None else {}), **(headers or {})}
        return await self.http.post("/v1/chat/completions", json=body, headers=sent)


Start = Callable[..., Awaitable[Running]]


@pytest.fixture
async def upstreams() -> AsyncIterator[Callable[..., Awaitable[list[Upstream]]]]:
    """A function that starts so many upstreams."""
    started: list[Upstream] = []

    async def start(count: int = 1) -> list[Upstream]:
        fresh = [await Upstream(f"up{len(started) + n}").start() for n in range(count)]
        started.extend(fresh)
        return fresh

    yield start
    for each in started:
        await each.stop()


@pytest.fixture
async def gateway(store_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> AsyncIterator[Start]:
    """A function that starts a gateway before some upstreams."""
    monkeypatch.chdir(tmp_path)
    running: list[Running] = []

    async def start(*ups: Upstream, profile: str = "openai-chat", **flags: Any) -> Running:
        given = {
            "redis_url": store_url,
            "upstreams": tuple(up.url for up in ups),
            "profile": profile,
            "shutdown_grace_s": 2,
            "deadline_ms": 2000,  # patient: see tests/conftest.py
        }
        running.append(await Running(Settings.load(**{**given, **flags})).start())
        return running[-1]

    yield start
    for each in running:
        await each.stop()


@pytest.fixture
async def limpet(store_url: str) -> AsyncIterator[Limpet]:
    """A client of the same store, to look at what the gateway wrote."""
    async with Limpet.connect(store_url) as client:
        yield client
