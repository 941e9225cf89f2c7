"""binding_drain and binding_census: a worker's bindings, moved and counted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from limpet.bind import Bind
from limpet.calls import Call
from limpet.errors import StaleFence, StoreCorrupt
from limpet.executors.simple import run
from limpet.scripts import script

from .rig import BIND_TTL, CLAIM_TTL, GRANULARITY, HOUR, START, Rig


def drain(rig: Rig, target: Any, worker: str = "w1") -> list[int]:
    head = rig.now.to_bytes(8, "big") + GRANULARITY.to_bytes(8, "big")
    args = (head + msgspec.msgpack.encode((rig.commands.keyspace.events, worker, "drained")), rig.member(target, worker))
    return run(rig.client, Call(script("binding_drain"), (rig.bound_name(target), rig.name(target)), args, list))


def census(rig: Rig, target: Any, offset: int = 0) -> tuple[int, Any]:
    head = b"".join(value.to_bytes(8, "big") for value in (rig.now, GRANULARITY, offset))
    decode = msgspec.msgpack.Decoder(tuple[int, Any]).decode
    return run(rig.client, Call(script("binding_census"), (rig.bound_name(target),), (head,), decode))


def test_a_binding_moves(rig: Rig) -> None:
    """Unbound atomically and told; the next turn is told to bind, elsewhere, with a larger fence, and that it is a rebind."""
    key = rig.key()
    fence = rig.bind(key)
    events = rig.listen()
    assert drain(rig, key) == [1, 0]
    assert rig.bound(key) == {}
    assert events() == [["release", "conv", key.digest, START, fence, "", "drained"]]
    with pytest.raises(StaleFence):
        rig.do("renew", key, fence)
    binding = rig.resolve(key, bind=Bind(worker="w2")).result.binding
    assert (binding.action, binding.worker, binding.rebound) == ("bind", "w2", True)
    assert binding.fence > fence
    assert rig.record(key).epoch == START


@pytest.mark.parametrize("past", [0, 1])
def test_a_live_claim_is_left(rig: Rig, past: int) -> None:
    """To its deadline; one that ran out is taken."""
    key = rig.key()
    rig.claim(key, bind=Bind(worker="w1"))
    rig.passes(CLAIM_TTL + past)
    assert drain(rig, key) == ([1, 0] if past else [0, 1])


def test_a_clock_set_back_does_not_keep_a_dead_claim(rig: Rig) -> None:
    """A drain comes to its end: a claim has what it had left, and not until the clock has caught up."""
    key = rig.key()
    rig.claim(key, bind=Bind(worker="w1"))
    rig.passes(-HOUR)
    assert drain(rig, key) == [0, 1]
    rig.passes(CLAIM_TTL + 1)
    assert drain(rig, key) == [1, 0]


def test_a_binding_of_another_worker_is_not_touched(rig: Rig) -> None:
    """A member that names the drained worker but whose record does not: only the member goes."""
    key = rig.key()
    rig.bind(key, worker="w2")
    rig.client.zadd(rig.bound_name(key), {rig.member(key, "w1"): 5})
    before = rig.raw(key)
    assert drain(rig, key) == [0, 0]
    assert rig.raw(key) == before
    assert set(rig.bound(key)) == {rig.member(key, "w2")}


def test_a_drained_conversation_can_be_reset(rig: Rig) -> None:
    """The mark of the drain belongs to the epoch: a new one is no rebind."""
    key = rig.key()
    rig.bind(key)
    drain(rig, key)
    rig.do("advance", key, "new")
    assert not rig.resolve(key, bind=True).result.binding.rebound


def test_a_corrupt_record(rig: Rig) -> None:
    """Left alone and counted as left: nobody can say that it has moved."""
    key = rig.key()
    rig.bind(key)
    rig.put(key, b"\x01")
    with pytest.raises(StoreCorrupt):
        rig.record(key)
    assert list(drain(rig, key)) == [0, 1]


def test_a_census(rig: Rig) -> None:
    """Live ones per worker, claims that name none under the empty name; the sentinel is nobody."""
    key, session = rig.key(), rig.session("s")
    rig.bind(key, worker="a:b")
    assert census(rig, key) == (0, {"a:b": 1})
    same = next(t for t in (rig.session(f"s{n}") for n in range(99)) if rig.bound_name(t) == rig.bound_name(key))
    rig.claim(same)
    assert census(rig, key) == (0, {"a:b": 1, "": 1})
    rig.passes(BIND_TTL + GRANULARITY)
    assert census(rig, key) == (0, {"a:b": 1})
    rig.passes(1)
    assert not census(rig, key)[1]
    assert not census(rig, session)[1]


def test_a_long_census_goes_on(rig: Rig) -> None:
    """2000 members in one call; what is left comes from the offset that it tells."""
    key = rig.key()
    rig.client.zadd(rig.bound_name(key), {rig.member(key, f"w{n % 2}") + b"" + str(n).encode(): START for n in range(2500)})
    offset, counts = census(rig, key)
    assert (offset, sum(counts.values())) == (2000, 2000)
    offset, counts = census(rig, key, offset)
    assert (offset, sum(counts.values())) == (0, 500)
