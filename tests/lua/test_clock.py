"""The clock of a partition: what every epoch and fence comes from (design, sections 2 to 4)."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limpet.bind import Bind
from limpet.errors import StoreCorrupt, StoreMismatch, error_for_word
from limpet.policy import Policy

from .rig import BIND_TTL, CLAIM_TTL, GRANULARITY, HOUR, SECOND, START, Rig


def bits(now: int) -> int:
    """The ten bits by which a tick that cannot be the time jumps ahead."""
    return int(hashlib.sha1(str(now).encode(), usedforsecurity=False).hexdigest()[:4], 16) % 1024


def test_a_tick_is_the_time_where_that_is_new(rig: Rig) -> None:
    """Above the last tick, it is the server's clock to the microsecond."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(1)
    assert rig.do("advance", key, "new").epoch == START + 1 == rig.clock(key)


def test_a_tick_within_the_same_microsecond_jumps(rig: Rig) -> None:
    """The last tick + 1 + ten bits of a hash of the time."""
    key = rig.key()
    rig.resolve(key)
    expected = START + 1 + bits(START)
    assert rig.do("advance", key, "new").epoch == expected == rig.clock(key)
    assert rig.do("advance", key, "new").epoch == expected + 1 + bits(START)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.integers(-(10**12), 10**12), st.sampled_from(["advance", "claim", "forget", "lose"])), max_size=12))
def test_no_tick_is_issued_twice(rig: Rig, steps: list[tuple[int, str]]) -> None:
    """Whatever the clock does over an intact clock key, and whatever becomes of the record: strictly growing (G3)."""
    key = rig.key()
    rig.client.delete(rig.name(key), rig.clock_name(key))
    last, rig.now = 0, START
    for moved, what in steps:
        rig.now = max(1, rig.now + moved)
        if what == "forget":
            rig.do("forget", key)
            continue
        if what == "lose":
            rig.client.delete(rig.name(key))
        issued = rig.claim(key) if what == "claim" and rig.action(key) == "none" else rig.do("advance", key, "new").epoch
        assert issued > last
        last = issued


def test_the_clock_set_back_over_intact_data(rig: Rig) -> None:
    """Ticks go on above the last one."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(-HOUR)
    answer = rig.do("advance", key, "new")
    assert START < answer.epoch <= START + 1024
    assert answer.behind


def test_a_lost_clock_key_does_not_lose_the_record(rig: Rig) -> None:
    """The record's own epoch and fence are a floor too."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(5 * SECOND)
    fence = rig.claim(key)
    rig.client.delete(rig.clock_name(key))
    rig.passes(-HOUR)
    assert rig.do("advance", key, "new").epoch > fence


def test_ticks_shared_by_a_partition(rig: Rig) -> None:
    """Two keys of one partition never share a tick; the clock is theirs together."""
    first = rig.key("a")
    partition = rig.commands.keyspace.partition(first.digest)
    second = next(k for k in (rig.key(f"b{n}") for n in range(99)) if rig.commands.keyspace.partition(k.digest) == partition)
    assert rig.resolve(first).epoch < rig.resolve(second).epoch


@pytest.mark.parametrize("garbage", ["x", "", "12a", "nan", "inf", "1e300", "9007199254740993"])
@pytest.mark.parametrize("operation", ["resolve", "advance", "rebind"])
def test_a_corrupt_clock_is_refused(rig: Rig, garbage: str, operation: str) -> None:
    """What is not a tick is not counted on from: nothing is written, and the error says so."""
    key = rig.key()
    fence = rig.claim(key)
    if operation == "resolve":
        rig.client.delete(rig.name(key))
    rig.client.set(rig.clock_name(key), garbage)
    before = rig.snapshot()
    args = {"resolve": (), "advance": ("new",), "rebind": (fence, "lost")}[operation]
    with pytest.raises(StoreCorrupt):
        rig.do(operation, key, *args)
    assert rig.snapshot() == before


@pytest.mark.parametrize("operation", ["resolve", "advance", "rebind"])
def test_a_clock_of_the_wrong_type(rig: Rig, operation: str) -> None:
    """WRONGTYPE is corruption too, and nothing is written."""
    key = rig.key()
    fence = rig.claim(key)
    if operation == "resolve":
        rig.client.delete(rig.name(key))
    rig.client.delete(rig.clock_name(key))
    rig.client.sadd(rig.clock_name(key), "x")
    before = rig.snapshot()
    with pytest.raises(StoreCorrupt):
        rig.do(operation, key, *{"resolve": (), "advance": ("new",), "rebind": (fence, "lost")}[operation])
    assert rig.snapshot() == before


