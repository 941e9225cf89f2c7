"""conversation_resolve with flag 8: the turn that decides nothing. It is the very resolve, or it has not happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from limpet.bind import Bind
from limpet.calls import FLAG_DURABLE, FLAG_GLANCE, FLAG_LOOK_UP, Call
from limpet.policy import Policy

from .rig import BIND_TTL, CLAIM_TTL, GRANULARITY, HOUR, RETENTION_MS, Rig

IDLE = Policy.parse({"idle_s": 3600})
Scene = Callable[[Rig, Any], dict[str, Any]]


def glanced(rig: Rig, call: Call[Any]) -> bytes:
    packed = call.args[0]
    assert isinstance(packed, bytes)
    flags = (packed[0] & ~(FLAG_LOOK_UP | FLAG_DURABLE)) | FLAG_GLANCE
    reply: bytes = rig.sent(Call(call.script, call.keys, (bytes((flags,)) + packed[1:],), call.parse))
    return reply


def bound_just_now(rig: Rig, key: Any) -> dict[str, Any]:
    rig.bind(key)
    return {"bind": True}


def unbound_just_now(rig: Rig, key: Any) -> dict[str, Any]:
    rig.resolve(key)
    return {}


def bound_a_while_ago(rig: Rig, key: Any) -> dict[str, Any]:
    rig.bind(key)
    rig.passes(5 * GRANULARITY)
    return {"bind": True}


def unbound_a_while_ago(rig: Rig, key: Any) -> dict[str, Any]:
    rig.resolve(key)
    rig.passes(5 * GRANULARITY)
    return {"policy": IDLE}


def nothing(_: Rig, __: Any) -> dict[str, Any]:
    return {"bind": True}


def claimed(rig: Rig, key: Any) -> dict[str, Any]:
    rig.claim(key)
    return {"bind": True}


def dead_claim(rig: Rig, key: Any) -> dict[str, Any]:
    rig.claim(key)
    rig.passes(CLAIM_TTL + 2 * GRANULARITY)
    return {"bind": True}


def dead_binding(rig: Rig, key: Any) -> dict[str, Any]:
    rig.bind(key)
    rig.passes(BIND_TTL + 3 * GRANULARITY)
    return {"bind": True}


def released(rig: Rig, key: Any) -> dict[str, Any]:
    rig.do("release", key, rig.bind(key))
    return {"bind": True}


def idle(rig: Rig, key: Any) -> dict[str, Any]:
    rig.bind(key, bind=Bind(ttl_ms=3 * 3_600_000))
    rig.passes(HOUR + 3 * GRANULARITY)
    return {"bind": True, "policy": IDLE}


def suspended(rig: Rig, key: Any) -> dict[str, Any]:
    rig.bind(key)
    rig.do("suspend", key)
    return {"bind": True}


def forgotten(rig: Rig, key: Any) -> dict[str, Any]:
    rig.bind(key)
    rig.do("forget", key)
    return {"bind": True}


def lost_epoch(rig: Rig, key: Any) -> dict[str, Any]:
    rig.bind(key)
    return {"bind": True, "remembered_epoch": rig.record(key).epoch + 5}


def drained(rig: Rig, key: Any) -> dict[str, Any]:
    rig.do("rebind", key, rig.bind(key), "draining", worker="")
    return {"bind": True}


@pytest.mark.parametrize("scene", [bound_just_now, unbound_just_now, bound_a_while_ago, unbound_a_while_ago])
def test_it_is_the_very_resolve(rig: Rig, scene: Scene) -> None:
    """Where nothing is to be decided: the same reply, and the same left behind, deadlines in the index included."""
    one, other = rig.key("one"), rig.key("other")
    told: list[bytes] = []
    left: list[tuple[bytes | None, list[float]]] = []
    start = rig.now
    for key, send in ((one, rig.sent), (other, lambda call: glanced(rig, call))):
        rig.now = start
        call = rig.call("resolve", key, **scene(rig, key))
        told.append(send(call))
        left.append((rig.raw(key), sorted(rig.bound(key).values())))
        assert rig.ttl_ms(key) > RETENTION_MS - 5000
    epochs = [rig.record(key).epoch for key in (one, other)]
    assert len(told[0]) == len(told[1]) > 41
    assert _without(told[0], epochs[0]) == _without(told[1], epochs[1])
    assert told[1] == left[1][0]
    assert left[0][1] == left[1][1]


def _without(raw: bytes, epoch: int) -> bytes:
    """Two conversations of one partition never have the same tick."""
    return raw.replace(epoch.to_bytes(8, "big"), bytes(8))


@pytest.mark.parametrize(
    "scene", [nothing, claimed, dead_claim, dead_binding, released, idle, suspended, forgotten, lost_epoch, drained]
)
def test_or_nothing_has_happened(rig: Rig, scene: Scene) -> None:
    """Where something is to be decided: the empty reply, no event, and the store as it was; the resolve after it decides."""
    key = rig.key()
    call = rig.call("resolve", key, **scene(rig, key))
    events, before = rig.listen(), rig.snapshot()
    assert glanced(rig, call) == b""
    assert rig.snapshot() == before
    assert events() == []
    assert rig.sent(call) != rig.raw(key)  # not the short reply
