"""What holds for every profile, turn, request and set of owned fields."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.wire import PROFILES, find_profile, stamp

KEY = "the-key"
WORDS = st.sampled_from(["mine", KEY, "", "gwk_a", "é", "x" * 300])
VALUE = st.one_of(st.none(), WORDS, st.integers(0, 3), st.lists(WORDS, max_size=2))
SPECS: list[Any] = [
    *PROFILES,
    {"profile": "dynamo", "value": "session_id"},
    {"profile": "dynamo-session-control", "value": "session_id", "open": True},
]

CONTROL = st.one_of(VALUE, st.dictionaries(st.sampled_from(["session_id", "action", "timeout", "x"]), VALUE))
NVEXT = st.one_of(VALUE, st.fixed_dictionaries({}, optional={"session_control": CONTROL, "extra_fields": VALUE, "hints": VALUE}))
BODY = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["m", "x-ai/grok-4", None]),
        "prompt_cache_key": VALUE,
        "session_id": VALUE,
        "user_id": VALUE,
        "cache_salt": VALUE,
        "tags": st.one_of(VALUE, st.lists(st.sampled_from(["a", "conversation=mine", f"conversation={KEY}"]), max_size=3)),
        "nvext": NVEXT,
        "user": VALUE,
    },
)
NAMES = [
    *("X-Session-ID", "x-affinity", "X-Affinity", "x-session-affinity", "X-SMG-Routing-Key", "x-grok-conv-id", "accept"),
    *("X-Dynamo-Session-ID", "x-worker-instance-id", "x-dp-rank", "x-client-request-id", "session_id", "X-Other"),
]
HEADERS = st.lists(st.tuples(st.sampled_from(NAMES), WORDS), max_size=5)
TURN = st.fixed_dictionaries(
    {"scope": st.sampled_from(["gwk_a", "gwk_é", "s" * 600])},
    optional={
        "session_id": st.sampled_from(["resp_1", KEY, "sitzung ü"]),
        "parent_scope": st.just("gwk_p"),
        "action": st.sampled_from(["bind", "continue", "wait", None]),
        "worker": st.sampled_from(["7", "9007199254740993", "w\n"]),
        "dp_rank": st.integers(0, 2),
        "ttl_s": st.integers(1, 300),
        "final": st.booleans(),
        "rebound": st.booleans(),
        "fence": st.integers(1, 2**53 - 1),
        "key": st.just(KEY),
    },
)
OWNED = st.lists(
    st.sampled_from([KEY, "X-Session-ID", "x-affinity", "X-OTHER", "body.session_id", "body.prompt_cache_key", "body.user"]),
    max_size=3,
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(SPECS), HEADERS, BODY, TURN, OWNED)
def test_stamping(spec: Any, headers: list[tuple[str, str]], body: dict[str, Any], turn: dict[str, Any], owned: Any) -> None:
    """The input never changes; dict and bytes agree; twice is once; no header can break a request; no owned key stays."""
    before = copy.deepcopy((headers, body, turn, owned))
    once = stamp(spec, headers, body, turn, owned)
    raw = stamp(spec, tuple(headers), json.dumps(body).encode(), turn, owned)
    twice = stamp(spec, once.headers, once.body, turn, owned)
    assert (headers, body, turn, owned) == before
    assert json.loads(raw.body) == once.body
    assert list(raw.headers) == once.headers
    assert twice == once
    given_values = {value for _, value in headers}
    for name, value in once.headers:
        assert value in given_values or (value.isascii() and value.isprintable() and value)
        if turn.get("key") == KEY and turn.get("session_id") != KEY:
            assert value != KEY or name == "accept"
    profile = find_profile(spec)
    written = {f.body.split(".")[0] for f in profile.fields if f.body} | {f.header for f in profile.fields}
    for name in ("user_id", "cache_salt", "user", "tags", "nvext", "model"):
        if name not in written and name in body and f"body.{name}" not in owned:
            assert once.body[name] == body[name]
