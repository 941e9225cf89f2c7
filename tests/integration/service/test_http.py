"""Every route over a real store, in both formats; everything that is wrong is refused and writes nothing."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
import redis

from limpet import scope as scopes
from limpet.keys import digest

Running = Any
Post = Callable[..., tuple[int, Any]]


@pytest.fixture
def key() -> str:
    """A key that no other test uses, with characters that paths must escape."""
    return f"telegram:dm:{uuid.uuid4()}/ü"


@pytest.fixture(params=["json", "msgpack"])
def post(request: pytest.FixtureRequest, http: httpx.Client) -> Post:
    """POST a body in one of the two formats; the status and the decoded answer."""

    def send(path: str, body: Any, **headers: str) -> tuple[int, Any]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if request.param == "json":
            answer = http.post(path, json=body, headers=named)
        else:
            named["content-type"] = "application/msgpack"
            answer = http.post(path, content=msgspec.msgpack.encode(body), headers=named)
        if answer.headers["content-type"] == "application/msgpack":
            return answer.status_code, msgspec.msgpack.decode(answer.content)
        return answer.status_code, answer.json()

    return send


def test_a_conversation(post: Post, http: httpx.Client, key: str) -> None:
    """Resolve, look, advance, suspend, forget: epochs only grow, ordinals count, scopes follow."""
    status, first = post("/v1/resolve", {"key": key, "session_id": "s1"})
    assert (status, first["ordinal"], first["created"], first["source"]) == (200, 1, True, "declared")
    assert first["scope"] == scopes.declared(key, first["epoch"])
    _, again = post("/v1/resolve", {"key": key, "session_id": "s2"})
    assert (again["epoch"], again["created"], again["session_id"]) == (first["epoch"], False, "s2")

    _, advanced = post("/v1/advance", {"key": key, "reason": "new", "expected_epoch": first["epoch"]})
    assert (advanced["applied"], advanced["previous_epoch"], advanced["ordinal"]) == (True, first["epoch"], 2)
    assert advanced["epoch"] > first["epoch"]
    _, lost = post("/v1/advance", {"key": key, "reason": "new", "expected_epoch": first["epoch"]})
    assert (lost["applied"], lost["epoch"]) == (False, advanced["epoch"])

    _, suspended = post("/v1/suspend", {"key": key})
    assert suspended["applied"] is True
    _, third = post("/v1/resolve", {"key": key, "session_id": "s3"})
    assert (third["reset"]["reason"], third["ordinal"]) == ("suspended", 3)
    assert third["reset"]["previous_epoch"] == advanced["epoch"]

    path = f"/v1/conversations/{quote(key, safe='')}"
    seen = http.get(path)
    assert (seen.status_code, seen.json()["epoch"]) == (200, third["epoch"])
    assert http.delete(path, params={"expected_epoch": first["epoch"]}).json()["applied"] is False
    assert http.delete(path).json()["applied"] is True
    assert http.get(path).json()["code"] == "unknown_conversation"
    _, fresh = post("/v1/resolve", {"key": key, "session_id": "s4"})
    assert (fresh["ordinal"], fresh["epoch"] > third["epoch"]) == (1, True)


def test_a_binding(post: Post, key: str) -> None:
    """One is told bind, the next waits; confirmed it is continued; renew, rebind, release, abort; the stale are 409."""
    worker = "18446744073709551615"
    _, first = post("/v1/resolve", {"key": key, "session_id": "s", "bind": True})
    claim = first["binding"]
    assert claim["action"] == "bind"
    _, other = post("/v1/resolve", {"key": key, "session_id": "s", "bind": {"holder": "b"}})
    assert (other["binding"]["action"], other["binding"]["fence"]) == ("wait", claim["fence"])
    status, bound = post("/v1/bindings/confirm", {"key": key, "fence": claim["fence"], "worker": worker, "dp_rank": 1})
    assert (status, bound["state"], bound["worker"], bound["dp_rank"]) == (200, "bound", worker, 1)
    _, third = post("/v1/resolve", {"key": key, "session_id": "s", "bind": True})
    assert (third["binding"]["action"], third["binding"]["worker"]) == ("continue", worker)
    assert post("/v1/bindings/renew", {"key": key, "fence": claim["fence"], "ttl_ms": 60_000})[0] == 200

    _, rebound = post("/v1/bindings/rebind", {"key": key, "fence": claim["fence"], "reason": "lost", "worker": "w2"})
    assert rebound["fence"] > claim["fence"]
    for name in ("confirm", "abort", "renew", "rebind"):
        body = {"key": key, "fence": claim["fence"]} | ({"reason": "lost"} if name == "rebind" else {})
        status, problem = post(f"/v1/bindings/{name}", body)
        assert (status, problem["code"], problem["binding"]["fence"]) == (409, "stale_fence", rebound["fence"])
    assert post("/v1/bindings/abort", {"key": key, "fence": rebound["fence"], "reason": "failed"})[0] == 200
    _, last = post("/v1/resolve", {"key": key, "session_id": "s", "bind": {"worker": "w3", "commit": True}})
    assert (last["binding"]["state"], last["binding"]["worker"]) == ("bound", "w3")
    for _ in range(2):
        assert post("/v1/bindings/release", {"key": key, "fence": last["binding"]["fence"]})[0] == 200


def test_physical_bindings(post: Post, key: str) -> None:
    """A fork is bound under its session id, named by it, and its parent's scope comes beside its own."""
    _, parent = post("/v1/resolve", {"key": key, "session_id": "s"})
    body = {"key": key, "session_id": key, "kind": "fork", "parent_key": key, "bind": True}
    _, fork = post("/v1/resolve", body)
    assert (fork["source"], fork["scope"], fork["parent_scope"]) == ("physical", scopes.physical(key), parent["scope"])
    fence = fork["binding"]["fence"]
    assert post("/v1/bindings/confirm", {"session_id": key, "fence": fence, "worker": "w"})[1]["state"] == "bound"
    for names in ({}, {"key": key, "session_id": key}):
        status, problem = post("/v1/bindings/confirm", names | {"fence": fence})
        assert (status, problem["code"]) == (400, "invalid_request")


