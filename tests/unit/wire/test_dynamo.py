"""The two Dynamo rows: headers, pins, nvext, rebinds, and their options."""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

import pytest

from limpet.errors import InvalidRequest
from limpet.wire import PROFILES, Stamped, find_profile, stamp

SCOPE = "gwk_d08bfd0924cb513e9acafc0b"
PARENT = "gwk_c3a307a33664be01bd2ddc1a"
TURN = {"scope": SCOPE, "session_id": "resp_9"}
BIG = "9007199254740993123"


def run(profile: Any, headers: Any, body: Any, owned: Any = (), **turn: Any) -> Stamped[Any, Any]:
    before = copy.deepcopy((headers, body))
    stamped = stamp(profile, headers, body, {**TURN, **turn}, owned)
    raw = stamp(profile, headers, json.dumps(body).encode(), {**TURN, **turn}, owned)
    assert (json.loads(raw.body), raw.headers) == (stamped.body, stamped.headers)
    assert stamp(profile, stamped.headers, stamped.body, {**TURN, **turn}, owned) == stamped
    assert (headers, body) == before
    return stamped


def headers(given: Any = None, **turn: Any) -> dict[str, str]:
    """The headers beside the session's that the profile dynamo adds."""
    result: dict[str, str] = dict(run("dynamo", given or {}, {}, **turn).headers)
    assert result.pop("X-Dynamo-Session-ID", SCOPE) == SCOPE
    return result


def control(given: Any = None, **turn: Any) -> Any:
    """The session_control that the profile dynamo-session-control makes of a given one."""
    body = {} if given is None else {"nvext": {"session_control": given}}
    return run("dynamo-session-control", {}, body, **turn).body["nvext"]["session_control"]


class TestPins:
    """x-worker-instance-id and x-dp-rank."""

    def test_a_worker_beyond_2_to_53_is_exact(self) -> None:
        """As text or as an int; never through a float."""
        assert headers(action="continue", worker=BIG) == {"x-worker-instance-id": BIG}
        assert headers(action="continue", worker=int(BIG)) == {"x-worker-instance-id": BIG}

    def test_rank_zero_is_a_rank(self) -> None:
        """Rank 0 is written; a rank without a worker is not."""
        assert headers(worker="7", dp_rank=0) == {"x-worker-instance-id": "7", "x-dp-rank": "0"}
        assert headers(dp_rank=0) == {}

    def test_who_waits_is_not_pinned(self) -> None:
        """wait: claimed by another and not yet bound."""
        assert headers(action="wait", worker="7", dp_rank=1) == {}

    def test_a_claim_with_a_worker_goes_there(self) -> None:
        """A claim that names a worker is dispatched to it."""
        assert headers(action="bind", worker="7") == {"x-worker-instance-id": "7"}

    def test_an_explicit_pin_wins_and_takes_no_rank_of_ours(self) -> None:
        """Our rank belongs to our worker only."""
        assert headers({"X-Worker-Instance-ID": "5"}, worker="7", dp_rank=1) == {"X-Worker-Instance-ID": "5"}
        same = headers({"X-Worker-Instance-ID": "7"}, worker="7", dp_rank=1)
        assert same == {"X-Worker-Instance-ID": "7", "x-dp-rank": "1"}
        assert headers({"x-dp-rank": "3"}, worker="7", dp_rank=1) == {"x-dp-rank": "3", "x-worker-instance-id": "7"}

    @pytest.mark.parametrize("worker", ["a\r\nb", "é", " 7"])
    def test_a_worker_that_no_header_can_carry_is_no_pin(self, worker: str) -> None:
        """A hash would name nobody, so there is no pin at all."""
        assert headers(worker=worker, dp_rank=1) == {}


class TestSessionHeaders:
    """X-Dynamo-Session-ID, -Parent-Session-ID, -Session-Final."""

    def test_final_and_parent_only_where_they_apply(self) -> None:
        """No parent and not the last: neither header."""
        assert headers() == {}
        assert headers(final=False, parent_scope=None) == {}
        assert headers(final=True) == {"X-Dynamo-Session-Final": "true"}
        assert headers(parent_scope=PARENT) == {"X-Dynamo-Parent-Session-ID": PARENT}

    def test_explicit_ones_win(self) -> None:
        """Each of the three for itself."""
        given = {"x-dynamo-session-id": "a", "x-dynamo-parent-session-id": "b", "x-dynamo-session-final": "false"}
        assert run("dynamo", given, {}, final=True, parent_scope=PARENT).headers == given

    def test_aiperf_headers_become_the_scope(self) -> None:
        """AIPerf sends one value in three headers: the one that supplied the key makes its copies ours as well."""
        given = [("X-Correlation-ID", "c"), ("X-Session-Affinity", "k"), ("X-Dynamo-Session-ID", "k")]
        stamped = run("dynamo", given, {}, ["X-Session-Affinity"])
        assert stamped.headers == [("X-Correlation-ID", "c"), ("X-Dynamo-Session-ID", SCOPE)]

    def test_an_owned_parent_header_without_a_parent_is_dropped(self) -> None:
        """It is replaced or dropped, never forwarded."""
        assert run("dynamo", {"X-Dynamo-Parent-Session-ID": "k"}, {}, ["k"]).headers == {"X-Dynamo-Session-ID": SCOPE}

    def test_the_limit_is_in_bytes(self) -> None:
        """256 bytes; beyond, or what no header can carry, is hashed."""
        verbatim = {"profile": "dynamo", "value": "session_id"}
        for session, fits in (("s" * 256, True), ("s" * 257, False), ("é" * 10, False)):
            want = session if fits else "gwx_" + hashlib.sha256(session.encode()).hexdigest()[:24]
            assert run(verbatim, {}, {}, session_id=session).headers == {"X-Dynamo-Session-ID": want}
        for session, fits in (("é" * 128, True), ("é" * 129, False)):
            spec = {"profile": "dynamo-session-control", "value": "session_id"}
            want = session if fits else "gwx_" + hashlib.sha256(session.encode()).hexdigest()[:24]
            assert run(spec, {}, {}, session_id=session).body["nvext"]["session_control"]["session_id"] == want


