"""The API from its own document: whatever is sent, no 500, and a 503 only with a code that the document names."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig

from limpet.service.openapi import document
from limpet.service.problems import CODES

MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
OPERATIONS = [(path, method) for path, item in document()["paths"].items() for method in item if path != "/v1/events"]
QUICK, LONG = 5, 400
SCHEMA = schemathesis.openapi.from_dict(document(), config=SchemathesisConfig())


def judge(answer: Any, what: str) -> None:
    """No fault of ours; what went wrong is a problem document with a known code."""
    assert answer.status_code < 500 or answer.status_code == 503, (what, answer.status_code, answer.text[:300])
    kinds = answer.headers.get("content-type")
    kind = kinds[0] if isinstance(kinds, list) else kinds
    if answer.status_code >= 400 and kind == "application/problem+json":
        problem = answer.json()
        assert problem["code"] in CODES, what
        assert problem["code"] != "internal", what
        assert problem["status"] == answer.status_code
    elif answer.status_code >= 400:
        assert "checks" in answer.text, (what, answer.text[:300])


def fuzz(url: str, path: str, method: str, examples: int) -> None:
    """So many requests of one operation, half of them against its schema."""
    operation = document()["paths"][path][method]
    # What has no parts cannot be negated.
    modes = MODES if operation.get("parameters") or "requestBody" in operation else MODES[:1]
    with requests.Session() as session:
        for mode in modes:
            strategy = SCHEMA[path][method.upper()].as_strategy(generation_mode=mode)

            @settings(
                max_examples=examples, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
            )
            @given(strategy)
            def run(case: Any) -> None:
                try:
                    answer = case.call(base_url=url, session=session, timeout=20)
                except (UnicodeEncodeError, ValueError):
                    return  # what its own client cannot send
                judge(answer, f"{method} {path}")

            run()


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_operations(service: Any, path: str, method: str) -> None:
    """Few examples of each, the same in every run."""
    fuzz(service.url, path, method, QUICK)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_operations_at_length(service: Any, path: str, method: str) -> None:
    """Many examples of each."""
    fuzz(service.url, path, method, LONG)


WORDS = st.one_of(
    st.text(max_size=20),
    st.binary(max_size=40).map(lambda data: data.decode("latin-1")),
    st.sampled_from(["\0", "a" * 257, "é" * 129]),
)
NAMES = (
    "x-limpet-namespace", "idempotency-key", "x-limpet-require-durable", "x-limpet-key", "x-limpet-session-id", "x-limpet-kind",
    "x-limpet-new", "x-limpet-lost", "x-session-id", "content-type", "accept", "last-event-id", "authorization", "x-limpet-token",
)  # fmt: skip


@settings(max_examples=150, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(NAMES), WORDS, max_size=4), WORDS, st.sampled_from(["/v1/resolve", "/v1/forward-auth"]))
def test_keys_and_headers(http: httpx.Client, headers: dict[str, str], key: str, path: str) -> None:
    """Any text as key and in any header, NUL and overlong included: taken or refused, never a fault."""
    sent = {name: value.encode("utf-8", "replace") for name, value in headers.items()}
    try:
        answer = http.post(path, json={"key": key, "session_id": "s"}, headers=sent)
    except (httpx.LocalProtocolError, httpx.RemoteProtocolError):
        return  # httpx does not send it, or our server closed on it
    judge(answer, path)
