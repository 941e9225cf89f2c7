"""``/v1/workers`` over a real store: the registry, drains in the background, rights, and what is counted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.support.servers import wait_until

BIG = "18446744073709551615"
NAMES = [BIG, "gpu-a/0", "Ünïcode worker", "%2F", "a?b#c", "heartbeat"]


@pytest.fixture
def http(serve: Callable[..., Any]) -> Any:
    """A client of a service of this test's own, with few partitions, so that drains and counts are quick."""
    with httpx.Client(base_url=serve(partitions=16).wait_up().url, timeout=20) as client:
        yield client


def path(worker: str, verb: str = "") -> str:
    return f"/v1/workers/{quote(worker, safe='')}{verb and '/' + verb}"


def put(http: httpx.Client, worker: str, **fields: Any) -> Any:
    answer = http.put(
        path(worker), json={"pool": "p", "address": "http://x:1", "capacity": 2, "incarnation": "1", "ttl_ms": 0} | fields
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def bind(http: httpx.Client, key: str, **wishes: Any) -> Any:
    answer = http.post("/v1/resolve", json={"key": key, "session_id": "s", "bind": {"pool": "p", "commit": True} | wishes})
    assert answer.status_code == 200, answer.text
    return answer.json()["binding"]


@pytest.mark.parametrize("worker", NAMES)
def test_whatever_its_name(http: httpx.Client, worker: str) -> None:
    """Names are opaque: 64-bit numbers stay strings, slashes and dots stay parts of them, in every route."""
    assert put(http, worker)["worker"] == worker
    assert http.get(path(worker)).json()["worker"] == worker
    for verb in ("heartbeat", "drain", "undrain"):
        answer = http.post(path(worker, verb), json={})
        assert (answer.status_code, answer.json()["worker"]) == (200, worker)
    (listed,) = http.get("/v1/workers").json()["workers"]
    assert (listed["worker"], listed["capacity"], listed["bindings"]) == (worker, 2, 0)
    assert http.delete(path(worker)).json()["worker"] == worker
    for answer in (http.get(path(worker)), http.delete(path(worker)), http.post(path(worker, "heartbeat"))):
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_worker")


def test_registering(http: httpx.Client) -> None:
    """Another incarnation is another worker: its draining is over, and the old self may not beat."""
    put(http, "w", labels={"gpu": "h100"}, incarnation="1")
    http.post(path("w", "drain"))
    assert http.get(path("w")).json()["state"] == "draining"
    assert put(http, "w", incarnation="1", labels={})["state"] == "draining"
    assert put(http, "w", incarnation="2")["state"] == "live"
    answer = http.post(path("w", "heartbeat"), json={"incarnation": "1"})
    assert (answer.status_code, answer.json()["code"]) == (409, "other_incarnation")
    assert http.post(path("w", "heartbeat"), json={"incarnation": "2"}).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"pool": ""},
        {"pool": "p", "capacity": 0},
        {"pool": "p", "capacity": "2"},
        {"pool": "p", "incarnation": 2**64},
        {"pool": "p", "ttl_ms": 50},
        {"pool": "p", "ttl_ms": -1},
        {"pool": "p", "address": "a\nb"},
        {"pool": "p", "labels": {"a": 1}},
        {"pool": "p", "unknown": 1},
    ],
)
def test_bad_registrations(http: httpx.Client, body: dict[str, Any]) -> None:
    """400 that names the field, and nothing is written."""
    answer = http.put(path("w"), json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert http.get("/v1/workers").json()["workers"] == []


def test_routes_that_are_not(http: httpx.Client) -> None:
    """404 for other paths, 405 for other methods, 400 for queries and bodies where none belong, 415 for untyped bodies."""
    assert http.get("/v1/workers/a/b").status_code == 404
    assert http.get("/v1/workers/a/b/c").status_code == 404
    assert http.get("/v1/workersx").status_code == 404
    answer = http.post("/v1/workers/a")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, PUT, DELETE, HEAD")
    assert http.put("/v1/workers").status_code == 405
    assert http.get("/v1/workers/a/heartbeat").status_code == 405
    assert http.get("/v1/workers?x=1").status_code == 400
    assert http.post("/v1/workers/a/undrain", json={"x": 1}).status_code == 400
    assert http.put("/v1/workers/a", content=b'{"pool":"p"}').status_code == 415
    assert http.get("/v1/workers/%ff").status_code == 400
    assert http.get(f"/v1/workers/{'a' * 257}").status_code == 400


def test_pool_and_exclude_reach_the_library(http: httpx.Client) -> None:
    """A resolve may ask for a pool, and for none of some workers."""
    put(http, "w0")
    put(http, "w1")
    bound = bind(http, "k", exclude=["w0"])
    assert (bound["worker"], bound["address"], bound["state"]) == ("w1", "http://x:1", "bound")
    assert bind(http, "other", exclude=["w0", "w1"])["worker"] is None


def test_a_drain(http: httpx.Client) -> None:
    """It runs in the background until the worker may stop; a claim in flight holds it back; undraining ends it."""
    put(http, "w0")
    for number in range(40):
        bind(http, f"k{number}")
    claim = http.post("/v1/resolve", json={"key": "claim", "session_id": "s", "bind": {"worker": "w0"}}).json()["binding"]
    started = http.post(path("w0", "drain")).json()
    assert (started["running"], started["may_stop"]) == (True, False)

    def progress() -> dict[str, Any]:
        found: dict[str, Any] = http.get(path("w0", "drain")).json()
        return found

    wait_until(lambda: progress()["passes"] >= 2, 20, "two passes")
    assert (progress()["moved"], progress()["left"], progress()["may_stop"]) == (40, 1, False)
    http.post("/v1/bindings/confirm", json={"key": "claim", "fence": claim["fence"]})
    wait_until(lambda: progress()["may_stop"], 20, "the worker to be free")
    assert (progress()["moved"], progress()["left"], progress()["running"]) == (41, 0, False)
    shown = http.get(path("w0")).json()
    assert (shown["state"], shown["bindings"], shown["drain"]["may_stop"]) == ("draining", 0, True)
    assert http.post(path("w0", "undrain")).json()["state"] == "live"
    assert http.get(path("w0")).json()["drain"] is None


def test_a_drain_survives_its_service(serve: Callable[..., Any]) -> None:
    """What is left shows in the store: a POST at another replica goes on; and each replica sees the other's progress."""
    one, two = serve(partitions=16).wait_up(), serve(partitions=16).wait_up()
    with httpx.Client(base_url=one.url, timeout=20) as first, httpx.Client(base_url=two.url, timeout=20) as second:
        put(first, "w0")
        for number in range(20):
            bind(first, f"k{number}")
        claim = first.post("/v1/resolve", json={"key": "claim", "session_id": "s", "bind": {"worker": "w0"}}).json()["binding"]
        second.get(path("w0", "drain"))  # it begins to listen
        first.post(path("w0", "drain"))
        wait_until(lambda: first.get(path("w0", "drain")).json()["passes"] >= 1, 20, "a pass")
        assert one.stop() == 0
        second.get(path("w0", "drain"))
        assert second.get(path("w0")).json()["state"] == "draining"
        second.post("/v1/bindings/confirm", json={"key": "claim", "fence": claim["fence"]})
        second.post(path("w0", "drain"))
        wait_until(lambda: second.get(path("w0", "drain")).json()["may_stop"], 20, "the worker to be free")


def test_one_replica_undrains_what_another_drains(serve: Callable[..., Any]) -> None:
    """The other stops, and does not mark it again."""
    one, two = serve(partitions=16).wait_up(), serve(partitions=16).wait_up()
    with httpx.Client(base_url=one.url, timeout=20) as first, httpx.Client(base_url=two.url, timeout=20) as second:
        put(first, "w0")
        first.post("/v1/resolve", json={"key": "claim", "session_id": "s", "bind": {"worker": "w0", "claim_ttl_ms": 60_000}})
        first.post(path("w0", "drain"))
        wait_until(lambda: first.get(path("w0", "drain")).json()["passes"] >= 1, 20, "a pass")
        wait_until(lambda: second.get(path("w0")).json()["drain"] is not None, 20, "word of the drain at the other replica")
        second.post(path("w0", "undrain"))
        wait_until(lambda: not first.get(path("w0", "drain")).json()["running"], 20, "the drain to end")
        assert second.get(path("w0")).json()["state"] == "live"


def test_rights(serve: Callable[..., Any]) -> None:
    """Looking and beating need either right; what changes the fleet needs admin; another tenant sees nothing."""
    tokens = [
        {"sha256": hashlib.sha256(name.encode()).hexdigest(), "namespace": namespace, "rights": rights}
        for name, namespace, rights in (("r", "one", ["resolve"]), ("a", "one", ["admin"]), ("x", "two", ["resolve", "admin"]))
    ]
    url = serve(tokens=json.dumps(tokens), partitions=16).wait_up().url
    with httpx.Client(base_url=url, timeout=20) as http:
        as_of = {name: {"authorization": f"Bearer {name}"} for name in "rax"}
        register = {"pool": "p", "ttl_ms": 0}
        assert http.put(path("w"), json=register).status_code == 401
        assert http.put(path("w"), json=register, headers=as_of["r"]).json()["code"] == "forbidden"
        assert http.put(path("w"), json=register, headers=as_of["a"]).status_code == 200
        for who in "ra":
            for look in ("/v1/workers", path("w"), path("w", "drain")):
                assert http.get(look, headers=as_of[who]).status_code == 200
            assert http.post(path("w", "heartbeat"), headers=as_of[who]).status_code == 200
        for change in ("drain", "undrain"):
            assert http.post(path("w", change), headers=as_of["r"]).status_code == 403
        assert http.delete(path("w"), headers=as_of["r"]).status_code == 403
        assert http.get("/v1/stats", headers=as_of["r"]).status_code == 403
        assert http.get("/v1/stats", headers=as_of["a"]).json()["namespace"] == "one"
        assert http.get("/v1/workers", headers=as_of["x"]).json()["workers"] == []


def test_metrics_and_stats(http: httpx.Client) -> None:
    """Workers by state and bindings by worker, from one census; the stats count what the metrics count."""
    put(http, "w0")
    put(http, "w1")
    http.post(path("w1", "drain"))
    for number in range(5):
        bind(http, f"k{number}", worker="w0")
    text = http.get("/metrics").text
    assert 'limpet_workers{state="live"} 1.0' in text
    assert 'limpet_workers{state="draining"} 1.0' in text
    assert 'limpet_workers{state="gone"} 0.0' in text
    assert 'limpet_bindings{worker="w0"} 5.0' in text
    stats = http.get("/v1/stats").json()
    assert (stats["resolutions"]["created"], stats["binds"]["bind"], stats["degraded"]) == (5, 5, 0)
    row = stats["store"]["counts"]["conversation_resolve"]
    assert (len(row), sum(row), stats["store"]["bounds_s"][-1]) == (len(stats["store"]["bounds_s"]), 5, None)


def test_history(http: httpx.Client) -> None:
    """The record's own memory, which needs nobody to have listened; and what this process has heard since."""
    first = http.post("/v1/resolve", json={"key": "a/b", "session_id": "s"}).json()["epoch"]
    second = http.post("/v1/advance", json={"key": "a/b", "reason": "switch"}).json()["epoch"]
    where = "/v1/history/a%2Fb"
    before = http.get(where).json()
    assert [(each["epoch"], each["reason"]) for each in before["epochs"]] == [(second, "switch"), (first, "new")]
    # The feed began with that look: from some moment on it hears everything.
    wait_until(lambda: http.post("/v1/suspend", json={"key": "a/b"}) and http.get(where).json()["events"], 20, "an event")
    heard = http.get(where).json()["events"][0]
    assert (heard["kind"], heard["digest"]) == ("suspend", hashlib.sha256(b"a/b").hexdigest()[:32])
    assert "a/b" not in http.get(where).text
    assert http.get("/v1/history/unknown").json()["epochs"] == []


def test_a_quota(serve: Callable[..., Any]) -> None:
    """Above it: 429 with a code and Retry-After; an item of a batch counts; others are not affected; probes and pages never."""
    url = serve(quota_per_s=1, quota_burst=300, partitions=16).wait_up().url
    with httpx.Client(base_url=url, timeout=20) as http:
        flood = {"requests": [{"op": "resolve", "session_id": "s"}] * 256}
        assert http.post("/v1/batch", json=flood).status_code == 200
        assert http.post("/v1/batch", json=flood).status_code == 200  # into debt
        for answer in (
            http.post("/v1/batch", json=flood),
            http.post("/v1/resolve", json={"session_id": "s"}),
            http.get("/v1/conversations/k"),
            http.get("/v1/forward-auth", headers={"x-limpet-key": "k"}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded")
            assert 1 <= int(answer.headers["retry-after"]) <= 300
        assert http.post("/v1/resolve", json={"session_id": "s"}, headers={"x-limpet-namespace": "other"}).status_code == 200
        assert http.get("/livez").status_code == 200
        assert http.get("/v1/workers").status_code == 429
        assert http.get("/").status_code == 200
