"""TESTS_SERVERS and TESTS_SERVER: what they add and choose, and what they refuse."""

from __future__ import annotations

import sys

import pytest

from tests.support.servers import chosen, kinds


def test_more_servers() -> None:
    """Those named come beside what is there anyway; a trailing comma does no harm."""
    usual = kinds("")
    assert "valkey" in usual
    assert kinds(f"older={sys.executable},") == usual | {"older": sys.executable}
    assert chosen("older", kinds(f"older={sys.executable}")) == sys.executable


@pytest.mark.parametrize(
    ("named", "word"),
    [
        (sys.executable, "has no name"),
        (f"a-b={sys.executable}", "has no name"),
        (f"valkey={sys.executable}", "a second time"),
        ("older=/no/such/server", "'/no/such/server', called older, is no program"),
        ("older", "'', called older, is no program"),
    ],
)
def test_a_mistake_is_named(named: str, word: str) -> None:
    """A server that was asked for and is not there must not look as if the tests had run on it."""
    with pytest.raises(AssertionError, match=word):
        kinds(named)


def test_an_unknown_default_is_named() -> None:
    """Nor may the default quietly be another."""
    with pytest.raises(AssertionError, match="TESTS_SERVER=newer is none of valkey"):
        chosen("newer", kinds(""))
