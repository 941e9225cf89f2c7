"""conversation_resolve: the decision about the epoch, and the binding; every way out of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from limpet.bind import Bind
from limpet.errors import ImplausibleEpoch
from limpet.policy import Policy

from .rig import BIND_TTL, CLAIM_TTL, GRANULARITY, HOUR, RETENTION_MS, SECOND, START, Rig

IDLE = Policy.parse({"idle_s": 3600})
NONE, BIND, CONTINUE, WAIT = 0, 1, 2, 3


def outcome(rig: Rig, target: object, **kwargs: object) -> list[object]:
    """The outcome; the short reply counts as none."""
    _, _, found = rig.reply("resolve", target, **kwargs)  # type: ignore[arg-type]
    return found or []


def test_a_first_turn_creates(rig: Rig) -> None:
    """An unknown key gets a record whose epoch is the tick of this very moment."""
    events = rig.listen()
    key = rig.key()
    now, raw, found = rig.reply("resolve", key)
    assert now == START
    assert found == [NONE, "", 0, 0, 1, START, 1, "new", 1, 0, 0, 0]
    assert raw == rig.raw(key)
    record = rig.record(key)
    assert (record.state, record.last, record.due, record.epoch, record.worker) == (0, START, 0, START, "")
    assert (record.body.ordinal, record.body.reason, record.body.previous, record.body.fence) == (1, "new", 0, 0)
    assert RETENTION_MS - 5000 < rig.ttl_ms(key) <= RETENTION_MS
    assert rig.clock(key) == START
    assert rig.client.pttl(rig.clock_name(key)) == -1
    assert events() == []


def test_a_first_turn_with_bind_claims_with_the_same_tick(rig: Rig) -> None:
    """A claim made with a new epoch shares its tick, and is written exactly: no grace."""
    key = rig.key()
    assert outcome(rig, key, bind=True, request_id="r1") == [BIND, "", 0, 0, 1, START, 1, "new", 1, 0, 0, 0]
    record = rig.record(key)
    assert (record.state, record.due, record.body.fence, record.body.holder) == (1, START + CLAIM_TTL, START, "replica-1")
    assert rig.bound(key) == {rig.member(key, ""): START + CLAIM_TTL}
    (entry,) = rig.ring(key)
    assert (entry.request_id, entry.operation, entry.epoch, entry.fence, entry.bits) == ("r1", 1, START, START, 1)


def test_exactly_one_is_told_to_bind(rig: Rig) -> None:
    """Everybody after the first waits, is told for how long, and changes nothing (G4)."""
    key = rig.key()
    rig.claim(key, request_id="r1")
    before = rig.snapshot()
    rig.passes(GRANULARITY - 1)
    for other in ("r2", "r3"):
        binding = rig.resolve(key, bind=True, request_id=other).result.binding
        assert (binding.action, binding.state, binding.holder) == ("wait", "claimed", "replica-1")
        assert binding.retry_after_ms == binding.expires_in_ms + 1 == 9001
    assert rig.snapshot() == before


def test_a_dead_claim_goes_to_the_next_with_a_larger_fence(rig: Rig) -> None:
    """At its deadline a claim still holds; one microsecond later it does not."""
    key = rig.key()
    first = rig.claim(key, bind=Bind(worker="w1"))
    rig.passes(CLAIM_TTL)
    assert rig.action(key, request_id="r2") == "wait"
    rig.passes(1)
    second = rig.claim(key, bind=Bind(worker="w2", holder="replica-2"), request_id="r3")
    assert second == rig.now > first
    assert rig.bound(key) == {rig.member(key, "w2"): rig.now + CLAIM_TTL}
    assert rig.record(key).epoch == START


@pytest.mark.parametrize("past", [0, 1])
def test_a_binding_holds_one_granularity_beyond_its_deadline(rig: Rig, past: int) -> None:
    """Not a microsecond less, since an activity may have been written that late; and not one more."""
    key = rig.key()
    fence = rig.bind(key)
    rig.passes(BIND_TTL + GRANULARITY + past)
    answer = rig.resolve(key, bind=True, request_id="later")
    assert answer.result.binding.action == ("bind" if past else "continue")
    assert (answer.fence > fence) == bool(past)
    assert answer.epoch == START


def test_continue_slides(rig: Rig) -> None:
    """Every turn with bind that is a granularity after the last moves the deadline, in the record and in the index."""
    key = rig.key()
    rig.bind(key)
    for _ in range(3):
        rig.passes(200 * SECOND)
        assert rig.action(key) == "continue"
        assert rig.record(key).due == rig.now + BIND_TTL + GRANULARITY
        assert rig.bound(key) == {rig.member(key, "w1"): rig.now + BIND_TTL}


def test_a_turn_without_bind_does_not_slide(rig: Rig) -> None:
    """It is an activity of the conversation, and tells the binding that is there."""
    key = rig.key()
    rig.bind(key)
    due = rig.record(key).due
    rig.passes(100 * SECOND)
    binding = rig.resolve(key).result.binding
    assert (binding.action, binding.worker, binding.expires_in_ms) == ("continue", "w1", 200_000)
    assert rig.record(key).due == due
    assert rig.record(key).last == rig.now


def test_a_shorter_ttl_does_not_cut_the_deadline(rig: Rig) -> None:
    """A call with a shorter ttl only asks for less; what was promised stays. A longer one moves it at once."""
    key = rig.key()
    rig.bind(key)
    due = rig.record(key).due
    rig.passes(2 * SECOND)
    assert rig.action(key, bind=Bind(ttl_ms=1000)) == "continue"
    assert rig.record(key).due == due
    assert rig.action(key, bind=Bind(ttl_ms=3_600_000)) == "continue"
    assert rig.record(key).due == rig.now + HOUR + GRANULARITY


def test_within_one_granularity_a_turn_is_a_read(rig: Rig) -> None:
    """The record goes out as it is; nothing is written, so last stays."""
    key = rig.key()
    rig.bind(key)
    before = rig.snapshot()
    rig.passes(GRANULARITY - 1)
    for kwargs in ({}, {"bind": True}):
        now, raw, found = rig.reply("resolve", key, **kwargs)
        assert (now, raw, found) == (0, rig.raw(key), None)
    assert rig.snapshot() == before


def test_after_one_granularity_a_turn_is_a_touch(rig: Rig) -> None:
    """Exactly one granularity after the last written activity it is written again, with its whole TTL."""
    key = rig.key()
    rig.resolve(key)
    rig.client.pexpire(rig.name(key), 60_000)
    rig.passes(GRANULARITY)
    rig.resolve(key)
    assert rig.record(key).last == rig.now
    assert rig.ttl_ms(key) > RETENTION_MS - 5000


@pytest.mark.parametrize("bind", [None, True])
def test_a_touch_writes_what_the_long_way_would(rig: Rig, bind: bool | None) -> None:
    """The short touch repacks only the prefix; a twin that has to go the long way (a request id to look up) ends the same."""
    short, long = rig.key("twin-a"), rig.key("twin-b")
    for key in (short, long):
        rig.bind(key, worker="worker-é-18446744073709551615", bind=Bind(ttl_ms=60_000))
    rig.passes(30 * SECOND)
    for key, rid in ((short, ""), (long, "look")):
        rig.resolve(key, bind=bind, policy=IDLE, request_id=rid)
    a, b = rig.raw(short), rig.raw(long)
    assert a is not None
    assert b is not None
    assert a[:21] == b[:21]  # schema, mark, last, due
    assert rig.record(short).keep_ms == rig.record(long).keep_ms
    assert rig.record(short).worker == rig.record(long).worker
    assert abs(rig.ttl_ms(short) - rig.ttl_ms(long)) < 2000
    deadlines = [rig.bound(key)[rig.member(key, rig.record(key).worker)] for key in (short, long)]
    assert deadlines[0] == deadlines[1]


# -- the same request again --------------------------------------------------------------------------------------------


def test_a_repeated_claim_gets_its_remaining_time(rig: Rig) -> None:
    """The claimer that lost its reply gets its own claim back and not `wait`; somebody else in between does not matter."""
    key = rig.key()
    fence = rig.claim(key, request_id="mine")
    rig.passes(4 * SECOND)
    assert rig.action(key, request_id="other") == "wait"
    answer = rig.resolve(key, bind=True, request_id="mine")
    assert answer.replayed
    binding = answer.result.binding
    assert (binding.action, binding.fence, binding.expires_in_ms) == ("bind", fence, 6000)
    assert answer.result.created


def test_a_repeated_claim_at_its_deadline(rig: Rig) -> None:
    """At the deadline it is still the same claim; after it the call is taken as new, with a larger fence."""
    key = rig.key()
    first = rig.claim(key, request_id="mine")
    rig.passes(CLAIM_TTL)
    assert rig.claim(key, request_id="mine") == first
    rig.passes(1)
    again = rig.resolve(key, bind=True, request_id="mine")
    assert not again.replayed
    assert again.result.binding.fence > first
    assert again.result.created  # what it had reported about the epoch, it reports again


def test_a_repeat_after_the_claim_was_taken_over(rig: Rig) -> None:
    """A claim of the old fence that somebody else holds by now is not replayed."""
    key = rig.key()
    rig.claim(key, request_id="mine")
    rig.passes(CLAIM_TTL + 1)
    rig.claim(key, request_id="other")
    assert rig.action(key, request_id="mine") == "wait"


@pytest.mark.parametrize("past", [0, 1])
def test_a_claim_that_ran_out_is_told_once(rig: Rig, past: int) -> None:
    """Whoever binds after a claim that ran out unconfirmed is told so, so that it is counted exactly once; neither the one who
    waits for it nor the one who binds after an abort is."""
    key = rig.key()
    rig.claim(key, request_id="mine")
    rig.passes(CLAIM_TTL + past)
    answer = rig.resolve(key, bind=True, request_id="other")
    assert answer.lapsed == bool(past)
    assert not rig.resolve(key, bind=True, request_id="other").lapsed
    rig.do("abort", key, answer.fence)
    assert not rig.resolve(key, bind=True, request_id="third").lapsed


def test_a_repeat_after_the_confirm(rig: Rig) -> None:
    """The claim of this request became a binding: it is continued and not bound twice."""
    key = rig.key()
    fence = rig.claim(key, request_id="mine")
    rig.do("confirm", key, fence, worker="w1")
    answer = rig.resolve(key, bind=True, request_id="mine")
    assert answer.result.binding.action == "continue"
    assert answer.fence == fence


def test_a_repeated_reset_is_reported_again_to_its_own_caller_only(rig: Rig) -> None:
    """Once, and again to the same request id (design, section 5)."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(2 * HOUR)
    first = rig.resolve(key, policy=IDLE, request_id="mine")
    assert first.result.reset.reason == "idle"
    rig.passes(5 * SECOND)
    assert rig.resolve(key, policy=IDLE, request_id="other").result.reset is None
    again = rig.resolve(key, policy=IDLE, request_id="mine")
    assert again.replayed
    assert again.result.reset == first.result.reset
    assert again.epoch == first.epoch


