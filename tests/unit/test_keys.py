"""Key names: one slot per script, nothing of the raw text in them."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from limpet.keys import Keyspace, digest, keyspace

TEXTS = st.text(min_size=1, max_size=60)
SPACES = st.builds(Keyspace, st.from_regex(r"[a-z0-9][a-z0-9_-]{0,10}", fullmatch=True), st.integers(1, 300))


@given(TEXTS.filter(lambda text: text.isprintable()))
def test_digest(text: str) -> None:
    """sha256 of the UTF-8, its first 32 hex digits (design, section 4)."""
    assert digest(text) == hashlib.sha256(text.encode()).hexdigest()[:32]


def test_the_names_of_the_design() -> None:
    """The table of section 4, letter by letter."""
    space = Keyspace("prod", 16)
    dig = "0000001f" + "0" * 24
    assert space.partition(dig) == 15
    assert space.record("conv", dig) == f"limpet:{{prod:15}}:conv:{dig}"
    assert space.record("sess", dig) == f"limpet:{{prod:15}}:sess:{dig}"
    assert space.clock(15) == "limpet:{prod:15}:clock"
    assert space.bound(15) == "limpet:{prod:15}:bound"
    assert space.resp(dig) == f"limpet:{{prod:15}}:resp:{dig}"
    assert (space.config, space.workers, space.events) == (
        "limpet:{prod}:config",
        "limpet:{prod}:workers",
        "limpet:{prod}:events",
    )


@given(SPACES, TEXTS.filter(lambda text: text.isprintable()))
def test_one_script_one_slot(space: Keyspace, text: str) -> None:
    """All that a script touches lies in one Redis Cluster slot."""
    dig = digest(text)
    partition = space.partition(dig)
    assert 0 <= partition < space.partitions
    names = [space.record("conv", dig), space.record("sess", dig), space.clock(partition), space.bound(partition)]
    assert len({key_slot(name.encode()) for name in names}) == 1
    assert len(set(names)) == 4


@given(st.text(st.characters(categories=["L"]), min_size=5, max_size=40))
def test_no_raw_text_in_a_name(text: str) -> None:
    """Only the digest: it may be somebody's phone number."""
    space = Keyspace("n", 4)
    for name in (space.record("conv", digest(text)), space.resp(digest(text))):
        assert text not in name
        assert re.fullmatch(r"limpet:\{n:\d\}:(conv|resp):[0-9a-f]{32}", name)


@given(st.lists(TEXTS.filter(lambda text: text.isprintable()), min_size=2, max_size=10, unique=True))
def test_two_texts_two_names(texts: list[str]) -> None:
    """And two domains share none."""
    space = Keyspace("n", 4)
    names = [space.record(domain, digest(text)) for text in texts for domain in ("conv", "sess")]  # type: ignore[arg-type]
    assert len(set(names)) == 2 * len(texts)


def test_namespaces_share_nothing() -> None:
    """Neither names nor, by chance, a prefix that one could read the other's by."""
    a, b = Keyspace("a", 4), Keyspace("a1", 4)
    assert not {a.clock(p) for p in range(4)} & {b.clock(p) for p in range(4)}
    assert a.config != b.config


def test_partitions_are_used_evenly() -> None:
    """A thousand keys over 16 partitions: none is empty, none has three times its share."""
    space = Keyspace("n", 16)
    counts = [0] * 16
    for number in range(1000):
        counts[space.partition(digest(f"key-{number}"))] += 1
    assert min(counts) > 20
    assert max(counts) < 190


def test_a_shared_keyspace() -> None:
    """The same object for the same namespace and number; it is frozen."""
    assert keyspace("x", 8) is keyspace("x", 8)
    assert keyspace("x", 8) != keyspace("x", 9)
    with pytest.raises(AttributeError):
        keyspace("x", 8).namespace = "y"  # type: ignore[misc]
