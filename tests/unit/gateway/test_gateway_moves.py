"""Who moved a conversation, and where it is better not moved back to."""

from __future__ import annotations

import pytest

from limpet.gateway import moves as module
from limpet.gateway.moves import HOLD_S, Moves
from limpet.results import Binding

NAME = ("default", "declared", "c")
OTHER = ("other", "declared", "c")


class Time:
    """A clock that is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def at(worker: str | None, fence: int, action: str = "continue") -> Binding:
    """A binding as a turn is told of it."""
    return Binding(action=action, state="bound", worker=worker, fence=fence)  # type: ignore[arg-type]


def test_moved_by_somebody_else() -> None:
    """The worker that others took it off is avoided for a while."""
    time = Time()
    moves = Moves(time)
    moves.saw(NAME, at("a", 1))
    moves.saw(NAME, at("b", 2))
    assert moves.avoid(NAME) == {"a"}
    moves.saw(NAME, at("a", 1))  # a late answer is no move
    assert moves.avoid(NAME) == {"a"}
    time.now = HOLD_S + 0.1
    assert moves.avoid(NAME) == frozenset()


def test_moved_by_ourselves() -> None:
    """Our own move says nothing against the worker that it was taken off."""
    moves = Moves(Time())
    moves.saw(NAME, at("a", 1))
    moves.saw(NAME, at("b", 2, "bind"))
    assert moves.avoid(NAME) == frozenset()
    moves.saw(NAME, at("a", 3))
    assert moves.avoid(NAME) == {"b"}


def test_put_back_by_somebody_else() -> None:
    """Whoever put it back there thinks well of the worker again."""
    moves = Moves(Time())
    for fence, worker in enumerate(("a", "b", "a"), 1):
        moves.saw(NAME, at(worker, fence))
    assert moves.avoid(NAME) == {"b"}


def test_what_says_nothing() -> None:
    """No binding, no worker yet, no fence; and of the many conversations the oldest are forgotten."""
    moves = Moves(Time())
    for binding in (None, at(None, 1), at(None, 2)):
        moves.saw(NAME, binding)
    assert moves.avoid(NAME) == frozenset()


def test_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more conversations than it may remember, the ones seen last."""
    monkeypatch.setattr(module, "MOST", 2)
    moves = Moves(Time())
    for name in (NAME, OTHER):
        moves.saw(name, at("a", 1))
        moves.saw(name, at("b", 2))
    moves.saw(("default", "physical", "c"), at("a", 1))
    assert (moves.avoid(NAME), moves.avoid(OTHER)) == (frozenset(), {"a"})
