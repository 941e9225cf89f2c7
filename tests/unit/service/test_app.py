"""The HTTP layer: what reaches the library, what comes back, and how it says no."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import msgspec
import pytest

from limpet import errors
from limpet.health import Check, Health
from limpet.policy import Policy
from limpet.results import Binding
from limpet.service import pages
from limpet.service.clients import Clients
from limpet.service.problems import TooManyNamespaces

Bench = Any
BINDING = Binding("continue", "bound", worker="w", fence=28_000_000_000_000)
NOT_TAKEN = pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
FENCE = 28_000_000_000_000

CALLS: list[tuple[str, dict[str, Any], str, tuple[Any, ...], dict[str, Any]]] = [
    (
        "resolve",
        {"key": "k", "session_id": "s", "bind": True, "exempt": True, "seen_epoch": 5, "kind": "turn"},
        "resolve",
        ("k",),
        {"session_id": "s", "bind": True, "exempt": True, "seen_epoch": 5, "kind": "turn"},
    ),
    ("resolve", {"session_id": "s", "kind": "fork", "parent_key": "p"}, "resolve", (None,), {"kind": "fork", "parent_key": "p"}),
    (
        "resolve",
        {"key": "k", "session_id": "s", "policy": {"idle_s": 60}},
        "resolve",
        ("k",),
        {"policy": Policy.parse({"idle_s": 60})},
    ),
    ("advance", {"key": "k", "reason": "new", "expected_epoch": 5}, "advance", ("k", "new"), {"expected_epoch": 5}),
    ("suspend", {"key": "k", "resume_within_s": 60}, "suspend", ("k",), {"resume_within_s": 60}),
    (
        "bindings/confirm",
        {"key": "k", "fence": FENCE, "worker": "18446744073709551615", "dp_rank": 3, "ttl_ms": 1000},
        "confirm",
        ("k",),
        {"fence": FENCE, "worker": "18446744073709551615", "dp_rank": 3, "ttl_ms": 1000, "session_id": None},
    ),
    ("bindings/abort", {"session_id": "s", "fence": FENCE, "reason": "failed"}, "abort", (None,), {"reason": "failed"}),
    ("bindings/renew", {"key": "k", "fence": FENCE, "ttl_ms": 100}, "renew", ("k",), {"ttl_ms": 100}),
    ("bindings/release", {"key": "k", "fence": FENCE}, "release", ("k",), {"reason": None}),
    (
        "bindings/rebind",
        {"key": "k", "fence": FENCE, "reason": "lost", "worker": "w2", "holder": "h", "claim_ttl_ms": 500},
        "rebind",
        ("k",),
        {"reason": "lost", "worker": "w2", "holder": "h", "claim_ttl_ms": 500},
    ),
]


@pytest.mark.parametrize(("path", "body", "name", "args", "options"), CALLS)
@pytest.mark.parametrize("packed", [False, True], ids=["json", "msgpack"])
async def test_routes_reach_the_library(
    bench: Bench, path: str, body: dict[str, Any], name: str, args: tuple[Any, ...], options: dict[str, Any], packed: bool
) -> None:
    """Each route makes its one call with what was said, in both formats, and answers the result as it is."""
    headers = {"idempotency-key": "retry-1"}
    if packed:
        headers |= {"content-type": "application/msgpack"}
        answer = await bench.http.post(f"/v1/{path}", content=msgspec.msgpack.encode(body), headers=headers)
        assert answer.headers["content-type"] == "application/msgpack"
        result = msgspec.msgpack.decode(answer.content)
    else:
        answer = await bench.http.post(f"/v1/{path}", json=body, headers=headers)
        assert answer.headers["content-type"] == "application/json"
        result = answer.json()
    assert answer.status_code == 200
    [(called, given, named)] = bench.calls
    assert (called, given) == (name, args)
    assert {key: named.get(key) for key in options} == options
    assert named["request_id"] == "retry-1"
    assert result == msgspec.to_builtins(bench.recorders["default"].answers[name])


async def test_accept_picks_the_format(bench: Bench) -> None:
    """JSON in, MessagePack out, and the other way around."""
    answer = await bench.http.post("/v1/resolve", json={"session_id": "s"}, headers={"accept": "application/msgpack"})
    assert msgspec.msgpack.decode(answer.content)["scope"] == "gwk_0"
    answer = await bench.http.post(
        "/v1/resolve",
        content=msgspec.msgpack.encode({"session_id": "s"}),
        headers={"accept": "application/json", "content-type": "application/msgpack"},
    )
    assert answer.json()["scope"] == "gwk_0"


@pytest.mark.parametrize(("value", "asked"), [("1", True), ("true", True), ("0", False), ("false", False), ("", False)])
async def test_require_durable_by_header(bench: Bench, value: str, asked: bool) -> None:
    """The header, or the body's field, asks for durability."""
    body = {"key": "k", "reason": "new"}
    await bench.http.post("/v1/advance", json=body, headers={"x-limpet-require-durable": value})
    await bench.http.post("/v1/advance", json=body | {"require_durable": True})
    assert [options["require_durable"] for _, _, options in bench.calls] == [asked, True]


