"""Stamping: the vectors and each common rule of the design, section 6."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from limpet.context import publish
from limpet.errors import InvalidRequest, UnknownProfile
from limpet.results import Binding, Resolution
from limpet.wire import PROFILES, Stamped, stamp

VECTORS = json.loads((Path(__file__).parent.parent.parent / "vectors" / "wire.json").read_text(encoding="utf-8"))
SCOPE = "gwk_d08bfd0924cb513e9acafc0b"
PARENT = "gwk_c3a307a33664be01bd2ddc1a"
TURN = {"scope": SCOPE, "session_id": "resp_9"}
KEY = "+49 170 1234567"
NO: dict[str, Any] = {}


def hashed(value: str) -> str:
    return "gwx_" + hashlib.sha256(value.encode()).hexdigest()[:24]


def run(profile: Any, headers: Any = None, body: Any = None, owned: Any = (), **turn: Any) -> Stamped[Any, Any]:
    """Stamp, hold the input against a copy, and hold dict and bytes against each other."""
    before = copy.deepcopy((headers, body))
    stamped = stamp(profile, headers, body, {**TURN, **turn}, owned)
    assert (headers, body) == before
    if isinstance(body, dict):
        raw = stamp(profile, headers, json.dumps(body).encode(), {**TURN, **turn}, owned)
        assert json.loads(raw.body) == stamped.body
        assert raw.headers == stamped.headers
    again = stamp(profile, stamped.headers, stamped.body, {**TURN, **turn}, owned)
    assert again == stamped
    return stamped


@pytest.mark.parametrize("case", VECTORS, ids=lambda c: c["name"])
def test_vectors(case: dict[str, Any]) -> None:
    """Every published vector holds: as a dict, as bytes, with headers as pairs, and when stamped twice."""
    headers, body = case["input"]["headers"], case["input"]["body"]
    stamped = run(case["profile"], headers, body, case.get("owned", ()), **case["turn"])
    assert {"headers": stamped.headers, "body": stamped.body} == case["output"]
    pairs = stamp(case["profile"], list(headers.items()), body, case["turn"], case.get("owned", ()))
    assert dict(pairs.headers) == case["output"]["headers"]


BODY_KEY = [
    ("openai-chat", "prompt_cache_key"),
    ("openai-responses", "prompt_cache_key"),
    ("codex", "prompt_cache_key"),
    ("openrouter", "session_id"),
    ("nous", "session_id"),
    ("xai-responses", "prompt_cache_key"),
    ("mistral", "prompt_cache_key"),
    ("fireworks", "prompt_cache_key"),
    ("deepseek", "user_id"),
    ("vllm", "cache_salt"),
]
HEADER = [
    ("codex", "x-client-request-id"),
    ("xai-chat", "x-grok-conv-id"),
    ("xai-responses", "x-grok-conv-id"),
    ("mistral", "x-affinity"),
    ("fireworks", "x-session-affinity"),
    ("sglang-gateway", "X-SMG-Routing-Key"),
    ("litellm", "x-litellm-session-id"),
    ("cloudflare", "x-session-affinity"),
    ("deepinfra", "x-session-affinity"),
    ("dynamo", "X-Dynamo-Session-ID"),
]


class TestBodyFields:
    """A field of the body that a profile writes."""

    @pytest.mark.parametrize(("profile", "name"), BODY_KEY)
    def test_written_where_absent_or_null(self, profile: str, name: str) -> None:
        """Null is no value."""
        assert run(profile, {}, {"model": "m"}).body[name] == SCOPE
        assert run(profile, {}, {name: None, "model": "m"}).body[name] == SCOPE

    @pytest.mark.parametrize(("profile", "name"), BODY_KEY)
    @pytest.mark.parametrize("mine", ["mine", "x" * 2000, 5, 0, False, ["a"], {}])
    def test_an_explicit_value_wins(self, profile: str, name: str, mine: Any) -> None:
        """Whatever the caller wrote stays as it is, also if it is too long or of another type."""
        assert run(profile, {}, {name: mine}).body[name] == mine

    @pytest.mark.parametrize(("profile", "name"), BODY_KEY)
    @pytest.mark.parametrize("owned", [["body.{}"], ["{}"], ["body:{}"], [KEY], ["X-Key"]])
    def test_an_owned_value_is_replaced(self, profile: str, name: str, owned: list[str]) -> None:
        """The field that supplied the key, or that holds the key's value, is not explicit."""
        entries = [entry.format(name) for entry in owned]
        stamped = run(profile, {"X-Key": KEY}, {name: KEY, "model": "m"}, entries)
        assert stamped.body[name] == SCOPE
        assert KEY not in json.dumps(stamped.body)

    def test_an_empty_string_is_explicit_but_no_salt(self) -> None:
        """Only null is no value; vLLM alone asks for a salt that is not empty."""
        assert run("openai-chat", {}, {"prompt_cache_key": ""}).body == {"prompt_cache_key": ""}
        assert run("vllm", {}, {"cache_salt": ""}).body == {"cache_salt": SCOPE}

    def test_foreign_fields_are_kept(self) -> None:
        """Fields that the profile does not know stay, null ones too."""
        body = {"user": "u", "metadata": {"a": [1]}, "session_id": "s", "nvext": {"x": 1}, "stop": None}
        assert run("openai-chat", {"a": "b"}, body).body == {**body, "prompt_cache_key": SCOPE}

    @pytest.mark.parametrize(
        ("profile", "name", "limit"),
        [("openai-chat", "prompt_cache_key", 64), ("openrouter", "session_id", 256), ("deepseek", "user_id", 512)],
    )
    def test_the_limit_is_exact_and_hashes(self, profile: str, name: str, limit: int) -> None:
        """At the limit a value is verbatim, one beyond it is hashed whole: it is never cut."""
        assert run(profile, {}, {}, scope="s" * limit).body[name] == "s" * limit
        assert run(profile, {}, {}, scope="s" * (limit + 1)).body[name] == hashed("s" * (limit + 1))

    def test_a_limit_counts_characters(self) -> None:
        """64 characters are 64 characters, whatever they weigh in UTF-8."""
        assert run("openai-chat", {}, {}, scope="键" * 64).body["prompt_cache_key"] == "键" * 64
        assert run("openai-chat", {}, {}, scope="键" * 65).body["prompt_cache_key"] == hashed("键" * 65)

    @pytest.mark.parametrize("scope", ["a:b", "a b", "é", "a.b", "a\n"])
    def test_a_charset_hashes(self, scope: str) -> None:
        """DeepSeek takes letters, digits, dash and underscore; anything else is hashed."""
        assert run("deepseek", {}, {}, scope=scope).body == {"user_id": hashed(scope)}

    def test_without_a_limit_a_long_value_is_verbatim(self) -> None:
        """vLLM and xAI name no limit."""
        assert run("vllm", {}, {}, scope="s" * 5000).body == {"cache_salt": "s" * 5000}
        assert run("xai-chat", {}, {}, scope="s" * 5000).headers == {"x-grok-conv-id": "s" * 5000}


