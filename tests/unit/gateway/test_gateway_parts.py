"""Small parts of the gateway: keys, headers, control, learning, sampling, options."""

from __future__ import annotations

import json
from typing import Any

import pytest

from limpet.errors import InvalidRequest, LimpetError
from limpet.gateway.control import Control
from limpet.gateway.heads import answer_headers, drop_key, forwarded, is_sendable
from limpet.gateway.identity import Sources
from limpet.gateway.learn import ResponseReader, WorkerReader, asked_for_worker
from limpet.gateway.options import Options
from limpet.gateway.problems import BadGateway, document, error_event
from limpet.gateway.samples import RING, Samples, redact
from limpet.gateway.seen_workers import FRESH_S, LOST_S, SeenWorkers
from limpet.gateway.who import response_name
from limpet.settings import DEFAULT_KEY_SOURCES, Settings
from limpet.wire.body import Body


def test_order_of_sources() -> None:
    """The first source that holds a key wins; empty is no key; the order is configuration."""
    sources = Sources(DEFAULT_KEY_SOURCES)
    body = Body(b'{"session_id":"from-body","prompt_cache_key":"pck"}')
    assert sources.find([(b"x-session-id", b""), (b"x-smg-routing-key", b"smg")], body) == ("smg", "x-smg-routing-key")
    assert sources.find([(b"x-smg-routing-key", b"smg"), (b"x-limpet-key", b"k")], body) == ("k", "x-limpet-key")
    assert sources.find([], body) == ("from-body", "body.session_id")
    assert sources.find([], Body(b'{"session_id":7,"prompt_cache_key":"pck"}')) == ("pck", "body.prompt_cache_key")
    assert sources.find([(b"x-correlation-id", b"c")], Body(b"{}")) is None
    own = Sources(("body:metadata.user", "header:X-Correlation-ID"))
    assert own.find([(b"x-correlation-id", b"c")], Body(b'{"metadata":{"user":"u"}}')) == ("u", "body.metadata.user")
    assert own.find([(b"x-correlation-id", b"c")], None) == ("c", "x-correlation-id")


def test_forwarded_headers() -> None:
    """Hop-by-hop headers, those that Connection names, and ours stay here; Connection cannot strip what decides."""
    headers = [
        (b"connection", b"x-a, Authorization, content-type"),
        (b"x-a", b"1"),
        (b"authorization", b"B"),
        (b"x-limpet-key", b"k"),
    ]
    assert forwarded([*headers, (b"te", b"trailers"), (b"host", b"h"), (b"x-b", "ü".encode())]) == [
        ("authorization", "B"),
        ("x-b", "ü"),
    ]
    with pytest.raises(InvalidRequest):
        forwarded([(b"x-b", b"\xff")])
    assert drop_key([("x-id", "42"), ("accept", "42"), ("x-b", "1")], "42") == [("accept", "42"), ("x-b", "1")]
    raw = [(b"Content-Length", b"5"), (b"Date", b"x"), (b"X-Limpet-A", b"1"), (b"ETag", b"e")]
    assert answer_headers(raw, status=200, changed=True) == [(b"etag", b"e")]
    assert answer_headers(raw, status=200) == [(b"content-length", b"5"), (b"etag", b"e")]


@pytest.mark.parametrize("status", [204, 304])
def test_a_length_of_no_body_is_not_sent_on(status: int) -> None:
    """Our server would wait for it."""
    assert answer_headers([(b"Content-Length", b"5"), (b"ETag", b"e")], status=status) == [(b"etag", b"e")]


@pytest.mark.parametrize(
    "pair",
    [(b"x-a", b"a%cb" % byte) for byte in (*range(9), *range(10, 32), 127)]
    + [(b"x%ca" % byte, b"b") for byte in (*range(33), *b'()<>@,;:\\[]={}"', 127)],
)
def test_headers_that_our_server_refuses(pair: tuple[bytes, bytes]) -> None:
    """Every control character but the tab, in a value; what is no token, in a name."""
    assert not is_sendable([(b"etag", b"e"), pair])


