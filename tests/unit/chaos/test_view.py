"""What ``limpet chaos`` prints at the end."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from limpet.chaos.history import Note
from limpet.chaos.run import judge
from limpet.cli.chaos import outcome, show

from .story import Story


def shown(story: Story) -> str:
    story.history.add(Note(seed=7, namespace="default", topology="t"))
    out = StringIO()
    show(Console(file=out, width=140), judge(story.history))
    return out.getvalue()


def test_a_sound_run() -> None:
    """Figures of operations and faults, and that nothing was violated."""
    story = Story()
    story.first(100, told={"durable": True})
    story.claim(100, 150, told={"durable": False})
    story.fault()
    story.claim(100, 250, client="b", told={"durable": True})
    text = shown(story)
    assert "No violation" in text
    assert "3 decisions: 2 durable, 1 not, 0 unasked" in text
    assert "claims lost and made again: 1" in text


def test_a_violation() -> None:
    """The rule, the guarantee it stands for, what happened, and how to repeat the run."""
    story = Story()
    story.first(100)
    story.claim(100, 150)
    story.claim(100, 160, client="b")
    text = shown(story)
    assert "two-claimers: 1" in text
    assert "G4" in text
    assert "conv:k: bind was told for fence 160 while 150 held" in text
    assert "--seed 7" in text
    assert "No violation" not in text


def code(story: Story) -> int:
    story.history.add(Note(seed=7, namespace="default", topology="t"))
    return outcome(judge(story.history))


def test_a_run_without_calls_proves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, and one line that says so: a verdict over nothing is not a good one. A sound run is 0, a violation 1."""
    assert code(Story()) == 1
    told = capsys.readouterr().err
    assert told.startswith("limpet: No call was made")
    assert told.count("\n") == 1
    sound = Story()
    sound.first(100)
    assert code(sound) == 0
    broken = Story()
    broken.first(100)
    broken.claim(100, 150)
    broken.claim(100, 160, client="b")
    assert code(broken) == 1
