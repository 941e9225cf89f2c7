"""A request leaves nothing for the garbage collector: one cycle in each is a pause of tens of milliseconds every few thousand."""

from __future__ import annotations

from typing import Any

from limpet.service.build import build
from limpet.settings import Settings
from tests.integration.gateway.conftest import Running
from tests.support.cycles import no_cycles


async def test_requests(store_url: str) -> None:
    """Turns by the short way and by the long one, and requests that are refused."""
    server = await Running(Settings.load(redis_url=store_url), build).start()

    async def post(path: str, **body: Any) -> dict[str, Any]:
        return dict((await server.http.post(f"/v1/{path}", json=body)).json())

    try:
        await post("workers", worker="w", pool="p")
        await post("resolve", key="warm", session_id="s", bind={"pool": "p"})
        with no_cycles():
            for number in range(3):
                key = f"k{number}"
                for _ in range(3):
                    await post("resolve", key=key, session_id="s")
                    await post("resolve", key=key, session_id="s", bind={"pool": "p", "wait_ms": 10})
                    turn = await post("resolve", key=key, session_id="s", bind={})
                    await post("resolve", key=key, session_id="s", kind="fork", parent_key="k0")
                    assert (await server.http.get("/v1/peek", params={"key": key})).status_code in (200, 404)
                await post("confirm", key=key, fence=turn["binding"]["fence"])
                await post("confirm", key=key, fence=1)
                await post("advance", key=key, reason="new")
                await post("resolve", key="k" * 300, session_id="s")
                await server.http.post("/v1/resolve", content=b"{")
                await server.http.get("/v1/nothing")
                await post("batch", requests=[{"key": key, "session_id": "s"}])
    finally:
        await server.stop()
