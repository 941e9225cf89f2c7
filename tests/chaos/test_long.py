"""The long form: LIMPET_CHAOS_MINUTES (10 by default) on each topology."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from limpet.chaos import faults
from limpet.chaos.nemesis import FaultKind

from .conftest import Torment
from .rig import FAKETIME, Cluster, Sentinels, Standalone

MINUTES = float(os.environ.get("LIMPET_CHAOS_MINUTES", "10"))

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(MINUTES * 60 + 240)]


@pytest.mark.parametrize(
    ("rig", "kinds"),
    [(Standalone, faults.STANDALONE), (Sentinels, faults.SENTINEL), (Cluster, faults.CLUSTER)],
    ids=["standalone", "sentinel", "cluster"],
)
async def test_topology(tmp_path: Path, torment: Torment, rig: type[Any], kinds: Sequence[FaultKind]) -> None:
    """No guarantee is violated, whatever is done to the servers, one fault at a time."""
    report = await torment(rig(tmp_path / "rig"), kinds, MINUTES * 60)
    assert report.verdict.sound


async def test_moved_clock(tmp_path: Path, torment: Torment) -> None:
    """A server whose clock is moved ahead and back over intact data issues nothing twice and freezes nothing."""
    assert FAKETIME.exists(), "needs libfaketime (apt-get install faketime)"
    report = await torment(Standalone(tmp_path / "rig"), faults.STANDALONE_CLOCK, MINUTES * 60)
    assert report.verdict.sound
