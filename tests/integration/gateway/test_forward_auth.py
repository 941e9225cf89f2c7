"""The forward-auth route of ``limpet serve``: what a proxy is told, over a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from limpet import Limpet
from limpet.scope import declared, physical
from limpet.service.build import build
from limpet.settings import Settings
from tests.support.servers import wait_until_async

STATIC = ("http://127.0.0.1:8001", "http://127.0.0.1:8002", "http://[::1]:8003")


@pytest.fixture
async def service(
    store_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> AsyncIterator[Callable[..., httpx.AsyncClient]]:
    """A function that makes a service and a client of it."""
    monkeypatch.chdir(tmp_path)
    made: list[tuple[httpx.AsyncClient, Any]] = []

    def make(**flags: Any) -> httpx.AsyncClient:
        parts = build(Settings.load(redis_url=store_url, **flags))
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app=parts.app), base_url="http://limpet")
        made.append((http, parts))
        return http

    yield make
    for http, parts in made:
        await http.aclose()
        await parts.app._clients.close()


async def ask(http: httpx.AsyncClient, method: str = "GET", **headers: str) -> httpx.Headers:
    """The answer's headers."""
    got = await http.request(
        method, "/v1/forward-auth", headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    assert got.status_code == 200, got.text
    return got.headers


async def test_static_workers(service: Any, limpet: Limpet) -> None:
    """A conversation is bound at once, committed, to one of the upstreams; all services agree."""
    one, two = service(upstreams=STATIC), service(upstreams=tuple(reversed(STATIC)))
    told = await ask(one, x_limpet_key="k")
    state = await limpet.peek("k")
    assert state is not None
    assert state.binding is not None
    assert (state.binding.state, state.binding.worker) == ("bound", told["x-limpet-worker"])
    assert told["x-limpet-scope"] == declared("k", state.epoch)
    assert (told["x-limpet-epoch"], told["x-limpet-fence"]) == (str(state.epoch), str(state.binding.fence))
    assert told["x-limpet-worker"] == "http://" + told["x-limpet-address"]
    for method in ("GET", "POST", "PUT", "OPTIONS", "HEAD"):
        assert (await ask(two, method, x_session_id="k"))["x-limpet-worker"] == told["x-limpet-worker"]
    used = {(await ask(two, x_limpet_key=f"k{n}"))["x-limpet-address"] for n in range(40)}
    assert used == {"127.0.0.1:8001", "127.0.0.1:8002", "[::1]:8003"}


async def test_lost_worker_moves_once(service: Any, limpet: Limpet) -> None:
    """Several proxies report the same loss: one move, by compare-and-set on the fence; the epoch stays."""
    http = service(upstreams=STATIC)
    told = await ask(http, x_limpet_key="k")
    moved = [await ask(http, x_limpet_key="k", x_limpet_lost=told["x-limpet-fence"]) for _ in range(3)]
    assert {each["x-limpet-worker"] for each in moved} == {moved[0]["x-limpet-worker"]}
    assert moved[0]["x-limpet-worker"] != told["x-limpet-worker"]
    assert moved[0]["x-limpet-epoch"] == told["x-limpet-epoch"]
    state = await limpet.peek("k")
    assert state is not None
    assert state.binding is not None
    assert (state.binding.state, state.binding.worker) == ("bound", moved[0]["x-limpet-worker"])


async def test_worker_that_is_none_of_ours_any_more(service: Any) -> None:
    """An upstream that was taken out of the configuration is left at the next turn."""
    first = await ask(service(upstreams=STATIC[:1]), x_limpet_key="k")
    second = await ask(service(upstreams=STATIC[1:2]), x_limpet_key="k")
    assert (first["x-limpet-worker"], second["x-limpet-worker"]) == STATIC[:2]


async def test_pool(service: Any, limpet: Limpet) -> None:
    """With a pool the registry's workers are proposed, and their addresses told."""
    for n in range(2):
        await limpet.register(f"w{n}", pool="gpu", address=f"10.0.0.{n}:8000", ttl_ms=0)
    http = service(pool="gpu")
    told: dict[str, str] = {}

    async def placed() -> bool:  # the first turn may come before the first look at the registry; then the next one is placed
        told.clear()
        told.update(await ask(http, x_limpet_key="k"))
        return "x-limpet-worker" in told

    await wait_until_async(placed, 10, "a worker for the conversation")
    assert told["x-limpet-address"] == f"10.0.0.{told['x-limpet-worker'][1:]}:8000"
    moved = await ask(http, x_limpet_key="k", x_limpet_lost=told["x-limpet-fence"])
    assert moved["x-limpet-worker"] != told["x-limpet-worker"]
    assert moved["x-limpet-address"] == f"10.0.0.{moved['x-limpet-worker'][1:]}:8000"


async def test_without_workers_only_the_scope(service: Any, limpet: Limpet) -> None:
    """Nothing is bound where no worker is known."""
    http = service()
    told = await ask(http, x_limpet_key="k")
    assert "x-limpet-scope" in told
    assert "x-limpet-worker" not in told
    state = await limpet.peek("k")
    assert state is not None
    assert state.binding is None
    fork = await ask(http, x_limpet_key="k", x_limpet_kind="fork", x_limpet_session_id="b")
    assert fork["x-limpet-scope"] == physical("b")
    assert not any(name.startswith("x-limpet") for name in await ask(http))


async def test_new_and_bad(service: Any) -> None:
    """X-Limpet-New advances; what is invalid is 400."""
    http = service(upstreams=STATIC)
    first = await ask(http, x_limpet_key="k")
    fresh = await ask(http, x_limpet_key="k", x_limpet_new="1")
    assert int(fresh["x-limpet-epoch"]) > int(first["x-limpet-epoch"])
    bad: list[dict[str, str]] = [
        {"X-Limpet-Key": "x" * 257},
        {"X-Limpet-Session-ID": "s", "X-Limpet-New": "1"},
        {"X-Limpet-Key": "k", "X-Limpet-Lost": "w1"},
        {"X-Limpet-Key": "k", "X-Limpet-Kind": "spoon"},
    ]
    for headers in bad:
        assert (await http.get("/v1/forward-auth", headers=headers)).status_code == 400


async def test_tokens(service: Any) -> None:
    """The proxy's token goes beside the client's Authorization, which is the worker's."""
    import hashlib

    http = service(upstreams=STATIC, tokens=[{"sha256": hashlib.sha256(b"proxy").hexdigest(), "namespace": "prod"}])
    assert (await http.get("/v1/forward-auth", headers={"X-Limpet-Key": "k"})).status_code == 401
    told = await ask(http, x_limpet_key="k", x_limpet_token="proxy", authorization="Bearer sk-worker")
    assert told["x-limpet-scope"] == declared("k", int(told["x-limpet-epoch"]), "prod")
    assert (await ask(http, x_limpet_key="k", authorization="Bearer proxy"))["x-limpet-scope"] == told["x-limpet-scope"]