async def test_bad_headers(bench: Bench) -> None:
    """A header that cannot be meant is refused like a field."""
    for headers, field in (
        ({"x-limpet-require-durable": "maybe"}, "X-Limpet-Require-Durable"),
        ({"idempotency-key": ""}, "Idempotency-Key"),
        ({"idempotency-key": "x" * 257}, "Idempotency-Key"),
        ({"idempotency-key": b"\xff"}, "Idempotency-Key"),
        ({"x-limpet-namespace": "Prod"}, "X-Limpet-Namespace"),
    ):
        answer = await bench.http.post("/v1/advance", json={"key": "k", "reason": "new"}, headers=headers)
        assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert bench.calls == []


ERRORS: list[tuple[BaseException, int, str]] = [
    (errors.InvalidRequest("no.", field="key"), 400, "invalid_request"),
    (errors.ImplausibleEpoch("no."), 400, "implausible_epoch"),
    (errors.UnknownConversation("no."), 404, "unknown_conversation"),
    (errors.StaleFence("no.", binding=BINDING), 409, "stale_fence"),
    (errors.StaleFence("no."), 409, "stale_fence"),
    (errors.StoreUnavailable("no."), 503, "store_unavailable"),
    (errors.NotDurable("no.", result=BINDING), 503, "not_durable"),
    (errors.StoreMismatch("no."), 503, "store_mismatch"),
    (errors.SchemaTooNew("no."), 503, "schema_too_new"),
    (errors.StoreCorrupt("no."), 500, "store_corrupt"),
    (RuntimeError("telegram:dm:42"), 500, "internal"),
]