def test_the_ring_keeps_eight(rig: Rig) -> None:
    """The ninth decision pushes the first out, and an id comes in once."""
    key = rig.key()
    for number in range(9):
        rig.do("advance", key, "new", request_id=f"a{number}")
        rig.passes(SECOND)
    assert [entry.request_id for entry in rig.ring(key)] == [f"a{number}" for number in range(1, 9)]
    last = rig.record(key).epoch
    assert rig.do("advance", key, "new", request_id="a1").replayed
    fresh = rig.do("advance", key, "new", request_id="a0")
    assert not fresh.replayed
    assert fresh.epoch > last


def test_an_empty_request_id_is_nobodys(rig: Rig) -> None:
    """Calls without an id are never taken for each other's."""
    key = rig.key()
    rig.claim(key)
    assert rig.ring(key) == []
    assert rig.action(key) == "wait"


def test_durable_rewrites_what_it_reports(rig: Rig) -> None:
    """A replayed answer that has to be durable is a write again, of the very same bytes and TTL."""
    key = rig.key()
    rig.claim(key, request_id="mine")
    before = rig.raw(key)
    rig.client.pexpire(rig.name(key), 60_000)
    made = rig.calls_of(rig.call("resolve", key, bind=True, request_id="mine", durable=True))
    assert made == ["GET " + rig.name(key), "SET " + rig.name(key)]
    assert rig.raw(key) == before
    assert rig.ttl_ms(key) <= 60_000