def test_headers_that_our_server_sends() -> None:
    """Tabs, and bytes that are no ASCII, are none of our business."""
    assert is_sendable([(b"X-A", b"a\tb"), (b"x-b", b"\xff\x80"), (b"x-c", b"")])


def test_control() -> None:
    """All of it, and the defaults."""
    read = Control.read([(b"x-limpet-kind", b"fork"), (b"x-limpet-parent-key", b"p"), (b"x-limpet-final", b"TRUE")])
    assert (read.kind, read.parent_key, read.final, read.new) == ("fork", "p", True, False)
    assert Control.read([]) == Control(None, "turn", None, False, False, None)


@pytest.mark.parametrize("keep", [True, False])
def test_worker_reader(keep: bool) -> None:
    """Ids beyond 2^53 stay exact; the field goes unless it was asked for; the rest of the body keeps its text."""
    learned: list[Any] = []
    reader = WorkerReader(keep=keep, learned=lambda *found: learned.append(found))
    data = b'{"a":1e400,"nvext":{"worker_id":{"decode_worker_id":18446744073709551615,"decode_dp_rank":2},"timing":1.50},"z":[]}'
    out = reader.body(data)
    assert learned == [("18446744073709551615", 2)]
    assert out == (data if keep else b'{"a":1e400,"nvext":{"timing":1.50},"z":[]}')
    reader.body(data)
    assert len(learned) == 1
    assert reader.events(b"data: [DONE]\n\n") == b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    "data",
    [
        b'{"nvext":{"worker_id":null}}',
        b'{"nvext":{"worker_id":{"decode_worker_id":1.5}}}',
        b'{"nvext":{"worker_id":{"decode_worker_id":-3}}}',
        b'{"text":"\\"worker_id\\""}',
        b'"worker_id" no json',
        b'{"nvext":{"worker_id":{"decode_worker_id":"a\\u0000b"}}}',
        b'{"nvext":{"worker_id":{"decode_worker_id":"%s"}}}' % ("é" * 129).encode(),
        b'{"nvext":{"worker_id":{"decode_worker_id":"7","\\ud800":1}}}',
        b'{"nvext":{"worker_id":{"decode_worker_id":"7"},"\\ud800":1}}',
    ],
)
def test_worker_reader_learns_nothing_from_nonsense(data: bytes) -> None:
    """No id is better than a wrong one."""
    learned: list[Any] = []
    reader = WorkerReader(keep=True, learned=lambda *found: learned.append(found))
    assert reader.body(data) is data
    assert reader.events(b"data: " + data + b"\n\n") == b"data: " + data + b"\n\n"
    assert learned == []


def test_asked_for_worker() -> None:
    """By the client's own extra_fields."""
    assert asked_for_worker(Body(b'{"nvext":{"extra_fields":["timing","worker_id"]}}'))
    assert not asked_for_worker(Body(b'{"nvext":{"extra_fields":"worker_id"}}'))
    assert not asked_for_worker(Body(b'{"nvext":7}'))


def test_response_reader() -> None:
    """The id of a response, once, from its first event or its body; ids longer than a key are digested."""
    ids: list[str] = []
    reader = ResponseReader(ids.append)
    events = b': hi\n\nevent: response.created\ndata: {"response":{"id":"r1"}}\n\ndata: {"response":{"id":"r2"}}\n\n'
    assert reader.events(events) is events
    ResponseReader(ids.append).body(b' {"id":"r3"}')
    ResponseReader(ids.append).body(b"[]")
    assert ids == ["r1", "r3"]
    assert response_name("r1") == "r1"
    assert len(response_name("x" * 300) or "") == 36


