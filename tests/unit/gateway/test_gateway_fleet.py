"""The registry as a gateway takes it: its own upstreams always, a named pool's workers, and nobody else's."""

from __future__ import annotations

from typing import Any

import pytest

from limpet.gateway.fleet import Fleet
from limpet.gateway.options import OWN_POOL, Options
from limpet.gateway.problems import AllDrained, NoUpstream
from limpet.gateway.vitals import Vitals
from limpet.registry import Registry
from limpet.settings import Settings
from limpet.workers import Snapshot, Worker

A, B = "http://a:1", "http://b:1"


def fleet(*urls: str, **flags: Any) -> tuple[Fleet, Vitals]:
    """A fleet of these upstreams, and what is known of their health."""
    options = Options.of(Settings.load(upstreams=urls, profile="vllm", **flags))
    vitals = Vitals(options.limits, lambda: 0.0)
    return Fleet(options, vitals), vitals


def worker(name: str, pool: str = OWN_POOL, state: Any = "live", address: str | None = None, drained: bool = False) -> Worker:
    """A registered one."""
    ago = 5 if drained or state == "draining" else None
    return Worker(name, pool, name if address is None else address, 1.0, "", {}, 15_000, state, 0, 0, draining_for_ms=ago)


def seen(*workers: Worker) -> Snapshot:
    """What the registry says."""
    return Snapshot(7, {each.worker: each for each in workers})


def test_unregistered_upstreams_are_there() -> None:
    """Nobody has registered them yet, or nobody beats for them: they are as live as this gateway's configuration."""
    ours, _ = fleet(A + ";capacity=3", B)
    view = ours.amend(seen(worker(B, state="gone")))
    assert view.tick == 7
    assert view.pools == {OWN_POOL: {A: 3.0, B: 1.0}}
    assert {view.workers[name].state for name in (A, B)} == {"live"}
    assert {each.worker for each in ours.all} == {A, B}


@pytest.mark.parametrize("state", ["draining", "gone"])
def test_drained_is_drained(state: Any) -> None:
    """Also one that no gateway has beaten for since."""
    ours, _ = fleet(A, B)
    view = ours.amend(seen(worker(A, state=state, drained=True)))
    assert view.pools == {OWN_POOL: {B: 1.0}}
    assert view.workers[A].state == "draining"
    assert {ours.choose(f"k{n}") for n in range(9)} == {ours.get(B)}
    assert ours.counts() == {"healthy": 1, "unhealthy": 0, "ejected": 0, "draining": 1}


def test_others_are_never_proposed_without_a_named_pool() -> None:
    """Another gateway's upstreams have the same pool's name; a caller's credentials are not for them. They are not condemned
    either."""
    ours, _ = fleet(A)
    view = ours.amend(seen(worker(A), worker("http://other:1"), worker("gpu", "gpus")))
    assert view.pools == {OWN_POOL: {A: 1.0}}
    assert view.workers["http://other:1"].state == "live"
    assert ours.get("http://other:1") is None
    assert not ours.fit("http://other:1")


def test_a_named_pool() -> None:
    """Its workers are there, at their addresses, beside the upstreams; not what is gone, elsewhere, or has no address."""
    ours, _ = fleet(A, pool="gpus")
    listed = seen(
        worker("g1", "gpus", address="10.0.0.1:80"),
        worker("g2", "gpus", address=""),
        worker("g3", "gpus", "gone"),
        worker("g4", "other"),
        worker("g5", "gpus", "draining"),
    )
    view = ours.amend(listed)
    assert view.pools == {"gpus": {A: 1.0, "g1": 1.0}}
    found = ours.get("g1")
    assert found is not None
    assert found.url("/x") == "http://10.0.0.1:80/x"
    assert sorted(each.worker for each in ours.all) == ["g1", "g5", A]
    ours.amend(listed)
    assert ours.get("g1") is found, "the same one as before, as long as nothing about it changed"
    ours.amend(seen(worker("g1", "gpus", address="10.0.0.2:80")))
    assert ours.get("g1") is not found


def test_health_shapes_proposals_and_panic_ends_that() -> None:
    """Unhealthy ones are not proposed; when all are, all of them are."""
    ours, vitals = fleet(A, B)
    registry = Registry(None, None, lambda: 0.0, ours)  # type: ignore[arg-type]
    registry.snapshot = ours.amend(seen())
    vitals.unreachable(A)
    assert {registry.propose(OWN_POOL, f"{n}") for n in range(20)} == {B}
    assert registry.propose(OWN_POOL, "x", [B]) == A, "rather an unhealthy one than none"
    assert {ours.choose(f"k{n}") for n in range(20)} == {ours.get(B)}
    assert (ours.panics, ours.usable) == (False, True)
    vitals.unreachable(B)
    assert {registry.propose(OWN_POOL, f"{n}") for n in range(40)} == {A, B}
    assert len({ours.choose(f"k{n}") for n in range(40)}) == 2
    assert (ours.panics, ours.usable) == (True, False)
    assert ours.counts() == {"healthy": 0, "unhealthy": 0, "ejected": 2, "draining": 0}


def test_nowhere_to_go() -> None:
    """The error says why: all were tried, all are drained, or the pool is empty."""
    ours, _ = fleet(A)
    with pytest.raises(NoUpstream, match="can be reached"):
        ours.require("k", ours.all)
    ours.amend(seen(worker(A, state="draining")))
    with pytest.raises(AllDrained, match="undrain"):
        ours.require("k")
    assert (ours.panics, ours.usable) == (False, False)
    empty, _ = fleet(pool="gpus")
    with pytest.raises(NoUpstream, match="gpus"):
        empty.require("k")
    assert not empty.usable