class TestRebind:
    """A frontend that knows the old binding must not recognise the session."""

    def test_the_suffix_is_the_fence(self) -> None:
        """Scope and fence: each rebind is a new session to the frontend."""
        one = run("dynamo", {}, {}, rebound=True, fence=41, worker="7").headers["X-Dynamo-Session-ID"]
        two = run("dynamo", {}, {}, rebound=True, fence=42, worker="7").headers["X-Dynamo-Session-ID"]
        assert one == f"{SCOPE}-41"
        assert two == f"{SCOPE}-42"

    def test_a_fence_alone_is_no_rebind(self) -> None:
        """Every binding has a fence; only a rebind changes the session."""
        assert headers(fence=41) == {}
        assert headers(fence=41, rebound=False) == {}

    def test_it_holds_for_every_form_of_the_session(self) -> None:
        """With session_id on the wire, in session_control, and at the limit."""
        spec = {"profile": "dynamo", "value": "session_id"}
        assert run(spec, {}, {}, rebound=True, fence=4).headers == {"X-Dynamo-Session-ID": "resp_9-4"}
        assert control(rebound=True, fence=4)["session_id"] == f"{SCOPE}-4"
        long = run(spec, {}, {}, rebound=True, fence=4, session_id="s" * 256).headers["X-Dynamo-Session-ID"]
        assert long == "gwx_" + hashlib.sha256(("s" * 256 + "-4").encode()).hexdigest()[:24]

    def test_parent_and_other_profiles_have_none(self) -> None:
        """A cache bucket does not move with a worker."""
        assert headers(parent_scope=PARENT, rebound=False)["X-Dynamo-Parent-Session-ID"] == PARENT
        assert run("openai-chat", {}, {}, rebound=True, fence=4).body == {"prompt_cache_key": SCOPE}


class TestNvext:
    """What the profile dynamo does to the body."""

    @pytest.mark.parametrize(
        ("nvext", "expected"),
        [
            (None, {"extra_fields": ["worker_id"]}),
            ({}, {"extra_fields": ["worker_id"]}),
            ("x", {"extra_fields": ["worker_id"]}),
            ([1], {"extra_fields": ["worker_id"]}),
            (5, {"extra_fields": ["worker_id"]}),
            ({"extra_fields": None}, {"extra_fields": ["worker_id"]}),
            ({"extra_fields": ["timing"]}, {"extra_fields": ["timing", "worker_id"]}),
            ({"extra_fields": ["worker_id", "timing"]}, {"extra_fields": ["worker_id", "timing"]}),
            ({"extra_fields": []}, {"extra_fields": ["worker_id"]}),
            ({"extra_fields": "timing"}, {"extra_fields": ["worker_id"]}),
            ({"a": 1, "session_control": {"x": 1}}, {"a": 1, "extra_fields": ["worker_id"]}),
            ({"session_control": None}, {"extra_fields": ["worker_id"]}),
        ],
    )
    def test_the_first_turn_asks_for_the_worker(self, nvext: Any, expected: Any) -> None:
        """The client's own list is kept; what is no object, or no list, is replaced."""
        assert run("dynamo", {}, {"nvext": nvext}, action="bind").body == {"nvext": expected}

    @pytest.mark.parametrize("action", [None, "continue", "wait"])
    def test_other_turns_do_not_ask(self, action: Any) -> None:
        """Only the holder of the claim confirms, so only it asks."""
        assert run("dynamo", {}, {"a": 1}, action=action).body == {"a": 1}
        kept = {"nvext": {"extra_fields": ["timing"]}}
        assert run("dynamo", {}, kept, action=action).body == kept

    @pytest.mark.parametrize("old", [{"session_id": "z"}, {}, None, "x", 5, []])
    def test_session_control_goes_and_takes_an_emptied_nvext_along(self, old: Any) -> None:
        """1.3 and later reject it, whoever wrote it."""
        assert run("dynamo", {}, {"a": 1, "nvext": {"session_control": old}}, action="continue").body == {"a": 1}
        rest = run("dynamo", {}, {"nvext": {"b": {"c": 1}, "session_control": old}}).body
        assert rest == {"nvext": {"b": {"c": 1}}}

    @pytest.mark.parametrize("nvext", [{}, None, "x", {"a": {}}])
    def test_an_nvext_that_nothing_was_taken_from_stays(self, nvext: Any) -> None:
        """Only a removal empties; what the client sent empty, or wrong, is its own affair."""
        assert run("dynamo", {}, {"nvext": nvext}, action="continue").body == {"nvext": nvext}


