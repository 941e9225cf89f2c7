"""Secrets stay where they belong: marked keys, ids, tokens, passwords and API keys in no log, metric, key name, event, error."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import redis

from tests.integration.gateway.upstream import Upstream
from tests.support.servers import Server, wait_until

MARK = "QUUX"
KEY, SESSION, PARENT, WORDS = f"tel:+4917{MARK}1", f'resp_"é{MARK}2', f"tel:+4917{MARK}3", f"what people say {MARK}4"
TOKEN, METRICS, STRANGER = f"tok-{MARK}5-0123456789", f"met-{MARK}6-0123456789", f"str-{MARK}7-0123456789"
PASSWORD, SCOPE_SECRET = f"pw{MARK}8pw", f"ss{MARK}9ss"
API_KEY, BODY_KEY = f"sk-proj-{MARK}10abcdefghijkl", f"sk-live-{MARK}11abcdefghijkl"
PROGRAM = "import sys; from limpet.settings import Settings; {imports}; sys.exit({run})"
SERVE = PROGRAM.format(imports="from limpet.service.server import run", run="run(Settings.load())")
GATEWAY = PROGRAM.format(imports="from limpet.gateway.run import run", run="run(Settings.load())")


class Process:
    """A program of ours, and all that it says."""

    def __init__(self, code: str, folder: Path, environ: dict[str, str]) -> None:
        folder.mkdir()
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("LIMPET_", "REDIS_URL"))}
        self.out = folder / "out"
        with self.out.open("wb") as out:
            self.process = subprocess.Popen([sys.executable, "-c", code], cwd=folder, env=clean | environ, stdout=out, stderr=out)
        wait_until(lambda: re.search("listening on .*;", self.said) or self.process.poll() is not None, 30, "the start")
        assert self.process.poll() is None, self.said
        self.url = re.findall(r"listening on (http://\S+?);", self.said)[0]

    @property
    def said(self) -> str:
        """Its output."""
        return self.out.read_text()

    def stop(self) -> None:
        """To its end."""
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def locked(fresh_server: Callable[..., Server]) -> Iterator[tuple[str, redis.Redis]]:
    """A store with a password: its URL, and a client."""
    server = fresh_server()
    server.cli("CONFIG", "SET", "requirepass", PASSWORD)
    url = f"unix://:{PASSWORD}@{server.socket}"
    with redis.Redis.from_url(url) as client:
        yield url, client


def listen(url: str, heard: list[str], up: threading.Event) -> None:
    """What the stream of events says, until it ends."""
    with httpx.stream("GET", f"{url}/v1/events", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30) as stream:
        for line in stream.iter_lines():
            heard.append(line)
            up.set()


async def test_nothing_leaks(locked: tuple[str, redis.Redis], tmp_path: Path) -> None:
    """Debug logs and debug samples on, good requests and bad ones: the mark turns up nowhere but where its owner asked for it."""
    import asyncio

    url, store = locked
    up = await Upstream("up0").start()
    rights = {"sha256": hashlib.sha256(TOKEN.encode()).hexdigest(), "rights": ["resolve", "admin"]}
    environ = {
        "LIMPET_REDIS_URL": url, "LIMPET_PORT": "0", "LIMPET_LOG_LEVEL": "debug", "LIMPET_DEBUG_SAMPLES": "9",
        "LIMPET_DEBUG_CHARS": "4000", "LIMPET_TOKENS": json.dumps([rights]), "LIMPET_METRICS_TOKEN": METRICS,
        "LIMPET_SCOPE_SECRET": SCOPE_SECRET, "LIMPET_UPSTREAMS": up.url, "LIMPET_PROFILE": "openai-chat",
    }  # fmt: skip
    service = await asyncio.to_thread(Process, SERVE, tmp_path / "service", environ)
    gateway = await asyncio.to_thread(Process, GATEWAY, tmp_path / "gateway", environ)
    heard: list[str] = []
    ready = threading.Event()
    listener = threading.Thread(target=listen, args=(service.url, heard, ready), daemon=True)
    listener.start()
    try:
        assert await asyncio.to_thread(ready.wait, 20)
        told, texts = await _drive(service.url, gateway.url)
        metrics = {"Authorization": f"Bearer {METRICS}"}
        async with httpx.AsyncClient(timeout=20) as http:
            texts += [(await http.get(f"{each}/{page}", headers=metrics)).text for each in (service.url, gateway.url)
                      for page in ("metrics", "readyz")]  # fmt: skip
            sampled = await http.get(f"{gateway.url}/v1/debug/samples", headers={"X-Limpet-Token": TOKEN})
        names = [name.decode() for name in store.scan_iter()]
        await asyncio.to_thread(wait_until, lambda: any("event: bind" in line for line in heard), 10, "the events")
    finally:
        await asyncio.to_thread(service.stop)
        await asyncio.to_thread(gateway.stop)
        await up.stop()
    samples = sampled.json()["samples"]
    assert samples
    assert '"sample"' in gateway.said
    assert names
    for text in (service.said, gateway.said, sampled.text):
        # What people say is what a sample is for; nothing else of theirs.
        assert MARK not in text.replace(WORDS, "")
    for text in (*names, *texts, *heard):
        assert MARK not in text
    assert {401, 400, 404} <= told


async def _drive(service: str, gateway: str) -> tuple[set[int], list[str]]:
    """Requests of each kind; the statuses, and the texts of what was refused."""
    known, api = {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": f"Bearer {API_KEY}", "X-Limpet-Token": TOKEN}
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": WORDS}],
        "user": KEY,
        "metadata": {"api_key": BODY_KEY},
    }
    statuses: set[int] = set()
    refused: list[str] = []
    async with httpx.AsyncClient(timeout=20) as http:
        for path, sent in (
            ("resolve", {"key": KEY, "session_id": SESSION, "parent_key": PARENT, "kind": "fork"}),
            ("resolve", {"key": KEY, "session_id": SESSION, "bind": {"worker": "w", "commit": True}}),
            ("advance", {"key": KEY, "reason": "new"}),
            ("suspend", {"key": KEY}),
            ("bindings/confirm", {"key": KEY, "fence": 1}),
            ("resolve", {"key": KEY + "\0", "session_id": SESSION}),
            ("resolve", {"key": KEY * 99, "session_id": SESSION}),
            ("resolve", {"key": KEY, "session_id": SESSION, "kind": PARENT}),
            ("batch", {"requests": [{"op": "resolve", "key": KEY + "\0", "session_id": SESSION}]}),
        ):
            for headers in (known, {"Authorization": f"Bearer {STRANGER}"}):
                got = await http.post(f"{service}/v1/{path}", json=sent, headers=headers)
                statuses.add(got.status_code)
                if got.status_code != 200 or path == "batch":
                    refused.append(got.text)
        got = await http.get(f"{service}/v1/conversations/{PARENT}nobody", headers=known)
        statuses.add(got.status_code)
        refused.append(got.text)
        refused.append((await http.get(f"{service}/v1/history/{KEY}", headers=known)).text)
        for extra in (
            {"X-Limpet-Key": KEY, "X-Limpet-Session-ID": SESSION.encode()},
            {"X-Session-ID": KEY},
            {"X-Limpet-Kind": KEY},
        ):
            for headers in (api, {**api, "X-Limpet-Token": STRANGER}):
                sent = body | ({"metadata": {"s": SESSION}} if "X-Limpet-Session-ID" in extra else {})
                got = await http.post(f"{gateway}/v1/chat/completions", json=sent, headers=headers | extra)
                statuses.add(got.status_code)
                if got.status_code != 200:
                    refused.append(got.text)
    return statuses, refused