@pytest.mark.parametrize(("error", "status", "code"), ERRORS)
async def test_errors_are_problem_documents(
    bench: Bench, error: BaseException, status: int, code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each error of the library has its status and stable code; one that nobody planned tells nothing, not even the log."""
    bench.failing("confirm", error)
    answer = await bench.http.post("/v1/bindings/confirm", json={"key": "k", "fence": FENCE})
    body = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code)
    assert {"type", "title", "detail"} <= body.keys()
    assert ("retry-after" in answer.headers) is (status == 503)
    stale = isinstance(error, errors.StaleFence) and error.binding is not None
    assert body.get("binding") == (msgspec.to_builtins(BINDING) if stale else None)
    assert body.get("result") == (msgspec.to_builtins(BINDING) if code == "not_durable" else None)
    captured = capfd.readouterr()
    assert "telegram" not in answer.text + captured.out + captured.err


@NOT_TAKEN
async def test_wrong_method(bench: Bench, method: str) -> None:
    """405 says what the route takes."""
    answer = await bench.http.request(method, "/v1/resolve")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    answer = await bench.http.request("POST", "/v1/conversations/k")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("path", ["/nope", "/v1", "/v1/", "/v1/resolve/", "/v1/bindings/zz", "//v1/resolve", "/livez/"])
async def test_unknown_routes(bench: Bench, path: str) -> None:
    """404 is a problem document too, and nothing redirects."""
    answer = await bench.http.get(f"http://limpet{path}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_other_media_types(bench: Bench, content_type: str | None) -> None:
    """415, and what would be taken."""
    headers = {} if content_type is None else {"content-type": content_type}
    answer = await bench.http.post("/v1/resolve", content=b'{"session_id":"s"}', headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    answer = await bench.http.post("/v1/resolve", json={"session_id": "s"}, headers={"content-encoding": "gzip"})
    assert answer.status_code == 415


async def _chunks(total: int) -> AsyncIterator[bytes]:
    for _ in range(total // 1024):
        yield b" " * 1024


@pytest.mark.parametrize(("path", "limit"), [("resolve", 64 * 1024), ("batch", 1024 * 1024)])
async def test_huge_bodies(bench: Bench, path: str, limit: int) -> None:
    """413 whether the size is said or only found; just within the bound is taken."""
    headers = {"content-type": "application/json"}
    for content in (b" " * (limit + 1), _chunks(limit + 2048), _chunks(limit * 2), b" " * (6 * 1024 * 1024)):
        answer = await bench.http.post(f"/v1/{path}", content=content, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    body = b'{"requests":[]}' if path == "batch" else b'{"session_id":"s"}'
    answer = await bench.http.post(f"/v1/{path}", content=body.ljust(limit), headers=headers)
    assert answer.status_code == 200


async def test_batch(bench: Bench) -> None:
    """Answers in the order of the requests, each with the status and body that it would have got alone."""
    bench.failing("advance", errors.StoreUnavailable("away."))
    bench.failing("release", RuntimeError("secret"))
    answer = await bench.http.post(
        "/v1/batch",
        json={
            "requests": [
                {"op": "resolve", "key": "k", "session_id": "s"},
                {"op": "resolve", "key": 7, "session_id": "s"},
                {"op": "nope"},
                {"key": "k"},
                [],
                {"op": "advance", "key": "k", "reason": "new"},
                {"op": "release", "key": "k", "fence": FENCE},
                {"op": "confirm", "key": "k", "fence": FENCE, "zz": 1},
            ]
        },
    )
    assert answer.status_code == 200
    answers = answer.json()["answers"]
    assert [each["status"] for each in answers] == [200, 400, 400, 400, 400, 503, 500, 400]
    assert answers[0]["body"]["scope"] == "gwk_0"
    assert answers[1]["body"]["field"] == "key"
    assert answers[5]["body"]["code"] == "store_unavailable"
    assert "secret" not in answer.text


async def test_batch_request_ids(bench: Bench) -> None:
    """An item's own request_id wins; else the batch's Idempotency-Key gives each its own, the same at a retry."""
    body = {
        "requests": [
            {"op": "advance", "key": "k", "reason": "new"},
            {"op": "advance", "key": "k", "reason": "new", "request_id": "mine"},
        ]
    }
    for _ in range(2):
        await bench.http.post("/v1/batch", json=body, headers={"idempotency-key": "x" * 256})
    ids = [options["request_id"] for _, _, options in bench.calls]
    stem = hashlib.sha256(b"x" * 256).hexdigest()[:32]
    assert sorted(ids) == sorted([f"{stem}:0", "mine"] * 2)


async def test_batch_packed(bench: Bench) -> None:
    """The items of a MessagePack batch stay raw too, so that one that is wrong fails alone."""
    body = msgspec.msgpack.encode({"requests": [{"op": "resolve", "session_id": "s"}, {"op": "resolve", "session_id": b"s"}]})
    answer = await bench.http.post("/v1/batch", content=body, headers={"content-type": "application/msgpack"})
    assert [each["status"] for each in msgspec.msgpack.decode(answer.content)["answers"]] == [200, 400]


async def test_batch_bounds(bench: Bench) -> None:
    """256 are taken, 257 are not; no item of a refused batch runs."""
    item = {"op": "resolve", "session_id": "s"}
    assert (await bench.http.post("/v1/batch", json={"requests": [item] * 257})).status_code == 400
    assert bench.calls == []
    assert (await bench.http.post("/v1/batch", json={"requests": [item] * 256})).status_code == 200
    assert len(bench.calls) == 256


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("telegram%3Adm%3A42", "telegram:dm:42"),
        ("telegram:dm:42", "telegram:dm:42"),
        ("a%2Fb", "a/b"),
        ("a/b", "a/b"),
        ("%2525", "%25"),
        ("gr%C3%BCn%20x", "grün x"),
        ("a+b", "a+b"),
        ("%2E%2E%2Fx", "../x"),
    ],
)
async def test_keys_in_paths(bench: Bench, path: str, key: str) -> None:
    """A key is percent-decoded exactly once, from the raw path."""
    assert (await bench.http.get(f"/v1/conversations/{path}")).status_code == 200
    assert (await bench.http.delete(f"/v1/conversations/{path}?expected_epoch=7")).status_code == 200
    assert [(name, args) for name, args, _ in bench.calls] == [("peek", (key,)), ("forget", (key,))]
    assert bench.calls[1][2]["expected_epoch"] == 7


@pytest.mark.parametrize(
    "path",
    ["", "%FF", "a%0Ab", "a%00", "%C2%85", "x" * 257, "k?zz=1"],
)
async def test_bad_keys_in_paths(bench: Bench, path: str) -> None:
    """What is no key, and a parameter that does not exist, is 400."""
    for method in ("GET", "DELETE"):
        answer = await bench.http.request(method, f"/v1/conversations/{path}")
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert bench.calls == []


@pytest.mark.parametrize("value", ["", "-1", "1e3", "1&expected_epoch=2", "99999999999999999", "%D9%A1"])
async def test_bad_expected_epochs(bench: Bench, value: str) -> None:
    """Only an integer, given once."""
    answer = await bench.http.delete(f"/v1/conversations/k?expected_epoch={value}")
    assert (answer.status_code, answer.json()["field"]) == (400, "expected_epoch")


async def test_unknown_conversation(bench: Bench) -> None:
    """404 with its code; a DELETE with a body is refused."""
    bench.connect("default").answers["peek"] = None
    answer = await bench.http.get("/v1/conversations/k")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_conversation")
    answer = await bench.http.request("DELETE", "/v1/conversations/k", json={"expected_epoch": 3})
    assert answer.status_code == 400


async def test_tokens_over_http(make_bench: Callable[..., Bench]) -> None:
    """401 with a challenge, 403 for a missing right or another namespace, and the token's namespace otherwise."""
    digest = hashlib.sha256(b"one").hexdigest()
    bench = make_bench(tokens=[{"sha256": digest, "namespace": "prod", "rights": ["resolve"]}])
    ours = {"authorization": "Bearer one"}
    answer = await bench.http.post("/v1/resolve", json={"session_id": "s"})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    answer = await bench.http.post("/v1/resolve", json={"session_id": "s"}, headers=ours | {"x-limpet-namespace": "test"})
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert (await bench.http.delete("/v1/conversations/k", headers=ours)).status_code == 403
    assert (await bench.http.get("/v1/conversations/k", headers=ours)).status_code == 200
    assert (await bench.http.post("/v1/resolve", json={"session_id": "s"}, headers=ours)).status_code == 200
    assert bench.recorders.keys() == {"prod"}
    for path in ("/livez", "/readyz", "/metrics", "/openapi.json", "/docs"):
        assert (await bench.http.get(path)).status_code == 200


async def test_namespaces_by_header(bench: Bench) -> None:
    """Without tokens the header picks; each namespace has a client of its own."""
    for name in ("a", "b"):
        await bench.http.post("/v1/resolve", json={"session_id": "s"}, headers={"x-limpet-namespace": name})
    assert [len(bench.recorders[name].calls) for name in ("a", "b")] == [1, 1]
    assert "default" not in bench.recorders


async def test_probes_and_pages(make_bench: Callable[..., Bench]) -> None:
    """livez and readyz; checks and metrics stay covered where a metrics token is set."""
    bench = make_bench(metrics_token="scrape77")
    assert (await bench.http.get("/livez")).json() == {"ok": True}
    assert (await bench.http.get("/readyz")).json() == {"ok": True}
    scraper = {"authorization": "Bearer scrape77"}
    bench.recorders["default"].ok = False
    answer = await bench.http.get("/readyz", headers=scraper)
    assert answer.status_code == 503
    assert answer.json() == {"ok": False, "checks": [{"name": "store", "level": "fail", "message": "words"}]}
    assert (await bench.http.get("/metrics")).status_code == 401
    answer = await bench.http.get("/metrics", headers=scraper)
    assert answer.status_code == 200
    assert "limpet_build_info" in answer.text
    answer = await bench.http.get("/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_scrapes_share_a_look_at_the_store(make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape shows what the last probe found, and asks the store itself only when that is old; a look that fails in a way that
    nobody foresaw costs its own metrics only."""
    bench = make_bench()
    looks = 0

    async def health() -> Health:
        nonlocal looks
        looks += 1
        if looks > 1:
            raise RuntimeError("unforeseen")
        return Health(False, (Check("eviction", "fail", "words"),))

    monkeypatch.setattr(bench.connect("default"), "health", health)
    monkeypatch.setattr(pages, "HEALTH_TTL_S", 60)
    assert (await bench.http.get("/readyz")).status_code == 503
    for _ in range(3):
        text = (await bench.http.get("/metrics")).text
        assert 'limpet_health{check="eviction"} 2.0' in text
        assert "limpet_ready 0.0" in text
    assert looks == 1

    other = make_bench()
    monkeypatch.setattr(other.connect("default"), "health", health)
    answer = await other.http.get("/metrics")
    assert looks == 2
    assert (answer.status_code, "limpet_ready" in answer.text, "limpet_build_info" in answer.text) == (200, False, True)


async def test_a_client_that_goes_away(bench: Bench) -> None:
    """A request cut short is neither run nor answered."""
    sent: list[Any] = []
    events = iter([{"type": "http.request", "body": b'{"sess', "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(events)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/resolve",
        "raw_path": b"/v1/resolve",
        "headers": headers,
        "query_string": b"",
    }
    await bench.app(scope, receive, send)
    assert (sent, bench.calls) == ([], [])


async def test_clients_are_bounded(bench: Bench) -> None:
    """The idlest client goes when a new namespace comes; a busy one never does; when all are busy the newcomer waits."""
    made = bench.recorders
    clients = Clients(bench.connect, limit=2)
    busy = clients.enter("a")
    busy.active += 1
    clients.enter("b")
    clients.enter("c")
    await asyncio.sleep(0)
    assert [made[name].closed for name in "abc"] == [False, True, False]
    clients.enter("c").active += 1
    with pytest.raises(TooManyNamespaces):
        clients.enter("d")
    busy.active -= 1
    clients.enter("d")
    await clients.close()
    assert all(recorder.closed for recorder in made.values())


async def test_openapi_describes_every_route(bench: Bench) -> None:
    """The document names every route, resolves every reference, and lists every code that an error of ours carries."""
    document = (await bench.http.get("/openapi.json")).json()
    text = json.dumps(document)
    assert document["openapi"].startswith("3.1")
    assert {f"/v1/{path}" for path, *_ in CALLS} | {"/v1/batch", "/v1/conversations/{key}", "/readyz"} <= document["paths"].keys()
    for reference in {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}:
        assert reference in document["components"]["schemas"]
    assert {code for _, _, code in ERRORS} <= document["x-problem-codes"].keys()


async def test_docs_need_no_other_host(bench: Bench) -> None:
    """The page loads nothing, runs nothing, and has an anchor for each problem's type."""
    answer: httpx.Response = await bench.http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for word in ("<script", "src=", "<link", "https://", "@import"):
        assert word not in answer.text
    for _, _, code in ERRORS:
        assert f"id='{code}'" in answer.text
