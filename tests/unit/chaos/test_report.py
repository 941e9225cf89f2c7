"""Histories on disk, and the figures of a run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from limpet.chaos.history import Fault, Note, Stall, Writer, load
from limpet.chaos.report import make_report
from limpet.chaos.run import judge

from .story import MS, Story


def some() -> Story:
    story = Story()
    story.history.add(Note(seed=7, namespace="default", topology="cluster"))
    story.first(100, told={"durable": True})
    story.claim(100, 150, told={"durable": False})
    start = story.now
    story.fault(100)
    story.degraded(at=(start + 20, start + 30))
    story.lost("advance", at=(start + 50, start + 60))
    story.turn(200, told={"reset": "rollback", "previous_epoch": 150, "durable": True}, seen_epoch=150)
    story.stale("confirm", 150, None)
    return story


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    """All kinds of entries, of several files."""
    story = some().stall(1, 2)
    with Writer(tmp_path / "a") as a, Writer(tmp_path / "b") as b:
        for call in story.history.calls:
            a.write(call)
        for entry in (*story.history.faults, *story.history.stalls, *story.history.notes):
            b.write(entry)
    again = load([tmp_path / "a", tmp_path / "b"])
    assert again.calls == sorted(story.history.calls, key=lambda call: call.start_us)
    assert (again.faults, again.stalls, again.notes) == (story.history.faults, story.history.stalls, story.history.notes)


def test_a_full_writer_says_so(tmp_path: Path) -> None:
    """Whoever writes is to stop beginning calls; none under way is left out."""
    with Writer(tmp_path / "a", limit=1) as writer:
        assert not writer.full
        for n in range(3):
            writer.write(Stall(process="p", start_us=n, end_us=n))
        assert writer.full
    assert len(load([tmp_path / "a"]).stalls) == 3


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    """A file that is something else raises."""
    (tmp_path / "a").write_text('{"type": "letter"}\n')
    with pytest.raises(msgspec.DecodeError):
        load([tmp_path / "a"])


def test_figures() -> None:
    """Operations, decisions, and what a fault did."""
    report = judge(some().history)
    assert (report.seed, report.topology, report.calls) == (7, "cluster", 6)
    assert report.operations["resolve"] == {"ok": 3, "degraded": 1}
    assert report.operations["advance"] == {"store_unavailable": 1}
    assert (report.decisions, report.durable, report.undurable, report.unasked) == (3, 2, 1, 0)
    assert (report.degraded, report.unavailable, report.rollbacks, report.stale_fences, report.binds) == (1, 1, 1, 1, 1)
    (fault,) = report.faults
    assert (fault.times, fault.degraded, fault.away_ms_worst) == (1, 1, 100.0)
    assert fault.p99_before_ms == 1.0
    assert fault.p99_during_ms == 10.0
    assert msgspec.json.encode(report)


def test_time_without_answers_is_the_longest_gap() -> None:
    """Good answers within a fault divide it."""
    story = Story()
    story.first(100, at=(1000, 1001))
    story.turn(100, at=(1030, 1040))
    story.turn(100, at=(1041, 1050))
    story.history.add(Fault(name="f", node="", start_us=1010 * MS, over_us=1100 * MS, healed_us=1100 * MS))
    report = judge(story.history)
    assert report.faults[0].away_ms_worst == 50.0


def test_nothing_happened() -> None:
    """An empty history has a report too."""
    story = Story()
    assert make_report(story.history, story.verdict).calls == 0
