"""The real AIPerf drives the gateway (rigs/aiperf): no errors, one scope and one bind per session."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import Launch, free_port
from tests.e2e.rigs import Rig

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
SESSIONS, TURNS = 20, 4


@pytest.mark.parametrize("streaming", [False, True])
def test_multi_turn(launch: Launch, limpet_command: list[str], store_url: str, tmp_path: Path, streaming: bool) -> None:
    """Twenty sessions of four turns, whose id AIPerf sends in three headers, none of which reaches the upstream."""
    rig = Rig("aiperf", "venv/bin/aiperf")
    mock, port, log = free_port(), free_port(), tmp_path / "requests.jsonl"
    python = str(rig.directory / "venv/bin/python")
    launch(python, str(rig.script), "_mock", "--port", str(mock), "--log", str(log), port=mock, RIG_DIR=str(rig.directory))
    gateway = ["gateway", "--upstream", f"http://127.0.0.1:{mock}", "--profile", "openai-chat", "--port", str(port)]
    launch(*limpet_command, *gateway, port=port, LIMPET_REDIS_URL=store_url)
    said = rig("run", "--url", f"http://127.0.0.1:{port}", *(["--streaming"] if streaming else []))
    print(f"\n{said}")
    assert (said["rc"], said["requests"], said["errors"]) == (0, SESSIONS * TURNS, 0)
    requests = [json.loads(line) for line in log.read_text().splitlines()]
    turns = [each for each in requests if each["path"] == "/v1/chat/completions"]
    scopes = Counter(each["body"]["prompt_cache_key"] for each in turns)
    assert sorted(scopes.values()) == [TURNS] * SESSIONS
    names = {name.lower() for each in turns for name, _ in each["headers"]}
    assert not names & {"x-correlation-id", "x-session-affinity", "x-dynamo-session-id"}
    metrics = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert f'limpet_binds_total{{outcome="confirmed"}} {SESSIONS}.0' in metrics