def test_retries_get_the_first_result(post: Post, http: httpx.Client, key: str) -> None:
    """With an Idempotency-Key a repeat of any writing call changes nothing more."""
    _, first = post("/v1/resolve", {"key": key, "session_id": "s", "bind": True}, idempotency_key="r1")
    _, again = post("/v1/resolve", {"key": key, "session_id": "s", "bind": True}, idempotency_key="r1")
    assert again["binding"]["action"] == "bind"
    assert again["binding"]["fence"] == first["binding"]["fence"]
    answers = [post("/v1/advance", {"key": key, "reason": "new"}, idempotency_key="r2")[1] for _ in range(3)]
    assert answers[0]["epoch"] == answers[1]["epoch"] == answers[2]["epoch"]
    assert answers[2]["applied"] is True
    path = f"/v1/conversations/{quote(key, safe='')}"
    assert http.delete(path, headers={"idempotency-key": "r3"}).json()["applied"] is True
    _, fresh = post("/v1/resolve", {"key": key, "session_id": "s"})
    assert http.delete(path, headers={"idempotency-key": "r3"}).json()["applied"] is True
    assert http.get(path).json()["epoch"] == fresh["epoch"]


def test_batch(post: Post, key: str) -> None:
    """256 calls in one request, each with its own status; one that is wrong does not disturb the rest."""
    requests: list[dict[str, Any]] = [{"op": "resolve", "key": f"{key}{i}", "session_id": "s"} for i in range(253)]
    requests += [{"op": "zz"}, {"op": "confirm", "key": key, "fence": 1}, {"op": "resolve", "key": "\n", "session_id": "s"}]
    status, body = post("/v1/batch", {"requests": requests})
    assert status == 200
    assert [answer["status"] for answer in body["answers"]] == [200] * 253 + [400, 409, 400]
    assert len({answer["body"]["scope"] for answer in body["answers"][:253]}) == 253


