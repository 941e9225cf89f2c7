"""The circuit breaker, on a clock of its own."""

from __future__ import annotations

import pytest

from limpet.executors.breaker import FAILURES, OPEN_S, Breaker


class Ticks:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


def opened(ticks: Ticks) -> Breaker:
    breaker = Breaker(ticks)
    for _ in range(FAILURES):
        breaker.failed()
    return breaker


def test_closed(ticks: Ticks) -> None:
    """It admits everything, up to the last failure but one."""
    breaker = Breaker(ticks)
    for _ in range(FAILURES - 1):
        assert breaker.admits()
        breaker.failed()
    assert breaker.admits()
    assert not breaker.open


def test_a_success_forgets_the_failures(ticks: Ticks) -> None:
    """In a row means in a row."""
    breaker = Breaker(ticks)
    for _ in range(3):
        for _ in range(FAILURES - 1):
            breaker.failed()
        breaker.succeeded()
    assert not breaker.open


def test_open(ticks: Ticks) -> None:
    """It admits nothing for OPEN_S, then one call, and nothing beside it."""
    breaker = opened(ticks)
    assert breaker.open
    assert not breaker.admits()
    ticks.now += OPEN_S - 0.001
    assert not breaker.admits()
    ticks.now += 0.001
    assert breaker.admits()
    assert not breaker.admits()


def test_the_trial_closes_it(ticks: Ticks) -> None:
    """Its success admits all at once."""
    breaker = opened(ticks)
    ticks.now += OPEN_S
    assert breaker.admits()
    breaker.succeeded()
    assert not breaker.open
    assert breaker.admits()
    assert breaker.admits()


def test_the_trial_fails(ticks: Ticks) -> None:
    """It stays open for OPEN_S from then on."""
    breaker = opened(ticks)
    ticks.now += OPEN_S
    assert breaker.admits()
    ticks.now += 0.2
    breaker.failed()
    ticks.now += OPEN_S - 0.001
    assert not breaker.admits()
    ticks.now += 0.001
    assert breaker.admits()


def test_a_trial_that_never_reports(ticks: Ticks) -> None:
    """A cancelled trial does not keep it open for ever."""
    breaker = opened(ticks)
    ticks.now += OPEN_S
    assert breaker.admits()
    ticks.now += OPEN_S
    assert breaker.admits()
