"""Cache-bust markers: the vectors, the edges of a message, /v1/responses, raw bytes, and what always holds."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.cache_bust import TARGETS, apply, apply_to_body, marker_for
from limpet.errors import InvalidRequest

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "cache_bust.json").read_text(encoding="utf-8"))
M = "[rid:0a1b2c3d4e5f]"


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def system(content: Any, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": content}


def text(content: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": content}


@pytest.mark.parametrize("case", VECTORS, ids=lambda c: c["name"])
def test_vectors(case: dict[str, Any]) -> None:
    """Every published vector holds: for the messages, and for a whole body as a dict and as bytes."""
    before = copy.deepcopy(case["messages"])
    args = (case["marker"], case["target"], case.get("fork", False))
    assert apply(case["messages"], *args) == case["output"]
    assert apply_to_body({"messages": case["messages"]}, *args) == {"messages": case["output"]}
    raw = apply_to_body(json.dumps({"messages": case["messages"]}).encode(), *args)
    assert json.loads(raw) == {"messages": case["output"]}
    assert case["messages"] == before


def test_the_marker_is_twelve_digits_of_the_scopes_hash() -> None:
    """[rid:<12 hex>] of sha256(scope), so every replica makes the same."""
    scope = "gwk_d08bfd0924cb513e9acafc0b"
    assert marker_for(scope) == f"[rid:{hashlib.sha256(scope.encode()).hexdigest()[:12]}]"


@pytest.mark.parametrize(
    ("target", "content", "expected"),
    [
        ("first_turn_prefix", "", M),
        ("first_turn_suffix", "", M),
        ("first_turn_prefix", None, M),
        ("first_turn_prefix", M, M),
        ("first_turn_suffix", M, M),
        ("first_turn_prefix", f"what is {M}?", f"{M}\n\nwhat is {M}?"),
        ("first_turn_suffix", f"what is {M}?", f"what is {M}?\n\n{M}"),
        ("first_turn_prefix", f"hello\n\n{M}", f"{M}\n\nhello\n\n{M}"),
        ("first_turn_suffix", f"{M}\n\nhello", f"{M}\n\nhello\n\n{M}"),
        ("first_turn_prefix", "[rid:ffffffffffff]\n\nx", f"{M}\n\n[rid:ffffffffffff]\n\nx"),
        ("first_turn_prefix", f" {M}", f"{M}\n\n {M}"),
        ("first_turn_prefix", [], [text(M)]),
        ("first_turn_suffix", [], [text(M)]),
        ("first_turn_prefix", [text("")], [text(M), text("")]),
        ("first_turn_suffix", [text("a"), text("b")], [text("a"), text("b"), text(M)]),
        ("first_turn_prefix", [text(M), text("a")], [text(M), text("a")]),
        ("first_turn_prefix", [text(f"{M}\n\na")], [text(f"{M}\n\na")]),
        ("first_turn_prefix", [text("a"), text(M)], [text(M), text("a"), text(M)]),
        ("first_turn_prefix", [{"type": "image_url", "image_url": M}], [text(M), {"type": "image_url", "image_url": M}]),
        ("first_turn_prefix", ["bare"], [text(M), "bare"]),
        ("first_turn_prefix", 5, 5),
    ],
)
def test_the_edge_of_the_first_user_turn(target: str, content: Any, expected: Any) -> None:
    """Only a marker at the very edge counts as there; an empty text is the bare marker; a list gets its own part."""
    assert apply([user(content), user("later")], M, target) == [user(expected), user("later")]
    raw = apply_to_body(json.dumps({"messages": [user(content)]}).encode(), M, target)
    assert json.loads(raw)["messages"] == [user(expected)]


def test_a_message_without_content_gets_the_bare_marker() -> None:
    """No content is empty content."""
    assert apply([{"role": "user"}], M, "first_turn_prefix") == [user(M)]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_first_system_message_is_marked_once(role: str) -> None:
    """system_* marks the first system or developer message only, wherever it stands, and no user."""
    messages = [user("u"), system("a", role), system("b")]
    assert apply(messages, M, "system_prefix") == [user("u"), system(f"{M}\n\na", role), system("b")]
    assert apply(messages, M, "system_suffix") == [user("u"), system(f"a\n\n{M}", role), system("b")]
    parts = [system([text("a")], role)]
    assert apply(parts, M, "system_suffix") == [system([text("a"), text(M)], role)]


def test_no_system_message_marks_the_first_user_turn_at_the_same_edge() -> None:
    """system_suffix without a system message is first_turn_suffix."""
    assert apply([{"role": "assistant", "content": "x"}, user("u")], M, "system_suffix")[1] == user(f"u\n\n{M}")


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_to_mark_changes_nothing(target: str) -> None:
    """Neither an empty history, one without users and systems, nor a fork is touched."""
    assert apply([], M, target) == []
    assert apply([{"role": "assistant", "content": "x"}], M, target) == [{"role": "assistant", "content": "x"}]
    assert apply([system("s"), user("u")], M, target, fork=True) == [system("s"), user("u")]
    for body in ({}, {"messages": None}, {"input": None}, {"input": 5}, {"prompt": [1, 2]}, {"messages": ["x", 5, None]}):
        assert apply_to_body(body, M, target) == body


@pytest.mark.parametrize(
    ("target", "body", "expected"),
    [
        ("first_turn_prefix", {"input": "hi"}, {"input": f"{M}\n\nhi"}),
        ("first_turn_suffix", {"input": ""}, {"input": M}),
        ("system_prefix", {"input": "hi"}, {"input": f"{M}\n\nhi"}),
        ("system_prefix", {"input": "hi", "instructions": "be"}, {"input": "hi", "instructions": f"{M}\n\nbe"}),
        ("system_suffix", {"input": "hi", "instructions": ""}, {"input": f"hi\n\n{M}", "instructions": ""}),
        ("system_suffix", {"input": "hi", "instructions": None}, {"input": f"hi\n\n{M}", "instructions": None}),
        ("first_turn_prefix", {"input": "hi", "instructions": "be"}, {"input": f"{M}\n\nhi", "instructions": "be"}),
        (
            "first_turn_prefix",
            {"input": [{"type": "reasoning"}, user("a"), user("b")]},
            {"input": [{"type": "reasoning"}, user(f"{M}\n\na"), user("b")]},
        ),
        (
            "first_turn_suffix",
            {"input": [{"type": "message", "role": "user", "content": [text("a", "input_text")]}]},
            {"input": [{"type": "message", "role": "user", "content": [text("a", "input_text"), text(M, "input_text")]}]},
        ),
        ("first_turn_prefix", {"input": [user([text(M, "input_text")])]}, {"input": [user([text(M, "input_text")])]}),
        ("system_prefix", {"input": [system("s"), user("u")]}, {"input": [system(f"{M}\n\ns"), user("u")]}),
        ("first_turn_prefix", {"prompt": "once upon"}, {"prompt": f"{M}\n\nonce upon"}),
    ],
)
def test_responses_and_completions(target: str, body: dict[str, Any], expected: dict[str, Any]) -> None:
    """The input of /v1/responses may be a text or a list, with parts of its own type; instructions are its system."""
    before = copy.deepcopy(body)
    assert apply_to_body(body, M, target) == expected
    assert body == before
    assert json.loads(apply_to_body(json.dumps(body).encode(), M, target)) == expected


@pytest.mark.parametrize("name", ["previous_response_id", "conversation"])
def test_a_continued_response_does_not_hold_the_first_turn(name: str) -> None:
    """A request that continues a stored response marks no later user turn as if it were the first; null is no value."""
    for shape in ("hi", [user("hi")]):
        body = {"input": shape, name: "resp_1"}
        for target in TARGETS:
            assert apply_to_body(body, M, target) == body
    assert apply_to_body({"input": "hi", name: None}, M, "first_turn_prefix")["input"] == f"{M}\n\nhi"
    own = {"input": [system("s"), user("hi")], name: "resp_1"}
    assert apply_to_body(own, M, "system_prefix")["input"] == [system(f"{M}\n\ns"), user("hi")]
    own = {"input": "hi", "instructions": "be", name: "resp_1"}
    assert apply_to_body(own, M, "system_prefix")["instructions"] == f"{M}\n\nbe"


def test_bytes_keep_what_is_not_marked() -> None:
    """Numbers beyond 64 bits, exact floats, key order and foreign parts stay as they were written."""
    raw = (
        b'{"z": 123456789012345678901234567890, "messages": [{"n": 1e400, "role": "user", "content": "a"}, {"x": 1.0 }],'
        b' "seed": 0.10}'
    )
    assert apply_to_body(raw, M, "first_turn_prefix") == (
        b'{"z":123456789012345678901234567890,"messages":[{"n":1e400,"role":"user","content":"'
        + M.encode()
        + b'\\n\\na"},{"x": 1.0 }],"seed":0.10}'
    )
    assert apply_to_body(raw, M, "none") is raw


def test_half_an_emoji_is_marked_all_the_same() -> None:
    """A client that cut an emoji in two sends an escaped lone surrogate; it stays one."""
    raw = b'{"messages": [{"role": "user", "content": "cut \\ud83d"}], "input": 1}'
    marked = apply_to_body(raw, M, "first_turn_prefix")
    assert marked == b'{"messages":[{"role":"user","content":"' + M.encode() + b'\\n\\ncut \\ud83d"}],"input":1}'
    assert apply_to_body(b'{"input":"\\ud83d"}', M, "first_turn_suffix") == b'{"input":"\\ud83d\\n\\n' + M.encode() + b'"}'


@pytest.mark.parametrize("bad", [b"", b"[]", b"null", b"{", b'"x"', b'{"a":1}x', b'{"a":"\xff"}', b'{"a":NaN}'])
@pytest.mark.parametrize("target", ["none", "first_turn_prefix"])
def test_bytes_that_are_no_object_are_refused(bad: bytes, target: str) -> None:
    """A ValueError, whatever the target: nothing is sent."""
    with pytest.raises(ValueError, match="body"):
        apply_to_body(bad, M, target)


def test_an_unknown_target_and_an_empty_marker_are_refused() -> None:
    """A misspelt target must not mean "none"."""
    with pytest.raises(InvalidRequest, match="target"):
        apply([user("x")], M, "first_turn")
    with pytest.raises(InvalidRequest, match="marker"):
        apply([user("x")], "", "first_turn_prefix")


PARTS = st.lists(
    st.one_of(
        st.builds(text, st.sampled_from(["", M, "a", f"{M}\n\na", f"a\n\n{M}"])),
        st.just({"type": "image_url", "image_url": {"url": "u"}}),
    ),
    max_size=3,
)
CONTENT = st.one_of(st.none(), st.sampled_from(["", M, f"{M}\n\nq", f"q\n\n{M}", f"a {M} b"]), st.text(max_size=8), PARTS)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "developer", "user", "assistant"]), "content": CONTENT}),
    max_size=5,
)


@given(MESSAGES, st.sampled_from(TARGETS), st.booleans())
def test_pure_idempotent_and_alike_in_both_forms(messages: list[dict[str, Any]], target: str, fork: bool) -> None:
    """The input never changes, twice is once, at most one message differs, and dict and bytes agree."""
    before = copy.deepcopy(messages)
    once = apply(messages, M, target, fork)
    assert messages == before
    assert apply(once, M, target, fork) == once
    assert sum(a != b for a, b in zip(messages, once, strict=True)) <= 1
    for body in ({"model": "m", "messages": messages}, {"input": messages}):
        raw = json.dumps(body).encode()
        assert json.loads(apply_to_body(raw, M, target, fork)) == apply_to_body(body, M, target, fork)
    assert messages == before