def test_wait_is_woken_by_the_confirm(http: httpx.Client, key: str) -> None:
    """A resolve with wait_ms answers continue as soon as the other's claim is confirmed."""
    claim = http.post("/v1/resolve", json={"key": key, "session_id": "a", "bind": True}).json()["binding"]
    found: list[Any] = []

    def wait() -> None:
        body = {"key": key, "session_id": "b", "bind": {"wait_ms": 15_000, "holder": "b"}}
        found.append(httpx.post(f"{http.base_url}/v1/resolve", json=body, timeout=20).json())

    waiter = threading.Thread(target=wait)
    waiter.start()
    waiter.join(0.3)
    assert waiter.is_alive()
    http.post("/v1/bindings/confirm", json={"key": key, "fence": claim["fence"], "worker": "w"})
    waiter.join(5)
    assert not waiter.is_alive()
    assert (found[0]["binding"]["action"], found[0]["binding"]["worker"]) == ("continue", "w")


LONG = "ü" * 129
BAD: list[tuple[str, str, bytes, int, str]] = [
    (name, path, body if isinstance(body, bytes) else json.dumps(body).encode(), status, code)
    for name, path, body, status, code in [
        ("empty key", "resolve", {"key": "", "session_id": "s"}, 400, "invalid_request"),
        ("empty session id", "resolve", {"key": "bad", "session_id": ""}, 400, "invalid_request"),
        ("key of 258 bytes", "resolve", {"key": LONG, "session_id": "s"}, 400, "invalid_request"),
        ("C0", "resolve", {"key": "bad\u0007", "session_id": "s"}, 400, "invalid_request"),
        ("DEL", "resolve", {"key": "bad\u007f", "session_id": "s"}, 400, "invalid_request"),
        ("C1", "advance", {"key": "bad\u0085", "reason": "new"}, 400, "invalid_request"),
        ("NUL in worker", "resolve", {"key": "bad", "session_id": "s", "bind": {"worker": "a\u0000"}}, 400, "invalid_request"),
        ("not UTF-8", "resolve", b'{"key":"bad\xff","session_id":"s"}', 400, "malformed_body"),
        ("lone surrogate", "resolve", b'{"key":"bad\\udc00","session_id":"s"}', 400, "malformed_body"),
        ("wrong type", "resolve", {"key": ["bad"], "session_id": "s"}, 400, "invalid_request"),
        ("worker as a number", "bindings/confirm", {"key": "bad", "fence": 1, "worker": 2**63}, 400, "invalid_request"),
        ("unknown field", "resolve", {"key": "bad", "session_id": "s", "bnd": True}, 400, "invalid_request"),
        ("unknown field in bind", "resolve", {"key": "bad", "session_id": "s", "bind": {"wrkr": "w"}}, 400, "invalid_request"),
        ("unknown field in policy", "resolve", {"key": "bad", "session_id": "s", "policy": {"idle": 1}}, 400, "invalid_request"),
        ("unknown zone", "resolve", {"key": "bad", "session_id": "s", "policy": {"daily": {"at": "04:00", "tz": "Mars/X"}}}, 400,
         "invalid_request"),
        ("path as a zone", "resolve", {"key": "bad", "session_id": "s", "policy": {"daily": {"at": "04:00", "tz": "../etc/x"}}},
         400, "invalid_request"),
        ("absurd time", "resolve", {"key": "bad", "session_id": "s", "policy": {"daily": {"at": "24:61", "tz": "UTC"}}}, 400,
         "invalid_request"),
        ("negative idle", "resolve", {"key": "bad", "session_id": "s", "policy": {"idle_s": -1}}, 400, "invalid_request"),
        ("idle without end", "resolve", b'{"key":"bad","session_id":"s","policy":{"idle_s":1e308}}', 400, "invalid_request"),
        ("infinite", "resolve", b'{"key":"bad","session_id":"s","policy":{"idle_s":1e999}}', 400, "invalid_request"),
        ("NaN", "resolve", b'{"key":"bad","session_id":"s","policy":{"idle_s":NaN}}', 400, "malformed_body"),
        ("claim ttl", "resolve", {"key": "bad", "session_id": "s", "bind": {"claim_ttl_ms": 99}}, 400, "invalid_request"),
        ("bind ttl", "resolve", {"key": "bad", "session_id": "s", "bind": {"ttl_ms": 10**15}}, 400, "invalid_request"),
        ("wait too long", "resolve", {"key": "bad", "session_id": "s", "bind": {"wait_ms": 30_001}}, 400, "invalid_request"),
        ("negative fence", "bindings/confirm", {"key": "bad", "fence": -1}, 400, "invalid_request"),
        ("fence of 2^53", "bindings/confirm", {"key": "bad", "fence": 2**53}, 400, "invalid_request"),
        ("6000 digits", "bindings/confirm", b'{"key":"bad","fence":' + b"9" * 6000 + b"}", 400, "invalid_request"),
        ("seen from the future", "resolve", {"key": "bad", "session_id": "s", "seen_epoch": 2**53 - 1}, 400, "implausible_epoch"),
        ("expected too large", "advance", {"key": "bad", "reason": "new", "expected_epoch": 2**53 - 1}, 400, "implausible_epoch"),
        ("reason", "advance", {"key": "bad", "reason": "New Chat!"}, 400, "invalid_request"),
        ("window", "suspend", {"key": "bad", "resume_within_s": 0}, 400, "invalid_request"),
        ("nothing", "advance", b"", 400, "malformed_body"),
        ("no JSON", "advance", b"key=bad", 400, "malformed_body"),
        ("no object", "advance", b"[]", 400, "invalid_request"),
        ("deep", "resolve", b'{"key":"bad","session_id":"s","bind":' + b'{"x":' * 9000, 400, "invalid_request"),
        ("deep batch", "batch", b'{"requests":[' + b"[" * 200_000, 400, "malformed_body"),
        ("long batch", "batch", {"requests": [{"op": "resolve", "key": "bad", "session_id": "s"}] * 257}, 400, "invalid_request"),
        ("huge", "resolve", b'{"key":"bad","session_id":"s","x":"' + b"x" * 70_000 + b'"}', 413, "too_large"),
        ("huge batch", "batch", b" " * (1024 * 1024 + 1), 413, "too_large"),
        ("enormous", "resolve", b" " * (3 * 1024 * 1024), 413, "too_large"),
    ]
]  # fmt: skip
BOMBS = [
    b"\xdf\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\x81\xa3key\xdb\xff\xff\xff\xff",
    b"\x82\xa3key\xa3bad\xaasession_id" + b"\x91" * 60_000,
    b"\x81\xa8requests\xdd\xff\xff\xff\xff" + b"\xc0" * 1000,
    b"\x81\xa8requests\x91" + b"\x91" * 60_000,
]


