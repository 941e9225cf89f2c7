"""The commands without a server: what is sent, and how replies become results (against real scripts: tests/lua)."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet import scope
from limpet.answers import binding_of, read_binding
from limpet.bind import Bind
from limpet.calls import FLAG_BIND, FLAG_DURABLE, FLAG_LOOK_UP
from limpet.commands import Commands
from limpet.errors import InvalidRequest, SchemaTooNew, StaleFence
from limpet.policy import Policy
from limpet.record import Record
from limpet.scripts import script

MINUTE = 60_000_000
EPOCH = 28_900_000_000_000


@pytest.fixture
def commands() -> Commands:
    return Commands(namespace="prod", partitions=8, holder="me")


def stored(*, mark: int = 0, last: int = EPOCH, due: int = 0, worker: str = "", **changed: Any) -> bytes:
    body = {
        "ordinal": 1,
        "reason": "new",
        "previous": 0,
        "dp_rank": -1,
        "incarnation": "",
        "holder": "me" if mark else "",
        "fence": EPOCH if mark else 0,
        "rebound": 0,
        "suspend": 0,
        "ring": [],
    } | changed
    prefix = b"".join(b"\xcf" + value.to_bytes(8, "big") for value in (last, due, EPOCH, 1000))
    name = worker.encode()
    return bytes((1, mark)) + prefix + b"\xda" + len(name).to_bytes(2, "big") + name + msgspec.msgpack.encode([*body.values()])


def replied(raw: bytes, outcome: list[Any], now: int = EPOCH) -> bytes:
    return b"\xcf" + now.to_bytes(8, "big") + b"\xcd" + len(raw).to_bytes(2, "big") + raw + msgspec.msgpack.encode(outcome)


def head(call: Any) -> tuple[int, ...]:
    return struct.unpack_from(">BQQQQQ", call.args[0])


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_plain_turn(commands: Commands) -> None:
    """Flags, granularity, ttl, seen, keep, no clock of ours; three keys of one slot; everything in one argument."""
    call = commands.resolve(commands.declared("k"), session_id="s", request_id="r", look_up=False)
    assert head(call) == (0, 1_000_000, 0, 0, 2_592_000_000, 0)
    assert len(call.keys) == 3
    assert len(call.args) == 1
    assert call.command() == ("EVALSHA", script("conversation_resolve").sha, 3, *call.keys, call.args[0])


def test_flags(commands: Commands) -> None:
    """1 bind, 2 look the request id up (only where there is one), 4 durable."""
    target = commands.declared("k")

    def flags(**kwargs: Any) -> int:
        return head(commands.resolve(target, session_id="s", **kwargs))[0]

    assert flags() == 0
    assert flags(look_up=True) == 0
    assert flags(request_id="r") == FLAG_LOOK_UP
    assert flags(request_id="r", look_up=False) == 0
    assert flags(bind=Bind()) == FLAG_BIND
    assert flags(bind=Bind(), request_id="r", durable=True) == FLAG_BIND | FLAG_LOOK_UP | FLAG_DURABLE


def test_a_retry_of_our_own_looks_its_id_up(commands: Commands) -> None:
    """The first try may have taken effect; nothing else of the call changes, and the call itself does not."""
    call = commands.resolve(commands.declared("k"), session_id="s", request_id="r", look_up=False, bind=Bind())
    first, again = call.command()[-1], call.command(again=True)[-1]
    assert isinstance(first, bytes)
    assert isinstance(again, bytes)
    assert again[0] == first[0] | FLAG_LOOK_UP
    assert again[1:] == first[1:]
    assert call.command()[-1] == first
    other = commands.advance(commands.declared("k"), "new", request_id="r")
    assert other.command(again=True) == other.command()


def test_the_larger_epoch_of_stated_and_remembered_leads(commands: Commands) -> None:
    """The hot path needs one number; the stated one travels by itself too, since only it may be refused."""
    call = commands.resolve(commands.declared("k"), session_id="s", seen_epoch=5, remembered_epoch=9)
    assert head(call)[3] == 9
    packed = call.args[0][73:]
    args = msgspec.msgpack.decode(packed[: -len(msgspec.msgpack.encode(""))])
    assert args[0] == 5


def test_ttls(commands: Commands) -> None:
    """The namespace's defaults, or the call's own; microseconds on the wire."""
    target = commands.declared("k")
    assert head(commands.resolve(target, session_id="s", bind=Bind()))[2] == 300_000_000
    assert head(commands.resolve(target, session_id="s", bind=Bind(ttl_ms=1000)))[2] == 1_000_000


def test_a_policy(commands: Commands) -> None:
    """Idle in microseconds, three boundaries as ticks; an exempt turn sends none but still keeps the record as long."""
    target, now = commands.declared("k"), datetime(2026, 12, 1, 12, tzinfo=UTC)
    policy = Policy.parse({"idle_s": 31_536_000, "daily": {"at": "04:00", "tz": "UTC"}})

    def sent(**kwargs: Any) -> tuple[int, ...]:
        call = commands.resolve(target, session_id="s", policy=policy, now=now, **kwargs)
        assert head(call)[4] == 31_536_000_000
        return struct.unpack_from(">QQQQ", call.args[0], 41)

    day, four = 86_400_000_000, 4 * 3_600_000_000
    assert sent() == (31_536_000_000_000, 333 * day + four, 334 * day + four, 335 * day + four)
    assert sent(exempt=True) == (0, 0, 0, 0)
    with pytest.raises(InvalidRequest, match="wall time"):
        commands.resolve(target, session_id="s", policy=policy)


def test_domains(commands: Commands) -> None:
    """A key and an equal session id: two records of one partition."""
    key, session = commands.declared("same"), commands.physical("same")
    a, b = (commands.resolve(target, session_id="same").keys for target in (key, session))
    assert a[1:] == b[1:]
    assert (a[0].rpartition(":")[0][-4:], b[0].rpartition(":")[0][-4:]) == ("conv", "sess")


def test_numbers_beyond_a_float_stay_strings(commands: Commands) -> None:
    """Dynamo's worker ids."""
    worker = "18446744073709551615"
    call = commands.confirm(commands.declared("k"), 1, worker=worker)
    assert msgspec.msgpack.decode(call.args[0][16:])[3] == worker