class TestHeaders:
    """A header that a profile writes."""

    @pytest.mark.parametrize(("profile", "name"), HEADER)
    def test_written_where_absent(self, profile: str, name: str) -> None:
        """Under the name that the provider documents; a None is absent."""
        assert run(profile, {"a": "b"}, {}).headers == {"a": "b", name: SCOPE}
        assert stamp(profile, {name: None}, {}, TURN).headers[name] == SCOPE  # type: ignore[type-var]

    @pytest.mark.parametrize(("profile", "name"), HEADER)
    @pytest.mark.parametrize("spell", [str.lower, str.upper, str.title])
    def test_an_explicit_header_wins_in_any_case(self, profile: str, name: str, spell: Any) -> None:
        """Names compare without case, and the caller's spelling stays; no second header appears."""
        assert run(profile, {spell(name): "mine"}, {}).headers == {spell(name): "mine"}

    @pytest.mark.parametrize(("profile", "name"), HEADER)
    @pytest.mark.parametrize("owned", [["{}"], [KEY], ["body.session_id"], ["BODY.session_id"]])
    @pytest.mark.parametrize("spell", [str.lower, str.upper])
    def test_an_owned_header_is_replaced(self, profile: str, name: str, owned: list[str], spell: Any) -> None:
        """Named in any case, or by the key's value, the header that holds the key is overwritten, once."""
        body = {"session_id": KEY} if owned[0].lower().startswith("body") else {}
        entries = [entry.format(spell(name)) for entry in owned]
        entries = [e.replace("BODY.", "body.") for e in entries]
        stamped = run(profile, {"a": "b", name: KEY}, body, entries)
        assert stamped.headers == {"a": "b", name: SCOPE}

    def test_owned_headers_that_the_profile_does_not_write_are_dropped(self) -> None:
        """The key may be a phone number: no header that holds it goes upstream."""
        headers = {"X-Limpet-Key": KEY, "X-Session-ID": KEY, "X-Correlation-ID": "c", "x-other": KEY}
        assert run("openai-chat", headers, {}, ["x-limpet-key"]).headers == {"X-Correlation-ID": "c"}

    def test_headers_of_http_itself_are_never_taken_for_the_key(self) -> None:
        """A key that equals a length or an encoding does not break the request."""
        headers = {"Content-Length": "42", "Host": "42", "X-Key": "42"}
        assert run("openai-chat", headers, {}, ["x-key"]).headers == {"Content-Length": "42", "Host": "42"}

    def test_owned_and_explicit_at_once(self) -> None:
        """Of two headers of one name, the one that holds the key goes and the caller's own stays and wins."""
        pairs = [("x-affinity", KEY), ("a", "b"), ("X-Affinity", "mine")]
        stamped = run("mistral", pairs, {}, [KEY])
        assert stamped.headers == [("a", "b"), ("X-Affinity", "mine")]
        assert run("mistral", pairs, {}, ["x-affinity"]).headers == [("x-affinity", SCOPE), ("a", "b")]

    def test_the_kind_of_headers_stays(self) -> None:
        """A dict gives a dict, any mapping a dict, a list a list, a tuple a tuple; order and repeats stay."""
        pairs = [("Set", "1"), ("set", "2"), ("B", "3")]
        assert run("mistral", pairs, {}).headers == [*pairs, ("x-affinity", SCOPE)]
        assert run("mistral", tuple(pairs), {}).headers == (*pairs, ("x-affinity", SCOPE))
        assert run("mistral", [["a", "b"]], {}).headers == [["a", "b"], ["x-affinity", SCOPE]]
        assert stamp("mistral", MappingProxyType({"a": "b"}), None, TURN).headers == {"a": "b", "x-affinity": SCOPE}
        assert stamp("mistral", None, None, TURN).headers == {"x-affinity": SCOPE}  # type: ignore[type-var]

    @pytest.mark.parametrize("bad", [[("a",)], [(b"a", b"b")], {"a": 5}, "a: b", b"a", [("a", b"b")], 5, [5], ["ab"]])
    def test_other_headers_are_refused(self, bad: Any) -> None:
        """Text only: nothing is guessed about bytes."""
        with pytest.raises(InvalidRequest, match="headers"):
            stamp("mistral", bad, None, TURN)

    @pytest.mark.parametrize("scope", ["a\r\nX-Evil: 1", "a\nb", "键", "é", " a", "a ", "a\tb", "\x7f", "a\0"])
    def test_a_value_that_no_header_can_carry_is_hashed(self, scope: str) -> None:
        """No line break, control character, edge space or non-ASCII text ever reaches a header; a body takes it as it is."""
        stamped = run("mistral", {}, {}, scope=scope)
        assert stamped.headers == {"x-affinity": hashed(scope)}
        assert stamped.body == {"prompt_cache_key": scope}

    def test_without_a_body_headers_are_stamped(self) -> None:
        """None is a request without a body, and stays None."""
        assert run("mistral", {}, None) == Stamped({"x-affinity": SCOPE}, None)