def _nothing_written(service_store: str) -> bool:
    with redis.Redis.from_url(service_store) as store:
        return not any(store.scan_iter(match=f"*{digest('bad')}", count=10_000))


@pytest.mark.parametrize(("path", "body", "status", "code"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input(http: httpx.Client, service_store: str, path: str, body: bytes, status: int, code: str) -> None:
    """400 or 413, a stable code, one clear sentence, and nothing written."""
    answer = http.post(f"/v1/{path}", content=body, headers={"content-type": "application/json"})
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, problem["code"], problem["status"]) == (status, code, status)
    assert problem["detail"].endswith(".")
    assert "\n" not in problem["detail"]
    assert len(problem["detail"]) < 300
    assert _nothing_written(service_store)


@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
def test_messagepack_bombs(http: httpx.Client, service_store: str, bomb: bytes) -> None:
    """A few bytes that claim gigabytes, or nest without end, are 400 at once."""
    for path in ("resolve", "batch"):
        answer = http.post(f"/v1/{path}", content=bomb, headers={"content-type": "application/msgpack"})
        assert answer.status_code == 400
        assert answer.json()["code"] in ("malformed_body", "invalid_request")
    assert _nothing_written(service_store)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 200_000,
        b"GET /livez HTTP/1.1\r\n" + b"x: a\r\n" * 50_000,
        b"\x00\x01\x02 nonsense\r\n\r\n",
    ],
    ids=["path", "header", "headers", "nonsense"],
)
def test_heads_without_end(service: Running, http: httpx.Client, head: bytes) -> None:
    """Neither an endless request line nor endless headers are collected; the service goes on."""
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        try:
            raw.sendall(head)
            first = raw.recv(4096)
        except (ConnectionResetError, BrokenPipeError):
            first = b""
    assert first == b"" or first.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404"))
    assert http.get("/livez").status_code == 200