def test_read_only_scripts_take_their_flags(commands: Commands) -> None:
    """Where the server knows them."""
    peek = commands.peek(commands.declared("k"))
    assert peek.command(flags_known=True)[1] != peek.command()[1]


# -- Bind --------------------------------------------------------------------------------------------------------------


def test_bind_parses() -> None:
    """None and False ask for none, True for the defaults, a mapping for what it says."""
    assert Bind.parse(None) is Bind.parse(False) is None
    assert Bind.parse(True) == Bind()
    assert Bind.parse({"worker": "w", "ttl_ms": 1000}) == Bind(worker="w", ttl_ms=1000)
    assert Bind.parse({}) == Bind()
    given_ = Bind(commit=True)
    assert Bind.parse(given_) is given_


@pytest.mark.parametrize(
    "value",
    [
        {"workers": "w"},
        {"ttl_ms": "1000"},
        {"ttl_ms": 999},
        {"ttl_ms": 31_536_000_001},
        {"claim_ttl_ms": 99},
        {"claim_ttl_ms": 3_600_001},
        {"wait_ms": -1},
        {"wait_ms": 30_001},
        {"commit": 1},
        {"worker": ""},
        {"worker": "a" * 257},
        {"holder": "a\nb"},
        {"pool": "\x7f"},
        Bind(ttl_ms=True),
        Bind(worker=7),  # type: ignore[arg-type]
        "yes",
        [],
    ],
)
def test_bind_refuses(value: Any) -> None:
    """Unknown fields, other types, and what is out of range."""
    with pytest.raises(InvalidRequest):
        Bind.parse(value)


@pytest.mark.parametrize(
    "value", [{"ttl_ms": 1000}, {"ttl_ms": 31_536_000_000}, {"claim_ttl_ms": 100}, {"claim_ttl_ms": 3_600_000}]
)
def test_bind_at_the_edge(value: dict[str, int]) -> None:
    """1 s to 1 year; 0.1 s to 1 h."""
    assert Bind.parse(value) is not None


# -- what comes back ---------------------------------------------------------------------------------------------------


def test_a_first_turn(commands: Commands) -> None:
    """Created, with its scope; decided."""
    target = commands.declared("k")
    call = commands.resolve(target, session_id="s", bind=Bind())
    raw = stored(mark=1, due=EPOCH + 10 * 1_000_000)
    answer = call.parse(replied(raw, [1, "", 0, 0, 1, EPOCH, 1, "new", 1, 0, 0, 0]))
    result = answer.result
    assert (result.key, result.session_id, result.epoch, result.ordinal, result.created) == ("k", "s", EPOCH, 1, True)
    assert result.scope == scope.declared("k", EPOCH, "prod")
    assert result.epoch_started_ms == 1_767_225_600_000 + EPOCH // 1000
    assert result.reset is None
    assert (result.binding.action, result.binding.state, result.binding.worker) == ("bind", "claimed", None)
    assert (result.binding.expires_in_ms, result.binding.retry_after_ms, result.binding.fence) == (10_000, None, EPOCH)
    assert (answer.decided, answer.behind, answer.replayed, answer.fence) == (True, False, False, EPOCH)


def test_a_reset(commands: Commands) -> None:
    """With the scope of the epoch before."""
    call = commands.resolve(commands.declared("k"), session_id="s")
    answer = call.parse(replied(stored(), [0, "idle", 55, 1, 0, EPOCH, 2, "idle", 1, 1, 0, 0]))
    reset = answer.result.reset
    assert (reset.reason, reset.previous_epoch, reset.new_conversation) == ("idle", 55, True)
    assert reset.previous_scope == scope.declared("k", 55, "prod")
    assert answer.behind


