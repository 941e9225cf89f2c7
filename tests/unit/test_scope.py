"""Scopes: the vectors, injectivity, and what is refused."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet import scope
from limpet.errors import InvalidRequest

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "scope.json").read_text(encoding="utf-8"))
TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=60)
EPOCH = st.integers(1, 2**53 - 1)
NAMESPACE = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,20}", fullmatch=True)


@pytest.mark.parametrize("case", VECTORS["declared"], ids=lambda c: f"{c['key']}:{c['epoch']}:{c['namespace']}")
def test_declared_vectors(case: dict[str, Any]) -> None:
    """Every published vector of a declared scope holds."""
    got = scope.declared(case["key"], case["epoch"], namespace=case["namespace"], secret=case["secret"])
    assert got == case["scope"]


@pytest.mark.parametrize("case", VECTORS["physical"], ids=lambda c: f"{c['session_id']}:{c['namespace']}")
def test_physical_vectors(case: dict[str, Any]) -> None:
    """Every published vector of a physical scope holds."""
    assert scope.physical(case["session_id"], namespace=case["namespace"], secret=case["secret"]) == case["scope"]


@given(TEXT, EPOCH, NAMESPACE)
def test_the_formula_is_the_designs(key: str, epoch: int, namespace: str) -> None:
    """The scope is sha256 (HMAC under a secret) of the text that the design names, cut to 24 digits."""
    prefix = "" if namespace == "default" else f"{namespace}\0"
    text = f"{prefix}{key}:{epoch}".encode()
    assert scope.declared(key, epoch, namespace) == "gwk_" + hashlib.sha256(text).hexdigest()[:24]
    assert scope.declared(key, epoch, namespace, "s") == "gwk_" + hmac.new(b"s", text, "sha256").hexdigest()[:24]


@given(TEXT, EPOCH, NAMESPACE, TEXT, EPOCH, NAMESPACE)
def test_injective(k1: str, e1: int, n1: str, k2: str, e2: int, n2: str) -> None:
    """Two different (namespace, key, epoch) never share a scope."""
    same = (k1, e1, n1) == (k2, e2, n2)
    assert (scope.declared(k1, e1, n1) == scope.declared(k2, e2, n2)) == same


@given(TEXT, EPOCH)
def test_namespaces_secrets_and_kinds_are_apart(key: str, epoch: int) -> None:
    """A tenant, a secret and the kind of scope each change the token; a secret as text or as bytes is one secret."""
    tokens = {
        scope.declared(key, epoch),
        scope.declared(key, epoch, "other"),
        scope.declared(key, epoch, secret="x"),
        scope.declared(key, epoch, "other", "x"),
        scope.physical(f"{key}:{epoch}"),
    }
    assert len(tokens) == 5
    assert scope.declared(key, epoch, secret="ключ") == scope.declared(key, epoch, secret="ключ".encode())


def test_the_edges_of_a_key_are_accepted() -> None:
    """256 bytes, the largest epoch, colons and non-ASCII text are ordinary."""
    for key in ("a", "k" * 256, "é" * 128, ":", "a:1:2", "\u200b"):
        assert scope.declared(key, 2**53 - 1).startswith("gwk_")
        assert len(scope.physical(key)) == 28


@pytest.mark.parametrize("bad", ["", "k" * 257, "é" * 129, "a\0b", "a\nb", "a\x7f", "a\x85", "\ud800", None, 5, b"a"])
def test_a_bad_key_is_an_error(bad: Any) -> None:
    """An invalid key or session id is an error, never a silent fallback."""
    with pytest.raises(InvalidRequest):
        scope.declared(bad, 1)
    with pytest.raises(InvalidRequest):
        scope.physical(bad)


@pytest.mark.parametrize("bad", [0, -1, 2**53, True, 1.0, "1", None])
def test_a_bad_epoch_is_an_error(bad: Any) -> None:
    """An epoch is an integer from 1 to 2^53 - 1."""
    with pytest.raises(InvalidRequest):
        scope.declared("k", bad)


@pytest.mark.parametrize("bad", ["", "Prod", "a b", "a\0", "-a", "a" * 64, None])
def test_a_bad_namespace_is_an_error(bad: Any) -> None:
    """A namespace that could hold the separating NUL, or anything else outside its alphabet, is refused."""
    with pytest.raises(InvalidRequest):
        scope.declared("k", 1, bad)


@pytest.mark.parametrize("bad", ["", b"", 5])
def test_an_empty_secret_is_refused(bad: Any) -> None:
    """An empty secret protects nothing, so it is an error and not "no secret"."""
    with pytest.raises(InvalidRequest):
        scope.physical("s", secret=bad)
