"""Two gateways before two real Dynamo 1.6.1 frontends (rigs/dynamo): bare and with Limpet, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.conftest import Launch, free_port
from tests.e2e.rigs import Rig

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
Up = Callable[..., tuple[Rig, list[str]]]


@pytest.fixture
def up(launch: Launch, limpet_command: list[str], store_url: str) -> Iterator[Up]:
    """A function that brings a fresh Dynamo up, and two gateways before it: the rig, and the gateways as --url options."""
    rig = Rig("dynamo", "venv/bin/python")

    def start(ttl: int = 60) -> tuple[Rig, list[str]]:
        rig("down")
        frontends = rig("up", "--ttl", str(ttl))["urls"]
        options: list[str] = []
        for _ in range(2):
            port = free_port()
            ups = [part for url in frontends for part in ("--upstream", url)]
            command = [*limpet_command, "gateway", *ups, "--profile", "dynamo", "--port", str(port)]
            launch(*command, port=port, LIMPET_REDIS_URL=store_url)
            options += ["--url", f"http://127.0.0.1:{port}"]
        return rig, options

    yield start
    rig("down")


def show(bare: Any, limpet: Any) -> None:
    """Side by side."""
    print(f"\nbare   {bare}\nlimpet {limpet}")


def test_race(up: Up) -> None:
    """Concurrent first turns at two entry points: never two workers, at once or later."""
    rig, gateways = up()
    bare, limpet = rig("race"), rig("race", *gateways)
    show(bare, limpet)
    assert bare["split_first_turn"] > 0
    assert (limpet["split_first_turn"], limpet["split_later"], limpet["errors"]) == (0, 0, {})


def test_restart(up: Up) -> None:
    """A frontend restarts: no live session moves."""
    rig, gateways = up()
    bare, limpet = rig("restart"), rig("restart", *gateways)
    show(bare, limpet)
    assert (limpet["moved_at_second"], limpet["moved_at_first"]) == (0, 0)


def test_idle(up: Up) -> None:
    """A gap longer than the router's ttl and shorter than the bind ttl: no session moves."""
    rig, gateways = up(ttl=5)
    bare, limpet = rig("idle", "--idle", "8"), rig("idle", "--idle", "8", *gateways)
    show(bare, limpet)
    assert limpet["moved"] == 0


def test_loss(up: Up) -> None:
    """A worker is killed: its sessions are rebound, both gateways agree, and no request fails after that."""
    rig, gateways = up()
    limpet = rig("loss", *gateways)
    rig, _ = up()
    show(rig("loss"), limpet)
    assert (limpet["disagree"], limpet["never"]) == (0, 0)
    assert sum(limpet["failed_requests"].values()) <= limpet["served_by_victim"]
