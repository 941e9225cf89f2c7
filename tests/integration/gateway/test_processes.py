"""``limpet gateway`` as users start it: processes, signals, and what it refuses to start with."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Launch, free_port, launch, limpet_command
from tests.integration.gateway.upstream import Request, answer, completion

__all__ = ["launch", "limpet_command"]


async def test_two_workers(launch: Launch, limpet_command: list[str], upstreams: Any, store_url: str) -> None:
    """Worker processes share the port, the store and the metrics; SIGTERM ends them after what is in flight."""
    (up,) = await upstreams()
    port = free_port()
    go = asyncio.Event()

    async def slow(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.json.get("user") == "slow":
            await go.wait()
        writer.write(answer(200, completion("up")))

    up.behave = slow
    command = [*limpet_command, "gateway", "--upstream", up.url, "--profile", "vllm", "--port", str(port), "--workers", "2"]
    process = await asyncio.to_thread(launch, *command, port=port, LIMPET_REDIS_URL=store_url)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:

        async def turn(number: int, **more: Any) -> httpx.Response:
            return await http.post(
                "/v1/chat/completions", json={"messages": [], **more}, headers={"X-Limpet-Key": f"k{number % 5}"}
            )

        got = await asyncio.gather(*(turn(number) for number in range(40)))
        assert {each.status_code for each in got} == {200}
        assert len({request.json["cache_salt"] for request in up.requests}) == 5
        text = (await http.get("/metrics")).text
        assert 'limpet_gateway_requests_total{route="chat",status="2xx"} 40.0' in text
        last = asyncio.create_task(turn(0, user="slow"))
        await up.arrived(41)
        process.process.send_signal(signal.SIGTERM)
        go.set()
        assert (await last).status_code == 200
    assert await asyncio.to_thread(process.process.wait, 20) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--profile", "vllm"], "at least one --upstream"),
        (["--upstream", "http://127.0.0.1:1"], "needs a --profile"),
        (["--upstream", "http://127.0.0.1:1", "--profile", "nothing"], "no such wire profile"),
        (["--upstream", "nonsense", "--profile", "vllm"], "must be http"),
        (["--upstream", "http://127.0.0.1:1", "--profile", "vllm", "--host", "0.0.0.0"], "Refused to listen"),
    ],
)
def test_refusals(limpet_command: list[str], tmp_path: Any, arguments: list[str], words: str) -> None:
    """One line that says what to do, and exit code 2."""
    done = subprocess.run(
        [*limpet_command, "gateway", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert sys.executable not in done.stderr