# -- commit ------------------------------------------------------------------------------------------------------------


def test_commit_claims_and_confirms_in_one(rig: Rig) -> None:
    """For callers that cannot come back: bound at once, and told to everybody."""
    events = rig.listen()
    key = rig.key()
    answer = rig.resolve(key, bind=Bind(worker="w7", commit=True), request_id="mine")
    assert (answer.result.binding.action, answer.result.binding.state) == ("bind", "bound")
    assert rig.record(key).due == START + BIND_TTL + GRANULARITY
    assert rig.bound(key) == {rig.member(key, "w7"): START + BIND_TTL}
    assert events() == [["bind", "conv", key.digest, START, START, "w7", ""]]
    assert rig.action(key, request_id="other") == "continue"
    again = rig.resolve(key, bind=Bind(worker="w7", commit=True), request_id="mine")
    assert again.replayed
    assert (again.result.binding.action, again.fence) == ("bind", answer.fence)


# -- resets ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("past", [0, 1])
@pytest.mark.parametrize("bound", [False, True])
def test_idle_fires_one_granularity_late_and_never_early(rig: Rig, past: int, bound: bool) -> None:
    """Idle fires if now > last + granularity + idle, to the microsecond, on the short way and on the long one."""
    key = rig.key()
    if bound:
        rig.bind(key, bind=Bind(ttl_ms=86_400_000))
        rig.do("renew", key, START, ttl_ms=86_400_000)
    else:
        rig.resolve(key)
    rig.passes(HOUR + GRANULARITY + past)
    answer = rig.resolve(key, policy=IDLE)
    assert (answer.result.reset is not None) == bool(past)
    if past:
        reset = answer.result.reset
        assert (reset.reason, reset.previous_epoch, reset.new_conversation) == ("idle", START, True)
        assert answer.result.ordinal == 2
        assert answer.epoch == rig.now
        assert not answer.result.created
        assert rig.bound(key) == {}


