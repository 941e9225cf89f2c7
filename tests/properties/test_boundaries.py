"""To the microsecond: the last instant at which something still holds, and the first at which it does not.

The random histories keep off exact equality; here it is met on purpose. Granularity 1 s throughout.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from limpet.bind import Bind
from limpet.commands import Commands
from limpet.errors import ImplausibleEpoch
from limpet.executors.simple import run
from limpet.policy import NONE, Policy
from limpet.results import Resolution

S = 1_000_000
NOON = 200 * 86_400 * S + 43_200 * S
FOUR = NOON + 16 * 3600 * S  # the next 04:00 UTC
IDLE = Policy.parse({"idle_s": 60})
DAILY = Policy.parse({"daily": {"at": "04:00", "tz": "UTC"}})


class Key:
    """One conversation on an empty store."""

    def __init__(self, client: redis.Redis) -> None:
        client.flushall()
        self.client = client
        self.commands = Commands(namespace="boundaries", partitions=1, granularity_ms=1000)
        self.target = self.commands.declared("k")

    def turn(self, now_us: int, policy: Policy = NONE, bind: Bind | None = None, **more: Any) -> Resolution:
        wall = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=now_us)
        call = self.commands.resolve(self.target, session_id="s", policy=policy, now=wall, bind=bind, now_us=now_us, **more)
        answer = run(self.client, call)
        assert isinstance(answer.result, Resolution)
        return answer.result

    def reset(self, now_us: int, policy: Policy, **more: Any) -> str | None:
        """The reason of the reset that a turn makes."""
        made = self.turn(now_us, policy, **more).reset
        return made.reason if made else None

    def action(self, now_us: int, bind: Bind) -> str | None:
        """What a turn is told about its binding."""
        held = self.turn(now_us, bind=bind).binding
        assert held is not None
        return held.action


@pytest.fixture
def key(store: redis.Redis) -> Key:
    return Key(store)


def test_idle_fires_one_microsecond_after_idle_and_granularity(key: Key) -> None:
    """Idle fires if now > last + granularity + idle, so never before ``idle`` has passed since an unwritten turn."""
    key.turn(NOON)
    assert key.reset(NOON + 61 * S, IDLE) is None
    assert key.reset(NOON + 61 * S + 61 * S + 1, IDLE) == "idle"


def test_daily_fires_only_when_the_last_activity_is_surely_before_the_boundary(key: Key) -> None:
    """Daily fires if last + granularity < boundary, and at the boundary itself, not before it."""
    key.turn(FOUR - 1 * S - 1)
    assert key.reset(FOUR - 1, DAILY, exempt=True) is None
    assert key.reset(FOUR, DAILY) is None
    key.client.flushall()
    key.turn(FOUR - 1 * S)
    assert key.reset(FOUR, DAILY) is None
    key.client.flushall()
    key.turn(FOUR - 1 * S - 1)
    assert key.reset(FOUR, DAILY) == "daily"


def test_idle_and_daily_together_are_idle(key: Key) -> None:
    """Idle is checked before daily."""
    both = Policy.parse({"idle_s": 60, "daily": {"at": "04:00", "tz": "UTC"}})
    key.turn(FOUR - 3600 * S)
    assert key.reset(FOUR + 1 * S, both) == "idle"


def test_a_claim_lasts_to_its_deadline_and_not_longer(key: Key) -> None:
    """Claims are written exactly and get no grace."""
    ask = Bind(claim_ttl_ms=10_000)
    assert key.action(NOON, ask) == "bind"
    assert key.action(NOON + 10 * S, ask) == "wait"
    assert key.action(NOON + 10 * S + 1, ask) == "bind"


def test_a_binding_lasts_one_granularity_beyond_its_deadline(key: Key) -> None:
    """A slide may be unwritten for one granularity, so the binding gets that much grace."""
    ask = Bind(ttl_ms=60_000, commit=True)
    assert key.action(NOON, ask) == "bind"
    assert key.action(NOON + 999_999, ask) == "continue"  # not written
    assert key.action(NOON + 60 * S + 999_999, ask) == "continue"
    assert key.action(NOON + 60 * S + 999_999 + 61 * S + 1, ask) == "bind"


def test_a_turn_at_the_end_of_the_resume_window_resumes(key: Key) -> None:
    """A turn within N seconds resumes, and no policy fires on it; later it resets, also when exempt."""
    for late, reason in ((0, None), (1, "resume_expired")):
        key.client.flushall()
        key.turn(NOON)
        run(key.client, key.commands.suspend(key.target, window_ms=600_000, now_us=NOON))
        assert key.reset(NOON + 600 * S + late, IDLE, exempt=True) == reason


def test_a_seen_epoch_is_believed_up_to_60_s_ahead(key: Key) -> None:
    """One microsecond more is refused when it is stated, and dropped when it is a replica's memory."""
    epoch = key.turn(NOON).epoch
    limit = NOON + 60 * S
    with pytest.raises(ImplausibleEpoch):
        key.turn(NOON, seen_epoch=limit + 1)
    assert key.turn(NOON, remembered_epoch=limit + 1).epoch == epoch
    healed = key.turn(NOON, seen_epoch=limit)
    assert healed.epoch is not None
    assert healed.epoch > limit
    assert healed.reset is not None
    assert (healed.reset.reason, healed.reset.new_conversation) == ("rollback", False)