@pytest.mark.parametrize(
    "operation", ["resolve", "advance", "rebind", "confirm", "renew", "abort", "release", "suspend", "forget", "touch"]
)
def test_a_clock_before_2026(rig: Rig, operation: str) -> None:
    """A server whose clock is set before the first tick: refused, nothing written. (The epoch's constant is moved instead.)"""
    key = rig.key()
    fence = rig.claim(key)
    args = {
        "advance": ("new",),
        "rebind": (fence, "lost"),
        "confirm": (fence,),
        "renew": (fence,),
        "abort": (fence,),
        "release": (fence,),
        "touch": (START,),
    }.get(operation, ())
    kwargs = {"age_us": 0} if operation == "touch" else {}
    call = rig.call(operation, key, *args, now_us=0, **kwargs)
    text = call.script.text.replace("1767225600", "9767225600")
    assert text != call.script.text
    before = rig.snapshot()
    reply: object
    try:
        reply = rig.client.eval(text, len(call.keys), *call.keys, *call.args)
    except Exception as error:  # noqa: BLE001  (whichever class redis-py has for an unknown word)
        reply = error
    assert rig.snapshot() == before
    assert operation == "touch" or str(reply).startswith("CLOCK_BEFORE_2026")


def test_the_word_for_a_clock_before_2026() -> None:
    """It becomes a StoreMismatch."""
    assert type(error_for_word("CLOCK_BEFORE_2026 text")) is StoreMismatch


# -- set back over intact data: nothing freezes --------------------------------------------------------------------------


def test_a_claim_does_not_freeze(rig: Rig) -> None:
    """All instants move back by the difference, so a dead claimer is waited for no longer than before."""
    key = rig.key()
    rig.claim(key)
    rig.passes(-HOUR)
    binding = rig.resolve(key, bind=True, request_id="r2").result.binding
    assert (binding.action, binding.expires_in_ms) == ("wait", 10_000)
    rig.passes(CLAIM_TTL)
    assert rig.action(key, request_id="r3") == "wait"
    rig.passes(1)
    assert rig.action(key, request_id="r4") == "bind"


def test_a_binding_does_not_freeze(rig: Rig) -> None:
    """Nor does a pin to a worker that is gone."""
    key = rig.key()
    rig.bind(key)
    rig.passes(-HOUR)
    assert rig.action(key) == "continue"
    assert rig.record(key).due == rig.now + BIND_TTL + GRANULARITY
    rig.passes(BIND_TTL + GRANULARITY + 1)
    assert rig.action(key) == "bind"


def test_idle_does_not_freeze(rig: Rig) -> None:
    """The last activity counts from the new clock."""
    key, policy = rig.key(), Policy.parse({"idle_s": 3600})
    rig.resolve(key)
    rig.passes(-5 * HOUR)
    answer = rig.resolve(key, policy=policy)
    assert answer.behind
    assert answer.result.reset is None
    assert rig.record(key).last == rig.now
    rig.passes(HOUR + GRANULARITY + 1)
    assert rig.resolve(key, policy=policy).result.reset.reason == "idle"


def test_a_window_does_not_freeze(rig: Rig) -> None:
    """Nor does the time to resume."""
    key = rig.key()
    rig.resolve(key)
    rig.do("suspend", key, window_ms=60_000)
    rig.passes(-HOUR)
    rig.do("suspend", rig.key("unrelated"))
    rig.do("advance", key, "new", expected_epoch=1)  # a call that only settles
    rig.passes(60 * SECOND)
    twin = rig.raw(key)
    assert rig.resolve(key).result.reset is None
    assert twin is not None
    rig.put(key, twin)
    rig.passes(1)
    assert rig.resolve(key).result.reset.reason == "resume_expired"


def test_the_peek_after_a_set_back(rig: Rig) -> None:
    """A reader sees what is left, not what the clocks differ by."""
    key = rig.key()
    rig.bind(key)
    rig.passes(-HOUR)
    assert rig.do("peek", key).result.binding.expires_in_ms == 300_000


def test_a_repeated_claim_after_a_set_back(rig: Rig) -> None:
    """It is still that claim, with what was left of it."""
    key = rig.key()
    fence = rig.claim(key, bind=Bind(claim_ttl_ms=5000), request_id="mine")
    rig.passes(-HOUR)
    answer = rig.resolve(key, bind=True, request_id="mine")
    assert (answer.fence, answer.result.binding.expires_in_ms, answer.behind) == (fence, 5000, True)


def test_without_an_override_the_server_is_asked(rig: Rig) -> None:
    """now_us = 0: TIME decides."""
    seconds, micros = rig.client.time()  # type: ignore[misc]
    answer = rig.resolve(rig.key(), now_us=0)
    assert 0 <= answer.epoch - ((seconds - 1_767_225_600) * SECOND + micros) < 60 * SECOND
