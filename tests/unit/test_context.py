"""The published scope: set, shadowed, restored; also where things end in another order or context than they began."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterator

import pytest

from limpet.context import Published, publish, publish_if_absent, published


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Every test leaves the context as it found it."""
    assert published() is None
    yield
    assert published() is None


def test_nothing_is_published_by_default() -> None:
    """None."""
    assert published() is None


def test_a_nested_turn_shadows_its_parent() -> None:
    """Also with None: a fork without a scope does not stamp its parent's."""
    with publish("outer"):
        with publish(None):
            assert published() is None
            with publish("inner"):
                assert published() == "inner"
            assert published() is None
        assert published() == "outer"


def test_an_early_return_and_an_error_restore() -> None:
    """`finally`, so whatever way out."""

    def early() -> str | None:
        with publish("inside"):
            return published()

    assert early() == "inside"
    with pytest.raises(RuntimeError), publish("inside"):
        raise RuntimeError
    assert published() is None


def test_ending_twice_changes_nothing() -> None:
    """The second end of one publication does not undo somebody else's."""
    first = Published("a")
    first.end()
    with publish("b"):
        first.end()
        assert published() == "b"


def test_ending_in_another_context() -> None:
    """A token of another context cannot be used there; what was before is restored all the same."""
    with publish("before"):
        held = Published("mine")
        other = contextvars.copy_context()

        def end() -> str | None:
            held.end()
            return published()

        assert other.run(published) == "mine"
        assert other.run(end) == "before"
        # Here, where it was entered, it is still published: this context never left it.
        assert published() == "mine"


async def test_tasks_do_not_see_one_another() -> None:
    """Each task has its own; what a child publishes does not reach its parent."""
    ready = asyncio.Event()

    async def turn(name: str) -> str | None:
        with publish(name):
            ready.set()
            await asyncio.sleep(0)
            return published()

    assert await asyncio.gather(turn("a"), turn("b")) == ["a", "b"]
    assert ready.is_set()
    assert published() is None


async def test_a_child_inherits() -> None:
    """Code that a turn starts is stamped with the turn's scope."""
    with publish("parent"):
        assert await asyncio.create_task(_read()) == "parent"


async def _read() -> str | None:
    return published()


def test_out_of_turn_work_publishes_only_where_nothing_is() -> None:
    """Compaction within a turn keeps the turn's scope; without one it publishes its own."""
    with publish_if_absent("compaction") as scope:
        assert scope == published() == "compaction"
    with publish("turn"), publish_if_absent("compaction") as scope:
        assert scope == published() == "turn"
    with publish_if_absent(None) as scope:
        assert scope is None