def test_namespaces_share_nothing(http: httpx.Client, key: str) -> None:
    """The same key in two namespaces is two conversations with two scopes."""
    body = {"key": key, "session_id": "s"}
    answers = {name: http.post("/v1/resolve", json=body, headers={"x-limpet-namespace": name}).json() for name in ("one", "two")}
    assert all(answer["created"] for answer in answers.values())
    assert answers["one"]["scope"] == scopes.declared(key, answers["one"]["epoch"], "one")
    assert answers["one"]["scope"] != answers["two"]["scope"]


def test_tokens(serve: Callable[..., Running], key: str) -> None:
    """Wrong token 401, other namespace or missing right 403; the token's namespace otherwise; probes stay open."""
    tokens = [
        {"sha256": hashlib.sha256(word.encode()).hexdigest(), "namespace": "prod", "rights": rights}
        for word, rights in (("old", ["resolve"]), ("new", ["resolve", "admin"]))
    ]
    running = serve(tokens=json.dumps(tokens)).wait_up()
    body = {"key": key, "session_id": "s"}
    with httpx.Client(base_url=running.url) as http:
        for headers, status in (
            ({}, 401),
            ({"authorization": "Bearer wrong"}, 401),
            ({"authorization": "Bearer old"}, 200),
            ({"authorization": "Bearer new", "x-limpet-namespace": "prod"}, 200),
            ({"authorization": "Bearer new", "x-limpet-namespace": "default"}, 403),
        ):
            answer = http.post("/v1/resolve", json=body, headers=headers)
            assert answer.status_code == status
        path = f"/v1/conversations/{quote(key, safe='')}"
        assert http.delete(path, headers={"authorization": "Bearer old"}).status_code == 403
        assert http.delete(path, headers={"authorization": "Bearer new"}).json()["applied"] is True
        assert [http.get(path).status_code for path in ("/livez", "/readyz", "/metrics", "/docs")] == [200] * 4


def test_readiness_names_its_checks(http: httpx.Client) -> None:
    """Store, configuration, scripts, eviction: one line each."""
    answer = http.get("/readyz").json()
    assert answer["ok"] is True
    assert {"store", "config", "scripts", "eviction"} <= {check["name"] for check in answer["checks"]}


def test_logs_hold_no_keys(serve: Callable[..., Running], key: str) -> None:
    """Nothing of a request is logged, neither a good one nor a bad one."""
    service = serve().wait_up()
    with httpx.Client(base_url=service.url) as http:
        http.post("/v1/resolve", json={"key": key, "session_id": "sess-7"})
        http.post("/v1/resolve", json={"key": key, "session_id": "sess-7", "zz": key})
        http.get(f"/v1/conversations/{quote(key, safe='')}")
    service.stop()
    said = service.stderr + "".join(service.lines)
    assert key not in said
    assert "sess-7" not in said


def test_a_trailer_is_no_header(http: httpx.Client, key: str) -> None:
    """A proxy in front sets the namespace; a caller's trailer does not get past it into another tenant's."""
    body = json.dumps({"key": key, "session_id": "s"}).encode()
    request = (
        b"POST /v1/resolve HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
        b"x-limpet-namespace: mine\r\ntransfer-encoding: chunked\r\n\r\n"
        b"%x\r\n%s\r\n0\r\nx-limpet-namespace: theirs\r\n\r\n" % (len(body), body)
    )
    with socket.create_connection((http.base_url.host, http.base_url.port or 80), timeout=10) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            assert answer.read().startswith(b"HTTP/1.1 200")
    path = f"/v1/conversations/{quote(key, safe='')}"
    assert http.get(path, headers={"X-Limpet-Namespace": "mine"}).status_code == 200
    assert http.get(path, headers={"X-Limpet-Namespace": "theirs"}).status_code == 404
