"""The short form: half a minute of everything that heals quickly. The long one is in ``test_long``."""

from __future__ import annotations

from pathlib import Path

from limpet.chaos import faults

from .conftest import Torment
from .rig import Cluster, Standalone


async def test_standalone(tmp_path: Path, torment: Torment) -> None:
    """A single server that is killed, frozen, flushed and set back to old snapshots issues nothing twice."""
    report = await torment(Standalone(tmp_path / "rig"), faults.STANDALONE, 10, calm_s=(0.3, 1.0))
    assert report.verdict.sound
    assert report.calls > 200
    assert report.faults
    assert report.durable == report.undurable == 0


async def test_cluster(tmp_path: Path, torment: Torment) -> None:
    """A cluster whose primaries die and are replaced keeps what it answered durable."""
    report = await torment(Cluster(tmp_path / "rig"), faults.CLUSTER, 12, calm_s=(0.5, 1.5))
    assert report.verdict.sound
    assert report.calls > 300
    assert report.faults
    assert report.durable > 0