@pytest.mark.parametrize("text", ["\ud800", "resp_\udfff", "x" * 300 + "\udc00"])
def test_a_response_id_that_nobody_can_know(text: str) -> None:
    """JSON can write it, UTF-8 cannot."""
    assert response_name(text) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"api_key": "abc-def"}',
        '{"access_token":"abc-def"}',
        '{"x_password":"abc-def\\"more"}',
        "Authorization: Bearer abc-def.ghi",
        "use sk-proj-abcdefghijklmnop",
        "xoxb-abcdefghijklmnop",
        "eyJhbGciOiJI.eyJzdWIiOiIx.abc",
    ],
)
def test_redaction(text: str) -> None:
    """What looks like a credential is masked."""
    assert "[redacted]" in redact(text)
    assert not any(secret in redact(text) for secret in ("abc-def", "abcdefghijklmnop", "eyJzdWIiOiIx", "more"))


def test_redaction_leaves_text_alone() -> None:
    """Token counts and prose are no secrets."""
    text = '{"max_tokens": 5, "prompt_tokens": 7, "text": "the token of my esteem", "basic": "x"}'
    assert redact(text) == text


def test_samples_are_bounded() -> None:
    """So many turns per session, so many samples in all, each tenant its own."""
    samples = Samples(2, 10)
    for n in range(3 * RING):
        if samples.wants("a", f"s{n % 1500}"):
            samples.take("a", f"s{n % 1500}", epoch=1, action="bind", fence=1, body=b"x" * 100, private=())
    samples.take("b", "s", epoch=None, action=None, fence=None, body=b"tel:42 and more", private=("tel:42", None))
    assert len(samples.of("a")) == RING - 1
    assert [each.body for each in samples.of("b")] == ["[redacted]"]
    assert not Samples(0, 0).wants("a", "s")


def test_seen_workers() -> None:
    """Proposes who served lately and was not found lost since; the same for the same key."""
    now = [0.0]
    seen = SeenWorkers(lambda: now[0])
    assert seen.choose("k", None) is None
    for worker in ("1", "2", "3"):
        seen.good(worker)
    chosen = seen.choose("k", None)
    assert chosen == seen.choose("k", None)
    assert seen.choose("k", chosen) not in (None, chosen)
    seen.lost("1")
    seen.lost("2")
    assert seen.choose("k", None) == "3"
    seen.good("1")
    assert seen.choose("k", "3") == "1"
    now[0] = FRESH_S + LOST_S
    assert seen.choose("k", None) is None


@pytest.mark.parametrize(
    "flags",
    [
        {"profile": "vllm"},
        {"upstreams": ("http://a",)},
        {"upstreams": ("http://a", "http://a/"), "profile": "vllm"},
        {"upstreams": ("http://a",), "profile": "no-such"},
        {"upstreams": ("http://a",), "profile": "mine", "profiles": {"mine": {"fields": []}}},
    ],
)
def test_bad_options(flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """What a gateway cannot start with."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LimpetError):
        Options.of(Settings.load(**flags))


def test_routers(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Dynamo's profiles, and what users derive from them, stand before routers; a user's own profile is found."""
    monkeypatch.chdir(tmp_path)
    profiles = {"mine": {"profile": "dynamo", "value": "session_id"}, "plain": {"fields": [{"header": "X-A"}]}}
    for name, router, learns in (
        ("dynamo", True, True),
        ("mine", True, True),
        ("dynamo-session-control", True, False),
        ("plain", False, False),
        ("sglang-gateway", False, False),
    ):
        options = Options.of(Settings.load(upstreams=("http://a",), profile=name, profiles=profiles))
        assert (options.router, options.learns) == (router, learns)


def test_errors_read_both_ways() -> None:
    """A problem document that is an OpenAI error too, and error events."""
    error = BadGateway("It went away.")
    read = json.loads(document(error))
    assert (read["status"], read["code"], read["error"]["code"]) == (502, "upstream_failed", "upstream_failed")
    assert error_event(error, named=False).startswith(b'data: {"error":')
    assert error_event(error, named=True).startswith(b"event: error\ndata: {")
