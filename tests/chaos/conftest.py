"""Runs a workload against a rig and shows what was found."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from limpet.chaos.history import Fault
from limpet.chaos.nemesis import FaultKind, Tormentor
from limpet.chaos.report import Report
from limpet.chaos.run import Options, run

__all__ = ["Torment"]

Torment = Callable[..., Any]


@pytest.fixture
def torment(tmp_path: Path) -> Torment:
    """Gives a coroutine: random clients on ``rig`` while the nemesis draws from ``kinds``. LIMPET_CHAOS_SEED repeats a run."""

    async def go(rig: Any, kinds: Sequence[FaultKind], seconds: float, calm_s: tuple[float, float] = (2.0, 5.0)) -> Report:
        folder = tmp_path / "histories"
        folder.mkdir()
        seed = int(os.environ.get("LIMPET_CHAOS_SEED") or int.from_bytes(os.urandom(3)))
        print(f"LIMPET_CHAOS_SEED={seed}, histories in {folder}")

        def faulted(fault: Fault) -> None:
            print(f"{fault.name} {fault.node}: healed after {(fault.healed_us - fault.start_us) / 1e6:.1f} s")

        with rig:
            nemesis = Tormentor(rig, kinds, calm_s)
            options = Options(seconds=seconds, seed=seed)
            _, report = await run(rig.url, folder, options, topology=type(rig).__name__, nemesis=nemesis, faulted=faulted)
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
        return report

    return go