def test_a_reset_is_told_to_everybody(rig: Rig) -> None:
    """Kind, domain, digest, epoch, fence, worker, reason; never the key."""
    key = rig.key()
    rig.bind(key)
    events = rig.listen()
    rig.passes(2 * HOUR)
    rig.resolve(key, policy=IDLE, bind=Bind(worker="w2"))
    assert events() == [["advance", "conv", key.digest, rig.now, rig.now, "w2", "idle"]]


def test_exempt_stops_idle_and_daily_but_no_suspension(rig: Rig) -> None:
    """An active background process keeps its conversation, unless it was suspended."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(2 * HOUR)
    assert rig.resolve(key, policy=IDLE, exempt=True).result.reset is None
    rig.do("suspend", key)
    assert rig.resolve(key, policy=IDLE, exempt=True).result.reset.reason == "suspended"


def resolve_daily(rig: Rig, key: object, boundaries: tuple[int, int, int], idle_us: int = 0) -> object:
    """A resolve whose boundaries are given in ticks, as no caller's clock would."""

    class Fixed(Policy, frozen=True):  # type: ignore[misc]
        def boundaries(self, now: datetime) -> tuple[datetime, datetime, datetime]:
            start = datetime(2026, 1, 1, tzinfo=UTC)
            return tuple(start + timedelta(microseconds=tick) for tick in boundaries)  # type: ignore[return-value]

    whole = Policy.parse({"daily": {"at": "04:00", "tz": "UTC"}})
    policy = Fixed(idle_us / SECOND if idle_us else None, whole.daily)
    return rig.resolve(key, policy=policy, now=datetime(2026, 12, 1, tzinfo=UTC)).result.reset  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "last", "following", "fires"),
    [
        pytest.param(-300, -200, 100, False, id="both before the last activity"),
        pytest.param(-300, 10, 100, True, id="the last one in between"),
        pytest.param(10, 40, 100, True, id="a caller ahead of the store by one boundary"),
        pytest.param(40, 100, 200, False, id="a caller ahead by two: nothing has come yet"),
        pytest.param(-300, -200, 10, True, id="a caller behind: its next has come"),
        pytest.param(-300, 1, 100, False, id="exactly one granularity after the last activity"),
        pytest.param(-300, 20, 100, True, id="exactly now"),
        pytest.param(-300, -200, 20, True, id="the next one, exactly now"),
    ],
)
def test_daily_picks_by_the_servers_clock(rig: Rig, before: int, last: int, following: int, fires: bool) -> None:
    """Daily fires if last + granularity < boundary <= now, whichever of the three the server's clock has reached."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(20 * SECOND)
    # "exactly now" stands at 20 s, the end of the granularity at 1 s.
    at = (START + before * SECOND, START + last * SECOND, START + following * SECOND)
    reset = resolve_daily(rig, key, at)
    assert (reset is not None) == fires
    if reset is not None:
        assert reset.reason == "daily"  # type: ignore[attr-defined]


def test_a_boundary_one_microsecond_after_the_granularity(rig: Rig) -> None:
    """One microsecond decides."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(20 * SECOND)
    assert resolve_daily(rig, key, (0, START + GRANULARITY, START + HOUR)) is None
    key = rig.key("second")
    rig.resolve(key)
    moment = rig.now
    rig.passes(20 * SECOND)
    assert resolve_daily(rig, key, (0, moment + GRANULARITY + 1, moment + HOUR)).reason == "daily"  # type: ignore[attr-defined]


