"""A quota per namespace over real HTTP: one tenant that floods is held, the other is not."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from limpet.service.build import build
from limpet.service.serving import configure
from limpet.settings import Settings
from tests.integration.gateway.conftest import Running, Start

WORDS = {"loud": "the-loud-tenant-01", "calm": "the-calm-tenant-01"}
TOKENS = [
    {"sha256": hashlib.sha256(word.encode()).hexdigest(), "namespace": name, "rights": ["resolve", "admin"]}
    for name, word in WORDS.items()
]
QUOTA = {"tokens": TOKENS, "quota_per_s": 0.05, "quota_burst": 5}
TURN = {"key": "k", "session_id": "s"}


class Service(Running):
    """The service in place of the gateway."""

    def __init__(self, settings: Settings) -> None:
        import socket

        self.parts = build(settings)  # type: ignore[assignment]
        from tests.integration.gateway.conftest import _Server

        self.server = _Server(configure(self.parts.app, settings))
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.AsyncClient(base_url=self.url, timeout=20)
        self._task = None


async def flood(ask: Callable[[str], Any], times: int = 20) -> dict[str, list[int]]:
    """The loud tenant asks many times at once, the calm one a few amid that."""
    calls = [*(("loud",) * times), *(("calm",) * 3)]
    got = await asyncio.gather(*(ask(name) for name in calls))
    for answer in got:
        if answer.status_code == 429:
            assert int(answer.headers["retry-after"]) >= 1
    return {name: [answer.status_code for each, answer in zip(calls, got, strict=True) if each == name] for name in WORDS}


def held(found: dict[str, list[int]]) -> None:
    """Five of the loud tenant were taken; all of the calm one's."""
    assert found["calm"] == [200] * 3
    assert (found["loud"].count(200), found["loud"].count(429)) == (5, len(found["loud"]) - 5)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/resolve", TURN),
        ("GET", "/v1/forward-auth", None),
        ("GET", "/v1/workers", None),
        ("GET", "/v1/history/k", None),
        ("GET", "/v1/stats", None),
    ],
)
async def test_service(
    store_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, method: str, path: str, body: dict[str, str] | None
) -> None:
    """On every kind of route."""
    monkeypatch.chdir(tmp_path)
    service = await Service(Settings.load(redis_url=store_url, **QUOTA)).start()
    try:

        async def ask(name: str) -> httpx.Response:
            headers = {"Authorization": f"Bearer {WORDS[name]}"}
            return await service.http.request(method, path, json=body, headers=headers)

        held(await flood(ask))
    finally:
        await service.stop()


async def test_batches_and_heartbeats(store_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Each item of a batch counts, so the debt holds the next turn; a heartbeat still comes through, up to a bound of its own."""
    monkeypatch.chdir(tmp_path)
    service = await Service(Settings.load(redis_url=store_url, **QUOTA)).start()
    loud, calm = ({"Authorization": f"Bearer {WORDS[name]}"} for name in ("loud", "calm"))
    try:
        assert (await service.http.put("/v1/workers/w", json={"pool": "p"}, headers=loud)).status_code == 200
        items = {"requests": [{"op": "resolve", **TURN}] * 50}
        assert (await service.http.post("/v1/batch", json=items, headers=loud)).status_code == 200
        assert (await service.http.post("/v1/resolve", json=TURN, headers=loud)).status_code == 429
        assert (await service.http.post("/v1/resolve", json=TURN, headers=calm)).status_code == 200
        beats = [(await service.http.post("/v1/workers/w/heartbeat", headers=loud)).status_code for _ in range(8)]
        assert beats == [200] * 5 + [429] * 3
    finally:
        await service.stop()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_gateway(gateway: Start, upstreams: Any, path: str) -> None:
    """What is stamped and what is passed through; what is refused reaches no upstream."""
    (up,) = await upstreams()
    gate = await gateway(up, **QUOTA)

    async def ask(name: str) -> httpx.Response:
        headers = {"X-Limpet-Token": WORDS[name], "X-Limpet-Key": name}
        return await gate.http.post(path, json={"model": "m", "messages": []}, headers=headers)

    held(await flood(ask))
    assert len(up.requests) == 8