class TestOwned:
    """What an entry of ``owned`` means."""

    def test_a_bare_name_means_the_header_if_there_is_one(self) -> None:
        """session_id is a header and a body field; the header supplied the key, so an explicit body field stays."""
        stamped = stamp("openrouter", {"session_id": KEY}, {"session_id": "mine"}, TURN, ["session_id"])
        assert stamped == Stamped({}, {"session_id": "mine"})
        assert run("openrouter", {}, {"session_id": KEY}, ["session_id"]).body == {"session_id": SCOPE}

    def test_owned_body_fields_that_the_profile_does_not_write_are_dropped(self) -> None:
        """The body field that supplied the key does not go upstream under another profile; nor does its copy."""
        body = {"session_id": KEY, "prompt_cache_key": KEY, "model": "m"}
        assert run("sglang-gateway", {}, body, ["body.session_id"]).body == {"model": "m"}
        assert run("openai-chat", {}, body, ["body.session_id"]).body == {"model": "m", "prompt_cache_key": SCOPE}

    def test_a_nested_owned_field_takes_its_empty_parents_along(self) -> None:
        """A path with dots names a nested field."""
        body = {"metadata": {"session": KEY}, "model": "m"}
        assert run("vllm", {}, body, ["body.metadata.session"]).body == {"model": "m", "cache_salt": SCOPE}
        body = {"metadata": {"session": KEY, "a": 1}}
        assert run("sglang-gateway", {}, body, ["metadata.session"]).body == {"metadata": {"a": 1}}

    def test_other_fields_that_equal_the_key_are_the_callers(self) -> None:
        """A model, a user or a message that happens to equal the key is not a copy of it."""
        body = {"model": "alice", "user": "alice", "messages": [{"role": "user", "content": "alice"}]}
        assert run("openai-chat", {"X-Key": "alice"}, body, ["X-Key"]).body == {**body, "prompt_cache_key": SCOPE}

    def test_a_null_field_that_is_named_is_no_value(self) -> None:
        """Naming a field that is null owns nothing else that is null or empty."""
        stamped = run("mistral", {"x-affinity": "mine"}, {"prompt_cache_key": None}, ["body.prompt_cache_key"])
        assert stamped == Stamped({"x-affinity": "mine"}, {"prompt_cache_key": SCOPE})

    def test_a_value_of_another_type_is_owned_by_its_name(self) -> None:
        """A number that supplied the key is replaced like a text."""
        assert run("openrouter", {}, {"session_id": 42}, ["body.session_id"]).body == {"session_id": SCOPE}

    def test_the_key_of_the_resolution_counts(self) -> None:
        """A Resolution names its key, so copies of it are found without owned."""
        turn = Resolution(key=KEY, session_id="s", epoch=1, ordinal=1, scope=SCOPE, source="declared")
        stamped = stamp("fireworks", {"X-Session-ID": KEY, "a": "b"}, {"prompt_cache_key": KEY}, turn)
        assert stamped == Stamped({"a": "b", "x-session-affinity": SCOPE}, {"prompt_cache_key": SCOPE})

    def test_a_single_name_may_stand_alone(self) -> None:
        """A text is one entry and not an iterable of letters; other types are refused."""
        assert run("mistral", {"x-key": KEY}, {}, "x-key").headers == {"x-affinity": SCOPE}
        with pytest.raises(InvalidRequest, match="owned"):
            stamp("mistral", {}, {}, TURN, [5])  # type: ignore[list-item]


