"""The nemesis for a store of the user's own: what it sees, and what it does when it is allowed to."""

from __future__ import annotations

import asyncio
from pathlib import Path

from limpet.chaos.run import Options, run
from limpet.chaos.store import StoreTormentor

from .rig import Cluster, Standalone, until


async def test_a_restart_is_seen(tmp_path: Path) -> None:
    """A primary that restarts with old data during the run is noticed, and judged as a loss."""
    folder = tmp_path / "histories"
    folder.mkdir()
    with Standalone(tmp_path / "rig") as rig:
        node = rig.nodes[0]

        def set_back() -> None:
            node.take_copy()
            node.kill()
            node.put_copy_back()
            node.start()

        running = asyncio.create_task(run(rig.url, folder, Options(seconds=6), topology="own", nemesis=StoreTormentor(rig.url)))
        await asyncio.to_thread(until, lambda: node.do("DBSIZE") > 40, 10, "some conversations")
        await asyncio.to_thread(set_back)
        history, report = await running
    assert "seen: a primary replaced or restarted" in {fault.name for fault in history.faults}
    assert all(fault.lossy for fault in history.faults)
    assert report.verdict.sound, report.verdict.violations


async def test_a_failover_that_was_allowed(tmp_path: Path) -> None:
    """CLUSTER FAILOVER promotes a replica while the clients go on."""
    folder = tmp_path / "histories"
    folder.mkdir()
    with Cluster(tmp_path / "rig") as rig:
        before = {node.name for node in rig.primaries()}
        nemesis = StoreTormentor(rig.url, ("failover",), calm_s=(1.0, 1.0))
        _, report = await run(rig.url, folder, Options(seconds=6), topology="own", nemesis=nemesis)
        after = {node.name for node in rig.primaries()}
    assert before != after
    assert report.verdict.sound, report.verdict.violations
    assert report.durable > 0
