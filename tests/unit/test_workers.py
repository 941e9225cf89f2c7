"""What a snapshot of the registry condemns, and how a state is read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from limpet.results import Binding
from limpet.workers import Snapshot, Worker, read_list, read_worker

NOW = 10_000_000


def worker(state: Any = "live", incarnation: str = "1") -> Worker:
    return Worker("w", "p", "", 1.0, incarnation, {}, 0, state, 0, 0)


def binding(fence: int | None = 5, name: str | None = "w", incarnation: str | None = "1") -> Binding:
    return Binding("continue", "bound", worker=name, fence=fence, incarnation=incarnation)


@pytest.mark.parametrize(
    ("found", "bound", "pool", "why"),
    [
        (worker(), binding(), "p", None),
        (worker("draining"), binding(), None, "draining"),
        (worker("gone"), binding(), None, "gone"),
        (worker(incarnation="2"), binding(), None, "reincarnated"),
        (worker(incarnation="2"), binding(incarnation=None), None, None),
        (worker(incarnation=""), binding(), None, None),
        (None, binding(), "p", "gone"),
        (None, binding(), None, None),
        (worker("gone"), binding(fence=NOW), "p", None),
        (worker("gone"), binding(fence=NOW + 1), "p", None),
        (worker("gone"), binding(fence=NOW - 1), "p", "gone"),
        (worker("gone"), binding(name=None), "p", None),
        (worker("gone"), binding(fence=None), "p", None),
        (worker(), binding(name=None), "p", "unplaced"),
        (worker(), binding(name=None), "other", None),
        (worker(), binding(name=None), None, None),
        (worker(), binding(name=None, fence=NOW), "p", None),
    ],
)
def test_what_is_condemned(found: Worker | None, bound: Binding, pool: str | None, why: str | None) -> None:
    """Gone, draining, reincarnated, bound to nobody; never by a snapshot as old as the binding, nor a stranger without a pool."""
    assert Snapshot(NOW, {} if found is None else {"w": found}).condemns(bound, pool) == why


def state(ttl_us: int = 0, draining: int = 0, heartbeat: int = NOW) -> bytes:
    return msgspec.msgpack.encode(("p", "http://w", 2, "1", [], ttl_us, draining, NOW - 5, heartbeat))


@pytest.mark.parametrize(
    ("raw", "wanted", "draining_for_ms"),
    [
        (state(), "live", None),
        (state(ttl_us=1000, heartbeat=NOW - 1000), "live", None),
        (state(ttl_us=1000, heartbeat=NOW - 1001), "gone", None),
        (state(heartbeat=0), "live", None),
        (state(draining=NOW - 3_000_000), "draining", 3000),
        (state(draining=NOW + 5), "draining", 0),
        (state(draining=NOW - 1000, ttl_us=1, heartbeat=0), "gone", 1),
    ],
)
def test_states(raw: bytes, wanted: str, draining_for_ms: int | None) -> None:
    """By the store's clock, to the microsecond; a static worker is never gone; one that drains stays so when it is gone."""
    head = NOW.to_bytes(8, "big")
    one = read_worker("w", b"\xcf" + head + raw)
    (other,) = read_list([head, b"w", raw]).workers.values()
    assert one == other
    assert (one.state, one.draining_for_ms, one.capacity, one.labels) == (wanted, draining_for_ms, 2.0, {})


@pytest.mark.parametrize("damaged", [b"", b"\xff", b"\xc0", b"\x91\x01", b"\x99" + b"\xc0" * 9, state()[:-3], b"\xd9\x01\xff"])
def test_a_damaged_entry_is_told_as_such(damaged: bytes) -> None:
    """An entry that we did not write is a worker of which nothing else is known, and hides no other."""
    now = NOW.to_bytes(8)
    snapshot = read_list([now, b"w1", damaged, b"w2", state(), b"\xff", damaged])
    assert {name: each.state for name, each in snapshot.workers.items()} == {"w1": "damaged", "w2": "live", "\\xff": "damaged"}
    assert list(snapshot.pools.values()) == [{"w2": 2.0}]
    assert read_worker("w1", b"\xcf" + now + damaged).state == "damaged"
