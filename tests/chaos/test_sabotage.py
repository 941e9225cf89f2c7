"""The whole chain finds what is really wrong with a store: damage that no fault in the history accounts for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from limpet.chaos.history import Fault
from limpet.chaos.run import Options, run
from limpet.chaos.workload import Workload

from .rig import Node, Standalone


def lose_records(node: Node, rng: random.Random) -> None:
    """Conversations vanish."""
    for name in node.do("KEYS", "limpet:*:conv:*"):
        node.do("DEL", name)


def set_records_back(node: Node, rng: random.Random) -> None:
    """Conversations are what they were at the last visit."""
    for name in node.do("KEYS", "limpet:*:conv:*"):
        if node.do("EXISTS", f"old {name}"):
            node.do("COPY", f"old {name}", name, "REPLACE")
    for name in node.do("KEYS", "limpet:*:conv:*"):
        node.do("COPY", name, f"old {name}", "REPLACE")


class Saboteur:
    """Does something every half second, and tells nobody."""

    def __init__(self, node: Node, damage: Callable[[Node, random.Random], None]) -> None:
        self._node, self._damage = node, damage

    async def torment(self, rng: random.Random, record: Callable[[Fault], None]) -> None:
        while True:
            await asyncio.sleep(0.5)
            await asyncio.to_thread(self._damage, self._node, rng)


@pytest.mark.parametrize("damage", [lose_records, set_records_back])
async def test_sabotage(tmp_path: Path, damage: Any) -> None:
    """Lost and old records break what is promised without a fault: the checker says so, and proves it with calls."""
    folder = tmp_path / "histories"
    folder.mkdir()
    with Standalone(tmp_path / "rig") as rig:
        nemesis = Saboteur(rig.nodes[0], damage)
        options = Options(seconds=5, workload=Workload(keys=4, think_ms=30))
        _, report = await run(rig.url, folder, options, topology="sabotaged", nemesis=nemesis)
    assert not report.verdict.sound
    assert {"replaced-twice", "went-back", "undone"} & set(report.verdict.totals)
    assert all(violation.calls for violation in report.verdict.violations)
    assert "issued-twice" not in report.verdict.totals  # G3 holds whatever is lost
