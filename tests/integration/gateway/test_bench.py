"""``limpet bench gateway`` measures all three ways."""

from __future__ import annotations

import json

import pytest

from limpet.cli import main


def test_bench(capsys: pytest.CaptureFixture[str]) -> None:
    """A short run: every way at every concurrency, with sensible figures."""
    assert main(["bench", "gateway", "--requests", "200", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["way"], row["concurrency"]) for row in rows] == [
        (way, concurrency) for concurrency in (1, 32) for way in ("direct", "pass-through", "turn")
    ]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in rows)
