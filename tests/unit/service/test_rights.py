"""Every route's right, as a matrix over all of /openapi.json: a route that nobody thought of fails here."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest

from limpet.service.auth import Guard
from limpet.service.openapi import document
from limpet.service.problems import Unauthorized
from limpet.settings import Settings
from tests.unit.service.conftest import Bench

METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
RIGHTS: dict[str, str] = {
    **{
        f"post /v1/{name}": "resolve"
        for name in ("resolve", "advance", "suspend", "batch", *(f"bindings/{verb}" for verb in ("confirm", "abort", "renew")))
    },
    "post /v1/bindings/release": "resolve",
    "post /v1/bindings/rebind": "resolve",
    "get /v1/conversations/{key}": "resolve",
    "delete /v1/conversations/{key}": "admin",
    "get /v1/workers": "either",
    "get /v1/workers/{id}": "either",
    "put /v1/workers/{id}": "admin",
    "delete /v1/workers/{id}": "admin",
    "post /v1/workers/{id}/heartbeat": "either",
    "post /v1/workers/{id}/drain": "admin",
    "get /v1/workers/{id}/drain": "either",
    "post /v1/workers/{id}/undrain": "admin",
    "get /v1/history/{key}": "either",
    "get /v1/stats": "admin",
    "get /v1/events": "either",
    "get /livez": "none",
    "get /readyz": "none",
    "get /metrics": "metrics",
}
HOLDERS = {
    "nobody": None,
    "stranger": "stranger-0001",
    "resolver": "resolver-0001",
    "admin": "admin-00000001",
    "both": "both-000000001",
}
ALLOWED = {
    "resolve": {"resolver", "both"},
    "admin": {"admin", "both"},
    "either": {"resolver", "admin", "both"},
    "none": set(HOLDERS),
    "metrics": set(),
}
OPERATIONS = [f"{method} {path}" for path, item in document()["paths"].items() for method in item if method in METHODS]


def entry(word: str, *rights: str, namespace: str = "prod") -> dict[str, Any]:
    """A configured token."""
    return {"sha256": hashlib.sha256(word.encode()).hexdigest(), "namespace": namespace, "rights": rights}


TOKENS = [
    entry("resolver-0001", "resolve"),
    entry("admin-00000001", "admin"),
    entry("both-000000001", "resolve", "admin"),
]


def test_no_route_is_forgotten() -> None:
    """The matrix and the document name the same operations, and the document says which of them ask for a token."""
    assert sorted(OPERATIONS) == sorted(RIGHTS)
    for operation, right in RIGHTS.items():
        method, path = operation.split()
        assert ("security" in document()["paths"][path][method]) == (right not in ("none", "metrics"))


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_matrix(make_bench: Callable[..., Bench], operation: str) -> None:
    """401 without a token that is known, 403 without the right, neither for whoever may; the store is asked by no one else."""
    bench = make_bench(tokens=TOKENS, metrics_token="scrape-0001")
    method, path = operation.split()
    url = path.replace("{key}", "k").replace("{id}", "w")
    for holder, word in HOLDERS.items():
        headers = {} if word is None else {"authorization": f"Bearer {word}"}
        if holder in ALLOWED[RIGHTS[operation]]:
            # What is wrong with the rest of the request is found after the rights: an unknown parameter, or no body.
            known = method == "get" and not path.startswith(("/livez", "/readyz"))
            got = await bench.http.request(method, url, headers=headers, params={"nonsense": "1"} if known else None)
            assert got.status_code not in (401, 403), (holder, got.text)
        else:
            got = await bench.http.request(method, url, headers=headers)
            assert got.status_code == (401 if holder in ("nobody", "stranger") or RIGHTS[operation] == "metrics" else 403), holder
            assert got.headers["content-type"] == "application/problem+json"
            assert not [name for recorder in bench.recorders.values() for name, *_ in recorder.calls]
    if RIGHTS[operation] == "metrics":
        assert (await bench.http.get(url, headers={"authorization": "Bearer scrape-0001"})).status_code == 200


async def test_forward_auth_and_unknown_routes(make_bench: Callable[..., Bench]) -> None:
    """What is not in the document: forward-auth needs resolve, by either header; a route that does not exist tells nothing."""
    bench = make_bench(tokens=TOKENS)
    for name in ("authorization", "x-limpet-token"):
        for holder, word in HOLDERS.items():
            value = f"Bearer {word}" if name == "authorization" else str(word)
            got = await bench.http.get("/v1/forward-auth", headers={} if word is None else {name: value})
            assert got.status_code == (200 if holder in ("resolver", "both") else 403 if holder == "admin" else 401), holder
    assert (await bench.http.get("/v1/nothing")).status_code == 404


async def test_rotation(make_bench: Callable[..., Bench]) -> None:
    """Old and new are valid at once; once the old entry is gone, it is a stranger and the new one goes on."""

    async def status(bench: Bench, word: str) -> int:
        body = {"key": "k", "session_id": "s"}
        return (await bench.http.post("/v1/resolve", json=body, headers={"authorization": f"Bearer {word}"})).status_code

    old, new = entry("the-old-one-01", "resolve"), entry("the-new-one-02", "resolve")
    during = make_bench(tokens=[old, new])
    assert [await status(during, word) for word in ("the-old-one-01", "the-new-one-02")] == [200, 200]
    after = make_bench(tokens=[new])
    assert [await status(after, word) for word in ("the-old-one-01", "the-new-one-02")] == [401, 200]


def test_comparison_tells_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Every token is compared, in constant time, whichever is presented and whether or not it is known."""
    monkeypatch.chdir(tmp_path)
    guard = Guard(Settings.load(tokens=TOKENS))
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def spy(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    for word in ("resolver-0001", "both-000000001", "stranger-0001", "x" * 5000):
        compared.clear()
        try:
            guard.enter({b"authorization": b"Bearer " + word.encode()}, "resolve")
        except Unauthorized:
            assert word not in ("resolver-0001", "both-000000001")
        assert compared == [(64, 64)] * len(TOKENS)
