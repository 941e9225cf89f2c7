"""Profiles from configuration, and the table for the documentation."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from limpet.errors import InvalidRequest, UnknownProfile
from limpet.wire import PROFILES, Profile, Stamped, find_profile, load_profiles, profile_table, stamp

SCOPE = "gwk_d08bfd0924cb513e9acafc0b"
TURN = {"scope": SCOPE, "session_id": "resp_9"}


def load(*fields: Any) -> Profile:
    return load_profiles({"mine": {"fields": list(fields)}})["mine"]


def test_every_value_in_a_header_and_in_a_body() -> None:
    """Numbers are text in a header and numbers in a body; what the turn does not have is not written."""
    values = ("scope", "session_id", "parent_scope", "worker", "dp_rank", "ttl")
    fields = [{"header": f"x-{v}", "value": v} for v in values] + [{"body": f"at.{v}", "value": v} for v in values]
    turn = {**TURN, "parent_scope": "gwk_p", "worker": "7", "dp_rank": 0, "ttl_s": 60}
    got: Any = stamp(load(*fields), {}, {"at": {"z": 1}}, turn)
    want = {"scope": SCOPE, "session_id": "resp_9", "parent_scope": "gwk_p", "worker": "7", "dp_rank": 0, "ttl": 60}
    assert got == Stamped({f"x-{k}": str(v) for k, v in want.items()}, {"at": {"z": 1, **want}})
    bare: Any = stamp(load(*fields), {}, {}, {"scope": SCOPE})
    assert bare == Stamped({"x-scope": SCOPE, "x-ttl": "300"}, {"at": {"scope": SCOPE, "ttl": 300}})


def test_an_owned_field_without_a_value_is_dropped() -> None:
    """Replaced or dropped: where the turn has nothing to put there, the key goes all the same; a null stays."""
    profile = load({"body": "at.parent", "value": "parent_scope"})
    assert stamp(profile, {}, {"at": {"parent": "k"}, "a": 1}, TURN, ["k"]).body == {"a": 1}
    kept: Any = stamp(profile, {}, {"at": {"parent": None}}, TURN, ["body.at.parent"])
    assert kept.body == {"at": {"parent": None}}


def test_limit_and_charset() -> None:
    """A value beyond either is hashed."""
    profile = load({"body": "a", "limit": 30}, {"body": "b", "charset": "[a-z0-9_]"}, {"body": "c", "charset": "[a-z0-9_]+"})
    scope = "S" * 31
    hashed = "gwx_" + hashlib.sha256(scope.encode()).hexdigest()[:24]
    assert stamp(profile, {}, {}, {"scope": scope}).body == {"a": hashed, "b": hashed, "c": hashed}
    assert stamp(profile, {}, {}, TURN).body == {"a": SCOPE, "b": SCOPE, "c": SCOPE}


@pytest.mark.parametrize(
    ("when", "turn", "model", "written"),
    [
        ({"model": "acme/*"}, {}, "Acme/x", True),
        ({"model": ["b", "acme/*"]}, {}, "acme/x", True),
        ({"model": "acme/*"}, {}, "b", False),
        ({"model": "*"}, {}, None, False),
        ({"action": "bind"}, {"action": "bind"}, "m", True),
        ({"action": ["bind", "none"]}, {}, "m", True),
        ({"action": "bind"}, {"action": "continue"}, "m", False),
        ({"final": True}, {"final": True}, "m", True),
        ({"final": True}, {}, "m", False),
        ({"final": False}, {}, "m", True),
        ({"fork": True}, {"parent_scope": "p"}, "m", True),
        ({"fork": False}, {"parent_scope": "p"}, "m", False),
        ({"fork": True, "final": True}, {"parent_scope": "p"}, "m", False),
        ({"model": None, "fork": None}, {}, "m", True),
        (None, {}, "m", True),
    ],
)
def test_when(when: Any, turn: dict[str, Any], model: Any, written: bool) -> None:
    """Every condition that is set must hold."""
    profile = load({"header": "x-mine", "when": when})
    assert stamp(profile, {}, {"model": model}, {**TURN, **turn}).headers == ({"x-mine": SCOPE} if written else {})


def test_something_else_of_the_callers_on_the_path_stays() -> None:
    """An explicit value wins, also where the path wants an object."""
    profile = load({"body": "metadata.session"})
    assert stamp(profile, {}, {"metadata": "mine"}, TURN).body == {"metadata": "mine"}
    assert stamp(profile, {}, b'{"metadata":[1.0]}', TURN).body == b'{"metadata":[1.0]}'
    assert stamp(profile, {}, {"metadata": None}, TURN).body == {"metadata": {"session": SCOPE}}
    assert stamp(profile, {}, {"metadata": {"session": "mine"}}, TURN).body == {"metadata": {"session": "mine"}}


def test_built_in_profiles_with_options() -> None:
    """A name of one's own for the options of a built-in profile."""
    mine = load_profiles({"verbatim": {"profile": "dynamo", "value": "session_id"}})
    assert mine["verbatim"].name == "verbatim"
    assert stamp(mine["verbatim"], {}, {}, TURN).headers == {"X-Dynamo-Session-ID": "resp_9"}
    assert find_profile("verbatim", mine) is mine["verbatim"]
    assert find_profile("dynamo", mine) is PROFILES["dynamo"]
    assert find_profile(mine["verbatim"]) is mine["verbatim"]
    with pytest.raises(UnknownProfile, match="verbatim"):
        find_profile("other", mine)


