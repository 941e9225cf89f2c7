"""Tokens, rights and namespaces (design section 7)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from limpet.errors import InvalidRequest
from limpet.service.auth import Guard
from limpet.service.problems import Forbidden, Unauthorized
from limpet.settings import Settings


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No .env."""
    monkeypatch.chdir(tmp_path)


def token(word: str, **more: Any) -> dict[str, Any]:
    """A configured token."""
    return {"sha256": hashlib.sha256(word.encode()).hexdigest(), **more}


TOKENS = [
    token("one", namespace="prod"),
    token("two", namespace="prod", rights=["resolve", "admin"]),
    token("three", namespace="test", rights=["admin"]),
]


def bearer(word: str, **more: bytes) -> dict[bytes, bytes]:
    """Headers of a caller."""
    return {b"authorization": b"Bearer " + word.encode(), **{k.replace("_", "-").encode(): v for k, v in more.items()}}


def test_tokens_pick_the_namespace() -> None:
    """Two tokens of one namespace are valid at once (rotation), each with its own rights."""
    guard = Guard(Settings.load(tokens=TOKENS))
    assert guard.namespaces == ("prod", "test")
    assert guard.enter(bearer("one"), "resolve") == "prod"
    assert guard.enter(bearer("two"), "admin") == "prod"
    assert guard.enter(bearer("three"), "admin") == "test"
    assert guard.enter(bearer("one", x_limpet_namespace=b"prod"), "resolve") == "prod"
    assert guard.enter({b"authorization": b"bearer   one "}, "resolve") == "prod"


@pytest.mark.parametrize(
    "headers",
    [{}, {b"authorization": b""}, {b"authorization": b"Bearer"}, {b"authorization": b"Basic b25l"},
     {b"authorization": b"Bearer four"}, {b"authorization": b"Bearer one two"}, {b"authorization": b"Bearer \xff"},
     {b"authorization": b"one"}, {b"x-limpet-namespace": b"prod"}, {b"x-limpet-token": b"one"}],
)  # fmt: skip
def test_strangers_are_unauthorized(headers: dict[bytes, bytes]) -> None:
    """No token, another scheme, a wrong token: 401, with the challenge that HTTP asks for."""
    with pytest.raises(Unauthorized) as caught:
        Guard(Settings.load(tokens=TOKENS)).enter(headers, "resolve")
    assert caught.value.status == 401
    assert dict(caught.value.headers)[b"www-authenticate"].startswith(b"Bearer")


def test_hash_is_not_a_token() -> None:
    """Who has read the configuration cannot use what is in it."""
    with pytest.raises(Unauthorized):
        Guard(Settings.load(tokens=TOKENS)).enter(bearer(TOKENS[0]["sha256"]), "resolve")


def test_rights_and_other_namespaces_are_forbidden() -> None:
    """403 for a missing right and for another namespace than the token's, whether or not that one exists."""
    guard = Guard(Settings.load(tokens=TOKENS))
    with pytest.raises(Forbidden, match="admin"):
        guard.enter(bearer("one"), "admin")
    with pytest.raises(Forbidden, match="resolve"):
        guard.enter(bearer("three"), "resolve")
    for other in (b"test", b"nowhere"):
        with pytest.raises(Forbidden, match="another namespace"):
            guard.enter(bearer("one", x_limpet_namespace=other), "resolve")


def test_without_tokens_the_header_picks() -> None:
    """The header, else the configured default; what is no namespace is refused."""
    guard = Guard(Settings.load(namespace="home"))
    assert guard.open
    assert guard.enter({}, "admin") == "home"
    assert guard.enter({b"x-limpet-namespace": b"a-b_9"}, "resolve") == "a-b_9"
    for bad in (b"", b"A", b"-a", b"a" * 64, b"a:b", b"\xff", b"a b"):
        with pytest.raises(InvalidRequest):
            guard.enter({b"x-limpet-namespace": bad}, "resolve")


def test_metrics_token() -> None:
    """Scrapes are open unless LIMPET_METRICS_TOKEN is set; then only its bearer sees them."""
    assert Guard(Settings.load(tokens=TOKENS)).may_scrape({})
    guard = Guard(Settings.load(metrics_token="scrape77"))
    assert guard.may_scrape(bearer("scrape77"))
    assert not guard.may_scrape({})
    assert not guard.may_scrape(bearer("one"))