class TestProviders:
    """What only one row of the table does."""

    def test_codex_session_header(self) -> None:
        """It is never added, an explicit one stays, and one that holds the key becomes the physical id."""
        assert run("codex", {}, {}).headers == {"x-client-request-id": SCOPE}
        assert run("codex", {"Session_ID": "mine"}, {}).headers["Session_ID"] == "mine"
        assert run("codex", {"session_id": KEY}, {}, ["session_id"]).headers["session_id"] == "resp_9"
        gone = run("codex", {"session_id": KEY}, {}, ["session_id"], session_id=None).headers
        assert gone == {"x-client-request-id": SCOPE}

    @pytest.mark.parametrize("model", ["x-ai/grok-4", "xai/grok-4:free", "X-AI/Grok-4", "x-ai/grok-"])
    def test_openrouter_grok(self, model: str) -> None:
        """Grok models get the header of xAI too."""
        stamped = run("openrouter", {}, {"model": model})
        assert stamped == Stamped({"x-grok-conv-id": SCOPE}, {"model": model, "session_id": SCOPE})
        assert run("openrouter", {"X-Grok-Conv-ID": "mine"}, {"model": model}).headers == {"X-Grok-Conv-ID": "mine"}

    @pytest.mark.parametrize("model", ["x-ai/grok", "x-ai/other", "openai/x-ai/grok-4", "grok-4", None, 5, "not-x-ai/grok-4"])
    def test_openrouter_other_models(self, model: Any) -> None:
        """Others do not; a header that holds the key is dropped there, an explicit one stays."""
        assert run("openrouter", {}, {"model": model}).headers == {}
        assert run("openrouter", {"x-grok-conv-id": KEY}, {"model": model}, [KEY]).headers == {}
        assert run("openrouter", {"x-grok-conv-id": "mine"}, {"model": model}).headers == {"x-grok-conv-id": "mine"}

    @pytest.mark.parametrize(
        ("tags", "expected"),
        [
            (None, [f"conversation={SCOPE}"]),
            ([], [f"conversation={SCOPE}"]),
            ([f"conversation={SCOPE}", "a"], [f"conversation={SCOPE}", "a"]),
            (["a", 5, None, {"b": 1}], ["a", 5, None, {"b": 1}, f"conversation={SCOPE}"]),
            (["conversation=mine"], ["conversation=mine"]),
            ([f"conversation={KEY}", "a"], ["a", f"conversation={SCOPE}"]),
            ([f"conversation={KEY}", "conversation=mine"], ["conversation=mine"]),
            (["xconversation=1"], ["xconversation=1", f"conversation={SCOPE}"]),
            ("product=x", "product=x"),
            ({"a": 1}, {"a": 1}),
        ],
    )
    def test_nous_tags(self, tags: Any, expected: Any) -> None:
        """The conversation tag is there once; other tags stay; what is no list is the caller's own choice."""
        assert run("nous", {}, {"tags": tags}, [KEY]).body == {"session_id": SCOPE, "tags": expected}

    def test_nous_bounds_the_scope_in_the_tag_as_in_the_field(self) -> None:
        """Both name the same conversation."""
        scope = "s" * 257
        body = run("nous", {}, {}, scope=scope).body
        assert body == {"session_id": hashed(scope), "tags": [f"conversation={hashed(scope)}"]}

    def test_xai_fields_are_independent(self) -> None:
        """An explicit header does not keep the body from being stamped, nor the other way round."""
        stamped = run("xai-responses", {"x-grok-conv-id": "mine"}, {})
        assert stamped == Stamped({"x-grok-conv-id": "mine"}, {"prompt_cache_key": SCOPE})
        stamped = run("xai-responses", {}, {"prompt_cache_key": "mine"})
        assert stamped == Stamped({"x-grok-conv-id": SCOPE}, {"prompt_cache_key": "mine"})