def test_none_is_none() -> None:
    """No configuration, no profiles."""
    assert load_profiles(None) == {}
    assert load_profiles({}) == {}


@pytest.mark.parametrize(
    "data",
    [
        [],
        "x",
        {"Mine": {"fields": [{"header": "a"}]}},
        {5: {"fields": [{"header": "a"}]}},
        {"dynamo": {"fields": [{"header": "a"}]}},
        {"mine": []},
        {"mine": {}},
        {"mine": {"fields": []}},
        {"mine": {"fields": "header"}},
        {"mine": {"fields": [{"header": "a"}], "limit": 64}},
        {"mine": {"profile": "nobody"}},
        {"mine": {"profile": "openai-chat", "value": "session_id"}},
        {"mine": {"profile": "dynamo", "fields": []}},
    ],
)
def test_malformed_profiles_are_refused(data: Any) -> None:
    """With an error that names what is wrong."""
    with pytest.raises(InvalidRequest, match="rofile"):
        load_profiles(data)


@pytest.mark.parametrize(
    "field",
    [
        "header",
        {},
        {"value": "scope"},
        {"header": "a", "body": "b"},
        {"header": ""},
        {"header": "a b"},
        {"header": "a:"},
        {"header": "a\r\nb"},
        {"header": "Content-Length"},
        {"header": "host"},
        {"header": 5},
        {"body": ""},
        {"body": "a..b"},
        {"body": ".a"},
        {"body": "a.\n"},
        {"body": "a.b.c.d.e.f.g.h.i"},
        {"body": "model"},
        {"body": "messages.x"},
        {"header": "a", "value": "key"},
        {"header": "a", "limit": 27},
        {"header": "a", "limit": "64"},
        {"header": "a", "limit": True},
        {"header": "a", "charset": "a-z"},
        {"header": "a", "charset": "(a+)+"},
        {"header": "a", "charset": "[a-z]"},
        {"header": "a", "charset": "[z-a_]"},
        {"header": "a", "charset": "[^a-z]"},
        {"header": "a", "charset": "[a-z0-9_--x]"},
        {"header": "a", "charset": "[a-z0-9_"},
        {"header": "a", "charset": ""},
        {"header": "a", "charset": 5},
        {"header": "a", "unknown": 1},
        {"header": "a", "when": "final"},
        {"header": "a", "when": {"model": 5}},
        {"header": "a", "when": {"action": "open"}},
        {"header": "a", "when": {"final": "yes"}},
        {"header": "a", "when": {"fork": 1}},
        {"header": "a", "when": {"tenant": "x"}},
    ],
)
def test_malformed_fields_are_refused(field: Any) -> None:
    """The error names the profile and the field."""
    with pytest.raises(InvalidRequest, match=r"profiles\.mine\.fields\[0\]"):
        load_profiles({"mine": {"fields": [field]}})


def test_one_place_written_twice_is_refused() -> None:
    """Two unconditional fields of one place cannot both win; with conditions they may."""
    with pytest.raises(InvalidRequest, match="twice"):
        load({"header": "X-A"}, {"header": "x-a", "value": "session_id"})
    load({"body": "a", "when": {"fork": True}}, {"body": "a", "value": "session_id", "when": {"fork": False}})


def test_the_table_for_the_documentation() -> None:
    """One row per profile, made from the data."""
    rows = profile_table()
    assert [row[0] for row in rows] == list(PROFILES)
    table = {name: (where, limit) for name, where, limit in rows}
    assert table["openai-chat"] == ("body `prompt_cache_key` = <scope>", "64")
    assert table["deepseek"][1] == "512, `[A-Za-z0-9_-]`"
    assert table["vllm"][1] == "non-empty"
    assert table["xai-chat"][1] == "none known"
    assert table["dynamo"][1] == "256 bytes"
    assert "body `nvext.session_control` is removed" in table["dynamo"][0]
    assert "stays <session_id>" in table["codex"][0]
    assert "body `tags` gains `conversation=<scope>`" in table["nous"][0]
    own = profile_table(load_profiles({"mine": {"fields": [{"header": "x", "when": {"fork": True, "final": False}}]}}))
    assert own == [("mine", "header `x` = <scope> (every turn but the last; forks)", "none known")]