def test_a_replay_of_an_older_epoch(commands: Commands) -> None:
    """Its own epoch, without the binding of the newer one."""
    call = commands.resolve(commands.declared("k"), session_id="s", bind=Bind())
    answer = call.parse(replied(stored(mark=2, due=EPOCH + MINUTE, worker="w"), [0, "", 0, 0, 1, 77, 1, "new", 1, 0, 1, 0]))
    assert (answer.result.epoch, answer.result.binding, answer.epoch) == (77, None, EPOCH)


def test_the_short_reply(commands: Commands) -> None:
    """The record alone: nothing was decided."""
    call = commands.resolve(commands.declared("k"), session_id="s", bind=Bind())
    answer = call.parse(stored(mark=2, due=EPOCH + MINUTE + 1_000_000, worker="w"))
    assert (answer.result.binding.action, answer.result.binding.expires_in_ms) == ("continue", 60_000)
    assert not answer.decided


def test_a_session_has_no_generations(commands: Commands) -> None:
    """Its scope is the physical one; epoch and ordinal are nobody's business, and a reset of it none."""
    call = commands.resolve(commands.physical("s"), session_id="s", bind=Bind())
    result = call.parse(replied(stored(mark=1, due=EPOCH + MINUTE), [1, "", 0, 0, 1, EPOCH, 1, "new", 1, 0, 0, 0])).result
    assert (result.key, result.epoch, result.source, result.reset) == (None, None, "physical", None)
    assert result.scope == scope.physical("s", "prod")


def test_a_newer_schema_is_refused(commands: Commands) -> None:
    """Also in the short form, where no script has looked."""
    call = commands.peek(commands.declared("k"))
    with pytest.raises(SchemaTooNew):
        call.parse(b"\xcf" + bytes(8) + b"\x02" + stored()[1:])


def test_a_peek(commands: Commands) -> None:
    """No record and a forgotten one are None."""
    call = commands.peek(commands.declared("k"))
    time = b"\xcf" + EPOCH.to_bytes(8, "big")
    assert call.parse(time).result is None
    assert call.parse(time + stored(mark=16)).result is None
    assert call.parse(time + stored(mark=8)).result.epoch == EPOCH


def test_a_stale_fence(commands: Commands) -> None:
    """Says what happened and whom to follow."""
    raw = stored(mark=2, due=EPOCH + MINUTE, worker="w2", fence=99)
    with pytest.raises(StaleFence, match=r"Fence 5 does not hold .* confirm changed nothing; fence 99 does") as caught:
        commands.confirm(commands.declared("k"), 5).parse(replied(raw, [0, 2, 99, "w2", -1, 0, 0, 0]))
    assert caught.value.binding is not None
    assert (caught.value.binding.worker, caught.value.binding.action) == ("w2", "continue")
    with pytest.raises(StaleFence, match="unbound: resolve again") as caught:
        commands.renew(commands.declared("k"), 5).parse(replied(b"", [0, 0, 0, "", -1, 0, 0, 0]))
    assert caught.value.binding is None


def test_a_binding_that_moved_on() -> None:
    """A repeated confirm whose binding is another's by now: its own result, no deadline, and nothing written."""
    raw = stored(mark=1, due=EPOCH + MINUTE, fence=99)
    answer = read_binding("binding_confirm", 5, 1_000_000, replied(raw, [1, 2, 5, "w1", 3, 2, 0, 1]))
    assert (answer.result.fence, answer.result.worker, answer.result.dp_rank) == (5, "w1", 3)
    assert (answer.result.action, answer.result.expires_in_ms) == ("continue", None)
    assert (answer.decided, answer.replayed, answer.written) == (True, True, False)


@given(st.integers(0, 2 * MINUTE), st.sampled_from([1, 2]))
def test_what_a_binding_has_left(after: int, state: int) -> None:
    """The grace of a binding is ours: callers are told the deadline. A claim has none. Over is None."""
    grace = 1_000_000 if state == 2 else 0
    record = Record(stored(mark=state, due=EPOCH + MINUTE + grace, worker="w"))
    found = binding_of(record, EPOCH + after, 1_000_000)
    if after > MINUTE + grace:
        assert found is None
    else:
        assert found is not None
        assert found.expires_in_ms == max(0, MINUTE - after) // 1000
        assert (found.retry_after_ms is None) == (state == 2)


def test_a_binding_behind_a_set_back_clock() -> None:
    """Its time counts from its own last activity."""
    record = Record(stored(mark=1, due=EPOCH + MINUTE))
    found = binding_of(record, EPOCH - 60 * MINUTE, 1_000_000)
    assert found is not None
    assert found.expires_in_ms == 60_000