class TestSessionControl:
    """The profile dynamo-session-control."""

    def test_the_actions(self) -> None:
        """bind on the one turn that holds the claim, close on the last, nothing else on the rest."""
        assert control(action="bind") == {"session_id": SCOPE, "action": "bind", "timeout": 300}
        for action in (None, "continue", "wait"):
            assert control(action=action, ttl_s=7) == {"session_id": SCOPE, "timeout": 7}
            assert control(action=action, final=True) == {"session_id": SCOPE, "action": "close"}
        assert control(action="bind", final=True) == {"session_id": SCOPE, "action": "close"}

    def test_open_for_1_1_and_1_2(self) -> None:
        """By option the claim's turn says open; close and the rest are the same."""
        spec = {"profile": "dynamo-session-control", "open": True}
        body = run(spec, {}, {}, action="bind").body
        assert body == {"nvext": {"session_control": {"session_id": SCOPE, "action": "open", "timeout": 300}}}
        assert run(spec, {}, {}, final=True).body["nvext"]["session_control"]["action"] == "close"
        again = find_profile(spec).with_options(open=False)
        assert run(again, {}, {}, action="bind").body["nvext"]["session_control"]["action"] == "bind"

    def test_a_ttl_is_whole_seconds_and_never_early(self) -> None:
        """A fraction is rounded up."""
        assert control(ttl_s=0.5)["timeout"] == 1
        assert control(ttl_s=300.0)["timeout"] == 300

    def test_explicit_members_win_each_for_itself(self) -> None:
        """What the caller wrote stays; null is no value; foreign members are kept."""
        given = {"session_id": "mine", "timeout": 5, "action": None, "x": [1]}
        assert control(given, action="bind") == {"session_id": "mine", "timeout": 5, "action": "bind", "x": [1]}
        assert control({"action": "close"}, action="bind")["action"] == "close"

    @pytest.mark.parametrize("wrong", ["x", 5, [], None])
    def test_what_is_no_object_is_replaced(self, wrong: Any) -> None:
        """An nvext or a session_control that is no object."""
        want = {"session_id": SCOPE, "timeout": 300}
        assert run("dynamo-session-control", {}, {"nvext": wrong}).body == {"nvext": {"session_control": want}}
        body = run("dynamo-session-control", {}, {"nvext": {"session_control": wrong, "a": 1}}).body
        assert body == {"nvext": {"session_control": want, "a": 1}}

    def test_an_owned_session_is_replaced(self) -> None:
        """By its path, and by the key's value."""
        body = {"nvext": {"session_control": {"session_id": "k"}}}
        for owned in (["body.nvext.session_control.session_id"], ["nvext.session_control.session_id"], ["k"]):
            stamped = run("dynamo-session-control", {}, body, owned)
            assert stamped.body["nvext"]["session_control"]["session_id"] == SCOPE

    def test_no_headers_are_written(self) -> None:
        """The older interface knows no headers."""
        assert run("dynamo-session-control", {"a": "b"}, {}, worker="7", final=True).headers == {"a": "b"}


class TestOptions:
    """value and open."""

    def test_value_session_id_is_verbatim(self) -> None:
        """The caller's id is on the wire; the parent is still named by its scope."""
        spec = {"profile": "dynamo", "value": "session_id"}
        got = run(spec, {}, {}, parent_scope=PARENT).headers
        assert got == {"X-Dynamo-Session-ID": "resp_9", "X-Dynamo-Parent-Session-ID": PARENT}
        assert run({"profile": "dynamo", "value": "scope"}, {}, {}).headers == {"X-Dynamo-Session-ID": SCOPE}
        back = find_profile(spec).with_options(value="scope")
        assert back == PROFILES["dynamo"]

    @pytest.mark.parametrize(
        "spec",
        [
            {"profile": "dynamo", "value": "worker"},
            {"profile": "dynamo", "open": True},
            {"profile": "dynamo-session-control", "open": "yes"},
            {"profile": "openai-chat", "value": "session_id"},
            {"profile": "dynamo", "ttl": 5},
            {"value": "scope"},
        ],
    )
    def test_options_that_a_profile_does_not_have_are_refused(self, spec: dict[str, Any]) -> None:
        """An option that would do nothing is an error."""
        with pytest.raises(InvalidRequest):
            find_profile(spec)
