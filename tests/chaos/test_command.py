"""``limpet chaos`` as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from limpet.chaos.history import load
from limpet.chaos.run import judge

from .rig import Standalone, until


def limpet(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from limpet.cli import main; sys.exit(main())", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, env={**os.environ, **variables}, check=False)


def test_on_a_store_of_the_users_own(tmp_path: Path) -> None:
    """It reports, exits with 0, leaves the history where asked, and nothing in the store. What it may do, it does."""
    with Standalone(tmp_path / "rig") as rig:
        kept = tmp_path / "kept"
        ran = limpet(
            "chaos", "--minutes", "0.15", "--keep", str(kept), "--allow", "script-flush", "--json", LIMPET_REDIS_URL=rig.url
        )
        assert ran.returncode == 0, ran.stderr
        report = msgspec.json.decode(ran.stdout)
        assert report["calls"] > 100
        assert {fault["name"] for fault in report["faults"]} == {"script-flush"}
        assert until(lambda: rig.nodes[0].do("DBSIZE") == 0, 5, "an empty store")
        again = limpet("chaos", "--keep", str(kept), LIMPET_REDIS_URL=rig.url)
        assert again.returncode == 2
        assert "another run" in again.stderr
        history = load(sorted(kept.glob("*.jsonl")))
        assert judge(history).verdict.sound


def test_on_a_throw_away_store() -> None:
    """Without a store it brings its own, and shows tables."""
    ran = limpet("chaos", "--minutes", "0.05", LIMPET_REDIS_URL="", REDIS_URL="")
    assert ran.returncode == 0, ran.stderr
    assert "No violation" in ran.stdout


def test_a_failover_that_cannot_be(tmp_path: Path) -> None:
    """One server cannot fail over: wrong usage, in one line."""
    ran = limpet("chaos", "--allow", "failover", LIMPET_REDIS_URL="redis://127.0.0.1:1/0")
    assert ran.returncode == 2
    assert "cannot fail over" in ran.stderr