class TestTurns:
    """The forms of a turn."""

    def resolution(self, **binding: Any) -> Resolution:
        bound = Binding(**{"action": "continue", "state": "bound", "worker": "7233", "fence": 9, **binding})
        return Resolution(key=None, session_id="resp_9", epoch=1, ordinal=1, scope=SCOPE, source="declared", binding=bound)

    def test_a_resolution(self) -> None:
        """Worker, rank and action come from its binding."""
        headers = stamp("dynamo", NO, NO, self.resolution(dp_rank=0)).headers
        assert headers == {"X-Dynamo-Session-ID": SCOPE, "x-worker-instance-id": "7233", "x-dp-rank": "0"}

    def test_a_resolution_as_the_service_answers_it(self) -> None:
        """The JSON of a Resolution, with its nested binding and nulls, is a mapping like any other."""
        answer = {"scope": SCOPE, "session_id": "s", "parent_scope": None, "binding": {"action": "bind", "worker": None}}
        assert stamp("dynamo", {}, {}, answer).body == {"nvext": {"extra_fields": ["worker_id"]}}
        assert stamp("dynamo", {}, {}, {**answer, "binding": None}).body == {}

    def test_a_turn_object(self) -> None:
        """A turn has a resolution, and may know its ttl, that it is the last, and a newer binding."""
        turn = SimpleNamespace(resolution=self.resolution(), ttl_s=60.5, final=False)
        control = stamp("dynamo-session-control", NO, NO, turn).body["nvext"]["session_control"]
        assert control == {"session_id": SCOPE, "timeout": 61}
        turn = SimpleNamespace(resolution=self.resolution(), final=True, binding=Binding("continue", "bound", "8"))
        assert stamp("dynamo", {}, {}, turn).headers == {
            "X-Dynamo-Session-ID": SCOPE,
            "X-Dynamo-Session-Final": "true",
            "x-worker-instance-id": "8",
        }
        plain = SimpleNamespace(resolution=self.resolution())
        control = stamp("dynamo-session-control", NO, NO, plain).body["nvext"]["session_control"]
        assert control["timeout"] == 300

    @pytest.mark.parametrize(
        "turn",
        [
            None,
            {},
            {"scope": None},
            {"scope": ""},
            {"scope": 5},
            {"scope": "\ud800"},
            "gwk_x",
            SimpleNamespace(scope=SCOPE),
            {**TURN, "session_id": 5},
            {**TURN, "action": "open"},
            {**TURN, "worker": 1.5},
            {**TURN, "worker": True},
            {**TURN, "worker": ""},
            {**TURN, "dp_rank": -1},
            {**TURN, "dp_rank": "1"},
            {**TURN, "dp_rank": True},
            {**TURN, "ttl_s": 0},
            {**TURN, "ttl_s": "300"},
            {**TURN, "ttl_s": float("nan")},
            {**TURN, "final": "yes"},
            {**TURN, "rebound": 1},
            {**TURN, "fence": 1.0},
            {**TURN, "binding": "x"},
        ],
    )
    def test_a_malformed_turn_is_refused(self, turn: Any) -> None:
        """A wrong turn is an error: a float worker has lost digits, a missing scope has no bucket."""
        with pytest.raises(InvalidRequest, match="turn"):
            stamp("dynamo", {}, {}, turn)


