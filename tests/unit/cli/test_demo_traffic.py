"""What the demo sends, where its keys come from, and what a gateway does by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from limpet.clock import SystemClock
from limpet.demo.alone import Table
from limpet.demo.plan import Burst, New, Pause, generate
from limpet.demo.replay import key_of, read
from limpet.errors import InvalidRequest
from limpet.settings import DEFAULT_KEY_SOURCES

RECORDED = Path(__file__).parents[2] / "data" / "aiperf_requests.jsonl"


def test_a_plan_has_all_that_the_demo_promises() -> None:
    """Concurrent first turns everywhere, an id per response, /new, idle resets, and victims for the kill."""
    plan = generate(300, gateways=4, victims=8)
    steps = [step for each in plan.conversations for step in each.steps]
    ids = [name for step in steps if isinstance(step, Burst) for name in step.session_ids]
    assert len(plan.conversations) == len({each.key for each in plan.conversations}) == 300
    assert len(ids) == len(set(ids)) > 2000
    assert all(isinstance(each.steps[0], Burst) and len(each.steps[0].session_ids) == 4 for each in plan.conversations)
    assert any(isinstance(step, New) for step in steps)
    assert any(isinstance(step, Pause) for step in steps)
    assert sum(each.victim for each in plan.conversations) == 8
    assert all(each.idle == any(isinstance(step, Pause) for step in each.steps) for each in plan.conversations)


def test_the_recorded_requests_make_36_sessions() -> None:
    """The sessions come from the load generator's own headers, and no request is lost or doubled."""
    plan = read(RECORDED, DEFAULT_KEY_SOURCES, victims=8)
    wanted = {dict(json.loads(line)["headers"])["X-Session-Affinity"] for line in RECORDED.read_text().splitlines()}
    assert {each.key for each in plan.conversations} == wanted
    assert len(plan.conversations) == 36
    assert sum(len(each.steps) for each in plan.conversations) == 156


@pytest.mark.parametrize(
    ("headers", "body", "key"),
    [
        ([("X-Dynamo-Session-ID", "d"), ("x-session-id", "s"), ("X-Session-Affinity", "a")], None, "s"),
        ([("X-Dynamo-Session-ID", "d"), ("X-Session-Affinity", "a")], None, "a"),
        ([("X-Dynamo-Session-ID", "d")], {"session_id": "b"}, "d"),
        ([("X-SMG-Routing-Key", "r"), ("x-claude-code-session-id", "c")], None, "r"),
        ([("session-id", "c")], {"prompt_cache_key": "p"}, "c"),
        ([("X-Session-ID", "")], {"session_id": None, "prompt_cache_key": "p"}, "p"),
        ([("X-Session-ID", "first"), ("X-Session-ID", "second")], None, "first"),
        ([("X-Correlation-ID", "off by default")], {"session_id": 7}, None),
    ],
)
def test_the_first_source_that_has_a_key_wins(
    headers: list[tuple[str, str]], body: dict[str, object] | None, key: str | None
) -> None:
    """The order of design, section 7; names compare without case; X-Correlation-ID is off."""
    assert key_of(headers, body, DEFAULT_KEY_SOURCES) == key


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "holds no request"),
        (b"\n\n", "holds no request"),
        (b"not json\n", "line 1, is no recorded request"),
        (b'{"path": "/", "headers": [["X-Session-ID", "s"]]}\n{"path": 1}\n', "line 2, is no recorded request"),
        (b'{"path": "/", "headers": {"X-Session-ID": "s"}}\n', "line 1, is no recorded request"),
        (b'{"path": "/", "headers": [["X-Session-ID"]]}\n', "line 1, is no recorded request"),
        (b'{"path": "/", "headers": [["X-Session-ID", "\xff"]]}\n', "line 1, is no recorded request"),
        (b'{"path": "/", "headers": [["X-Session-ID", "' + b"k" * 257 + b'"]]}\n', "257 bytes long"),
        (b'{"path": "/", "headers": [["X-Correlation-ID", "c"]]}\n', "line 1, names no conversation"),
    ],
)
def test_a_malformed_file_is_told_by_its_line(tmp_path: Path, content: bytes, says: str) -> None:
    """One clear sentence, with the line."""
    file = tmp_path / "requests.jsonl"
    file.write_bytes(content)
    with pytest.raises(InvalidRequest, match=says) as caught:
        read(file, DEFAULT_KEY_SOURCES, victims=8)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """Neither is there a traceback for a directory."""
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(InvalidRequest, match="Cannot read"):
            read(path, DEFAULT_KEY_SOURCES, victims=8)


class Hand(SystemClock):
    """A clock that the test moves."""

    at = 0.0

    def monotonic(self) -> float:
        """Where the hand stands."""
        return self.at


def test_a_process_of_its_own_keeps_what_it_picked_until_it_forgets() -> None:
    """As the peers do it: picked on first sight, kept while it is active, gone after /new or idleness."""
    clock = Hand()
    table = Table(["w1", "w2", "w3"], 1.0, clock, seed=1)
    first = table.pick("a", idle=True)
    assert first[1]
    clock.at = 0.9
    assert table.pick("a", idle=True) == (first[0], False)
    clock.at = 1.8
    assert table.pick("a", idle=True) == (first[0], False)  # sliding
    clock.at = 9.0
    assert table.pick("a", idle=False) == (first[0], False)
    clock.at = 19.0
    assert table.pick("a", idle=True)[1]
    table.forget("a")
    assert table.pick("a", idle=True)[1]


def test_a_process_of_its_own_spreads_its_load() -> None:
    """It picks the least loaded worker that it knows of; what others have picked it does not know."""
    table = Table(["w1", "w2", "w3"], 1.0, Hand(), seed=1)
    picked = [table.pick(f"k{number}", idle=False)[0] for number in range(9)]
    assert sorted(picked) == ["w1"] * 3 + ["w2"] * 3 + ["w3"] * 3
