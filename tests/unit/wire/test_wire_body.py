"""Raw JSON bodies: exact text, key order, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.errors import InvalidRequest
from limpet.wire import stamp
from limpet.wire.body import MISSING, Body, array_of, is_null, object_of, text_of

TURN = {"scope": "gwk_1", "session_id": "s"}
DEEP = 3_000_000
KEY = b'"prompt_cache_key":"gwk_1"'


def chat(body: bytes, **turn: Any) -> bytes:
    return stamp("openai-chat", {}, body, {**TURN, **turn}).body


class TestExactText:
    """What is not ours stays as it was written."""

    def test_numbers_keep_their_text(self) -> None:
        """Integers beyond 64 bits, floats, exponents, minus zero: verbatim, at any depth."""
        foreign = (
            b'"a":123456789012345678901234567890,"b":1.0,"c":1e400,"d":0.10,"e":-0,"f":-0.0,"g":1E-7,'
            b'"h":[2.50,{"i":18446744073709551617}],"j":' + b"9" * 5000
        )
        assert chat(b"{" + foreign + b"}") == b"{" + foreign + b"," + KEY + b"}"

    def test_key_order_and_values_are_verbatim(self) -> None:
        """Escapes, non-ASCII text and the white space inside a value stay; ours goes last, or where the old one was."""
        raw = '{"z":"\\u00e9é\\/ \\ud83d\\ude00","m":[ 1 ,\t2 ],"a":{ "y" : 1 , "x" : 2 }}'.encode()
        assert chat(raw) == raw[:-1] + b"," + KEY + b"}"
        assert chat(b'{"a":1,"prompt_cache_key":null,"b":2}') == b'{"a":1,' + KEY + b',"b":2}'

    def test_nothing_to_change_returns_the_very_same_bytes(self) -> None:
        """White space and all, however it is spelled."""
        for raw in (
            b' { "a" : 1.0 , "b" : 2 , "prompt_cache_key" : "mine" } \n',
            b'{"a": [1, 2], "prompt_cache_key": "mine"}',
            b'{"a":{"x": 1},"prompt_cache_key":"mine"}',
            b'{"\\u0061": 1, "prompt_cache\\u005fkey": "mine"}',
            b'{"a":"\\ud800","prompt_cache_key":"mine"}',
            b'{"a":' + b"[" * 400 + b"]" * 400 + b' , "prompt_cache_key":"mine"}',
        ):
            assert chat(raw) is raw
        plain = b'{"nvext": {"a": [1e400]}}'
        assert stamp("dynamo", {}, plain, TURN).body is plain

    def test_of_a_repeated_key_the_last_is_read_and_kept(self) -> None:
        """The provider cannot read another value than the one that was judged."""
        assert chat(b'{"a":1,"prompt_cache_key":"mine","prompt_cache_key":null}') == b'{"a":1,' + KEY + b"}"

    @pytest.mark.parametrize("colon", [":", ": ", " : "])
    @pytest.mark.parametrize("comma", [",", ", ", " , "])
    @pytest.mark.parametrize("name", ["prompt_cache_key", "session_id", "prompt_cache\\u005fkey", "x"])
    @pytest.mark.parametrize("first", ['"the-key"', "null", '"a,\\"b"', "[1]"])
    def test_the_others_go_nowhere(self, name: str, first: str, comma: str, colon: str) -> None:
        """Nor where nothing is to be changed: a first one may hold the key, and it is the one that some providers read."""
        members = [f'"{name}"{colon}{first}', f'"m"{colon}1', f'"{name}"{colon}"mine"', f'"prompt_cache_key"{colon}"mine"']
        body = stamp("openai-chat", {}, ("{" + comma.join(members) + "}").encode(), {**TURN, "key": "the-key"}).body
        assert json.loads(body, object_pairs_hook=list) == [
            *([("prompt_cache_key", "mine"), ("m", 1)] if "prompt" in name else [(name, "mine"), ("m", 1)]),
            *([("prompt_cache_key", "mine")] if "prompt" not in name else []),
        ]

    def test_nested_members_are_verbatim_too(self) -> None:
        """Taking a member out of nvext, or adding one, leaves the numbers beside it alone."""
        raw = b'{"nvext":{"x":1e400,"session_control":{"y":1.0},"z":[0.10]},"s":0.50}'
        assert stamp("dynamo", {}, raw, TURN).body == b'{"nvext":{"x":1e400,"z":[0.10]},"s":0.50}'
        control = stamp("dynamo-session-control", {}, raw, {**TURN, "ttl_s": 5}).body
        assert control == (
            b'{"nvext":{"x":1e400,"session_control":{"y":1.0,"session_id":"gwk_1","timeout":5},"z":[0.10]},"s":0.50}'
        )
        asked = stamp("dynamo", {}, b'{"nvext":{"extra_fields":[1.0,"a"]}}', {**TURN, "action": "bind"}).body
        assert asked == b'{"nvext":{"extra_fields":[1.0,"a","worker_id"]}}'

    def test_keys_with_escapes_survive(self) -> None:
        """A key is the same key, whichever way it was written."""
        body = chat(b'{"k\\u00e9\\n\\"":1,"prompt\\u005fcache_key":"mine"}')
        assert json.loads(body) == {'ké\n"': 1, "prompt_cache_key": "mine"}

    @pytest.mark.parametrize("half", [b'"\\ud83d"', b'"x\\udc00y"', b'["\\ud800"]', b'{"\\ud800":1.0}'])
    def test_half_an_emoji_is_json(self, half: bytes) -> None:
        """A client that cut an emoji in two sent JSON all the same: it stays as it is."""
        assert chat(b' {"a":' + half + b' , "n":1e400} ') == b'{"a":' + half + b',"n":1e400,' + KEY + b"}"
        mine = b'{"prompt_cache_key":' + half + b"}"
        assert chat(mine) is mine
        listed = stamp("nous", {}, b'{"tags":[' + half + b",1.0]}", TURN).body
        assert listed.startswith(b'{"tags":[' + half + b',1.0,"conversation=gwk_1"]')
        nested = stamp("dynamo", {}, b'{"nvext":{"a":' + half + b',"session_control":1}}', TURN).body
        assert nested == b'{"nvext":{"a":' + half + b"}}"

    def test_other_buffers_are_read(self) -> None:
        """A bytearray or a memoryview gives bytes, and is not changed."""
        source = bytearray(b'{"a":1}')
        assert stamp("openai-chat", {}, source, TURN).body == b'{"a":1,' + KEY + b"}"  # type: ignore[type-var]
        assert stamp("openai-chat", {}, memoryview(source), TURN).body == b'{"a":1,' + KEY + b"}"  # type: ignore[type-var]
        assert source == b'{"a":1}'


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b'"x"',
        b"5",
        b"{",
        b'{"a":1',
        b'{"a":1,}',
        b'{"a" 1}',
        b'{"a":1}{}',
        b'{"a":1}x',
        b"{'a':1}",
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":01}',
        b'{"a":1.}',
        b'{"a":tru}',
        b'{"a":"\n"}',
        b'{"a":"\\x"}',
        b'{"a":"\xff"}',
        b'{"\xc3\x28":1}',
        b'{"a":"\xed\xa0\x80"}',
        b'\xef\xbb\xbf{"a":1}',
        '{"a":1}'.encode("utf-16"),
        b'{"a":"\\ud83d"',
        b'{"a":"\\ud83d"}x',
        b'{} "\\ud83d"',
        b'{"a":"\\ud83d",}',
        b'{"a":"\\ud83d" "b":1}',
        b'{"a":"\\ud83d","b":NaN}',
        b'{"a":"\\ud83d","b":"\\u12"}',
        b'{"a":"\\ud83d",5:1}',
        b'{"a":"\\ud83d","b"}',
        b'{"\\ud83d":1}',
        b'["\\ud83d"]',
        b'"\\ud83d"',
    ],
    ids=lambda b: repr(b)[:40],
)
@pytest.mark.parametrize("profile", ["openai-chat", "litellm", "dynamo"])
def test_bytes_that_are_no_json_object_are_a_value_error(bad: bytes, profile: str) -> None:
    """Nothing is sent, whether or not the profile writes to the body."""
    with pytest.raises(ValueError, match="body") as caught:
        stamp(profile, {}, bad, TURN)
    assert isinstance(caught.value, InvalidRequest)


@pytest.mark.parametrize("half", [b"", b'"\\ud83d",'])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_depth_bomb_is_a_value_error(half: bytes, opening: bytes, closing: bytes) -> None:
    """No RecursionError, no crash; also on the slow path. From Python 3.14 on the stack is the bound, not a count."""
    with pytest.raises(InvalidRequest):
        stamp("openai-chat", {}, b'{"x":[' + half + opening * DEEP + b"1" + closing * DEEP + b"]}", TURN)


@pytest.mark.parametrize("half", [b"", b'"\\ud83d",'])
@pytest.mark.parametrize("depth", [300, 900, 5_000, 20_000, 100_000])
@pytest.mark.parametrize("profile", ["openai-chat", "litellm", "dynamo"])
def test_any_depth_goes_through_whole_or_not_at_all(half: bytes, depth: int, profile: str) -> None:
    """How deep a body may be differs from Python to Python; nowhere is it an error of another kind, or a body cut short."""
    inner = b'{"x":[' + half + b"[" * depth + b"]" * depth + b"]"
    try:
        stamped = stamp(profile, {}, inner + b"}", TURN).body
    except InvalidRequest:
        return
    assert inner[1:] in stamped


@pytest.mark.parametrize("bad", ["{}", [], 5, [("a", 1)]])
def test_other_bodies_are_refused(bad: Any) -> None:
    """A dict, bytes or None; a str is ambiguous about its encoding."""
    with pytest.raises(InvalidRequest, match="body"):
        stamp("openai-chat", {}, bad, TURN)


def test_dict_bodies_share_what_is_foreign_and_copy_what_changes() -> None:
    """A large history is not copied, and no object of the caller's is changed."""
    nvext = {"a": [1], "session_control": {"x": 1}}
    messages = [{"role": "user", "content": "hi"}]
    body = {"messages": messages, "nvext": nvext}
    stamped = stamp("dynamo", {}, body, TURN).body
    assert stamped["messages"] is messages
    assert stamped == {"messages": messages, "nvext": {"a": [1]}}
    assert nvext == {"a": [1], "session_control": {"x": 1}}
    untouched = stamp("litellm", {}, body, TURN).body
    assert untouched == body
    assert untouched is not body


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_the_two_ways_to_read_agree(body: dict[str, Any], ascii_only: bool, indent: int | None) -> None:
    """The fast way and the lenient one split any object alike, and an object that is changed is still the same JSON."""
    raw = json.dumps(body, ensure_ascii=ascii_only, indent=indent)
    try:
        data = raw.encode()
    except UnicodeEncodeError:
        return
    opened = Body(data)
    for name, value in body.items():
        got = opened.get((name,))
        assert is_null(got) == (value is None)
        assert text_of(got) == (value if isinstance(value, str) else None)
        assert (object_of(got) is None) == (not isinstance(value, dict))
        assert (array_of(got) is None) == (not isinstance(value, list))
    assert opened.get(("absent", "deeper")) is MISSING
    lenient = Body(data[:-1] + (b"," if body else b"") + b'"half one":"\\ud83d"}')
    lenient.remove(("half one",))
    assert json.loads(lenient.finish()) == body
    opened.set(("new", "path"), "v")
    assert json.loads(opened.finish()) == {**body, "new": {"path": "v"}}