class TestContext:
    """The published scope."""

    def test_published_goes_before_resolved(self) -> None:
        """Code deep inside a turn, which only knows a physical id, still stamps the conversation's scope."""
        with publish(PARENT):
            assert stamp("mistral", NO, NO, TURN).headers == {"x-affinity": PARENT}
            with publish(None):
                assert stamp("mistral", NO, NO, TURN).headers == {"x-affinity": SCOPE}
        assert stamp("mistral", NO, NO, TURN).headers == {"x-affinity": SCOPE}

    def test_a_fork_is_never_stamped_with_its_parents_scope(self) -> None:
        """Not even where the parent's turn is still entered (G6)."""
        with publish(PARENT):
            assert stamp("mistral", NO, NO, {**TURN, "parent_scope": PARENT}).headers == {"x-affinity": SCOPE}


@pytest.mark.parametrize("bad", ["", "openai", "DYNAMO", None, 5])
def test_an_unknown_profile_is_refused(bad: Any) -> None:
    """The error names the known ones."""
    with pytest.raises(UnknownProfile, match="openai-chat"):
        stamp(bad, {}, {}, TURN)


def test_the_table_is_complete() -> None:
    """Every profile of the design's table is there, and nothing else."""
    assert set(PROFILES) == {
        *("openai-chat", "openai-responses", "codex", "openrouter", "nous", "xai-chat", "xai-responses", "mistral"),
        *("fireworks", "deepseek", "vllm", "sglang-gateway", "litellm", "cloudflare", "deepinfra", "dynamo"),
        "dynamo-session-control",
    }
