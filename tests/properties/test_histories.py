"""Random histories of several clients against the real scripts, beside a plain model that knows the guarantees.

What a history can hold is in ``grammar``; what is compared, in ``world``; what must hold whatever the model says, in
``ledger``. ``test_planted`` shows that faults are found.
"""

from __future__ import annotations

from collections import Counter

import pytest
import redis
from hypothesis import HealthCheck, Phase, given, settings

from .grammar import Step, draw, steps
from .world import World

SEEDS = 250
LENGTH = 90


@settings(
    max_examples=250,
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
@given(history=steps())
def test_any_history_agrees_with_the_model_and_keeps_the_guarantees(store: redis.Redis, history: list[Step]) -> None:
    """Whatever clients do, and whatever happens to data and clock, the answers are the model's and G1 to G6 hold."""
    World(store).run(history)


@pytest.mark.slow
def test_long_histories_of_fixed_seeds_meet_every_outcome(store: redis.Redis) -> None:
    """Long histories hold too, and they are no idle ones: every answer that the scripts can give occurs in them."""
    outcomes: Counter[str] = Counter()
    for seed in range(SEEDS):
        world = World(store)
        try:
            world.run(draw(seed, LENGTH))
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        outcomes += world.outcomes
    reasons = ("", "idle", "daily", "suspended", "resume_expired", "rollback")
    expected = {f"resolve {reason} {action}" for reason in reasons for action in ("", "bind")}
    expected |= {"resolve  continue", "resolve  wait", "resolve implausible_epoch", "replayed"}
    expected |= {f"advance {outcome}" for outcome in ("True", "False", "implausible_epoch")}
    expected |= {f"forget {outcome}" for outcome in ("True", "False", "implausible_epoch")}
    expected |= {"suspend True", "suspend False"}
    expected |= {f"{op} stale_fence" for op in ("confirm", "renew", "abort", "release", "rebind")}
    expected |= {f"{op} " for op in ("confirm", "renew", "abort", "release", "rebind")}
    assert expected - {outcome for outcome, times in outcomes.items() if times >= 3} == set()