def test_both_together_report_idle(rig: Rig) -> None:
    """Idle is checked before daily."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(2 * HOUR)
    reset = resolve_daily(rig, key, (START + 1, START + HOUR, START + 9 * HOUR), idle_us=HOUR)
    assert reset.reason == "idle"  # type: ignore[attr-defined]


def test_no_policy_never_resets(rig: Rig) -> None:
    """Resets are opt-in."""
    key = rig.key()
    rig.resolve(key)
    rig.passes(3000 * HOUR)
    assert rig.resolve(key).result.reset is None


# -- suspension --------------------------------------------------------------------------------------------------------


def test_suspended_resets_once(rig: Rig) -> None:
    """The next turn begins a new conversation; the one after it goes on with that."""
    key = rig.key()
    rig.bind(key)
    rig.do("suspend", key)
    reset = rig.resolve(key).result.reset
    assert (reset.reason, reset.previous_epoch, reset.new_conversation) == ("suspended", START, True)
    assert rig.resolve(key).result.reset is None
    assert rig.bound(key) == {}


@pytest.mark.parametrize("past", [0, 1])
def test_a_window_resumes_to_the_microsecond(rig: Rig, past: int) -> None:
    """Within the window the turn resumes, and neither idle nor daily fires on it; later it resets."""
    key = rig.key()
    rig.resolve(key)
    rig.do("suspend", key, window_ms=7_200_000)
    rig.passes(2 * HOUR + past)
    reset = rig.resolve(key, policy=IDLE).result.reset
    if past:
        assert reset.reason == "resume_expired"
    else:
        assert reset is None
        assert not rig.record(key).suspended
        rig.passes(HOUR + GRANULARITY + 1)
        assert rig.resolve(key, policy=IDLE).result.reset.reason == "idle"


# -- healing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["seen_epoch", "remembered_epoch"])
def test_a_lost_advance_is_gone_past(rig: Rig, how: str) -> None:
    """Somebody has seen a larger epoch than the record holds: the tick goes past it, and the transcript stays (`rollback`)."""
    key = rig.key()
    rig.bind(key)
    lost = START + 30 * SECOND
    answer = rig.resolve(key, **{how: lost})
    assert answer.epoch > lost
    reset = answer.result.reset
    assert (reset.reason, reset.previous_epoch, reset.new_conversation) == ("rollback", lost, False)
    assert rig.bound(key) == {}
    assert rig.clock(key) == answer.epoch


def test_a_lost_record_is_gone_past(rig: Rig) -> None:
    """The whole record is gone (eviction, flush): the next one is created, past what was seen."""
    key = rig.key()
    rig.resolve(key)
    rig.client.delete(rig.name(key), rig.clock_name(key))
    rig.passes(-5 * SECOND)  # and the clock of the node that took over is behind
    answer = rig.resolve(key, seen_epoch=START)
    assert answer.epoch > START
    assert answer.result.created
    assert answer.result.reset.reason == "rollback"
    assert answer.result.ordinal == 1


def test_what_was_seen_before_means_nothing(rig: Rig) -> None:
    """An epoch at or below the record's is no news."""
    key = rig.key()
    rig.resolve(key)
    for seen in (1, START):
        assert rig.resolve(key, seen_epoch=seen).epoch == START


@pytest.mark.parametrize("beyond", [0, 1])
def test_plausible_is_sixty_seconds(rig: Rig, beyond: int) -> None:
    """More than now + 60 s is refused when stated and dropped when remembered; nothing is written for it."""
    key = rig.key()
    rig.resolve(key)
    seen = START + 60 * SECOND + beyond
    if beyond:
        before = rig.snapshot()
        with pytest.raises(ImplausibleEpoch):
            rig.resolve(key, seen_epoch=seen)
        assert rig.resolve(key, remembered_epoch=seen).epoch == START
        assert rig.snapshot() == before
    else:
        assert rig.resolve(key, seen_epoch=seen).epoch > seen


def test_plausible_is_measured_from_the_partitions_clock_where_that_is_ahead(rig: Rig) -> None:
    """After a set-back of intact data, the epochs of our own store are not implausible."""
    key, other = rig.key(), rig.key("other")
    rig.client.set(rig.clock_name(key), START + HOUR)
    assert rig.resolve(key, seen_epoch=START + HOUR).epoch > START + HOUR
    assert rig.resolve(other).epoch >= START


def test_a_remembered_epoch_beyond_a_stated_one(rig: Rig) -> None:
    """The larger of the two plausible ones is gone past."""
    key = rig.key()
    rig.resolve(key)
    answer = rig.resolve(key, seen_epoch=START + SECOND, remembered_epoch=START + 2 * SECOND)
    assert answer.result.reset.previous_epoch == START + 2 * SECOND


# -- domains and names -------------------------------------------------------------------------------------------------


def test_a_session_id_that_equals_a_key_meets_nothing_of_it(rig: Rig) -> None:
    """`sess:` is a domain of its own: another record, another binding; only the clock is shared."""
    key, session = rig.key("same"), rig.session("same")
    rig.bind(key, worker="w1")
    before = rig.raw(key)
    assert rig.action(session, session_id="same") == "bind"
    assert rig.raw(key) == before
    assert rig.record(session).body.fence > rig.record(key).body.fence
    assert set(rig.bound(key)) == {rig.member(key, "w1"), rig.member(session, "")}
    assert rig.resolve(session, session_id="same").result.scope.startswith("gws_")


@pytest.mark.parametrize("worker", ["18446744073709551615", "7587888031394251778", "0012", "1e5", "wörker/😀", "a" * 256])
def test_a_worker_is_a_string(rig: Rig, worker: str) -> None:
    """Integers beyond 2^53, leading zeros, exponents, any UTF-8: back as they came, on every way through the scripts."""
    key = rig.key()
    fence = rig.claim(key, bind=Bind(worker=worker))
    rig.do("confirm", key, fence)
    rig.passes(5 * SECOND)
    for kwargs in ({}, {"bind": True}, {"bind": True, "request_id": "x"}):
        assert rig.resolve(key, **kwargs).result.binding.worker == worker
    assert rig.do("peek", key).result.binding.worker == worker
    assert set(rig.bound(key)) == {rig.member(key, worker)}


def test_a_long_idle_policy_outlives_the_retention(rig: Rig) -> None:
    """The record has to be there when the policy comes to look at it."""
    key = rig.key()
    rig.resolve(key, policy=Policy.parse({"idle_s": 31_536_000}))
    assert rig.ttl_ms(key) > 31_536_000_000 - 5000


def test_a_long_binding_outlives_the_retention(rig: Rig) -> None:
    """So does a binding of a year."""
    key = rig.key()
    rig.resolve(key, bind=Bind(worker="w", ttl_ms=31_536_000_000, commit=True))
    assert rig.ttl_ms(key) > 31_536_000_000 - 5000
    rig.passes(10 * SECOND)
    rig.resolve(key, bind=Bind(ttl_ms=31_536_000_000))
    assert rig.ttl_ms(key) > 31_536_000_000 - 5000
    assert rig.record(key).due == rig.now + 31_536_000 * SECOND + GRANULARITY
