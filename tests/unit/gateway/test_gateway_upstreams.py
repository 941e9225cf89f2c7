"""Upstreams: names without credentials, rendezvous hashing, and who rests."""

from __future__ import annotations

from collections import Counter

import pytest

from limpet.errors import InvalidRequest
from limpet.gateway.upstreams import LONGEST_REST_S, Upstreams, parse_upstream


class Time:
    """A clock that is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def make(count: int, time: Time | None = None) -> Upstreams:
    """So many upstreams."""
    return Upstreams((parse_upstream(f"http://w{n}:8000") for n in range(count)), time or Time())


@pytest.mark.parametrize(
    ("text", "name", "url"),
    [
        ("http://h:1", "http://h:1", "http://h:1/v1/x?a=b"),
        ("https://u:p@h/api/v1/", "https://h/api/v1", "https://h/api/v1/x?a=b"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1", "http://[::1]:8000/v1/x?a=b"),
        ("http://h/openai", "http://h/openai", "http://h/openai/v1/x?a=b"),
    ],
)
def test_names_and_urls(text: str, name: str, url: str) -> None:
    """The name holds no credentials; /v1 comes once."""
    upstream = parse_upstream(text)
    assert (upstream.name, upstream.url("/v1/x?a=b")) == (name, url)


@pytest.mark.parametrize(
    "text", ["h:1", "ftp://h", "http://", "http://h?x=1", "http://h#x", "http://h:99999", "http://a b", "http://h\n"]
)
def test_bad_urls(text: str) -> None:
    """What is no such URL is refused, and its text (maybe a password) is not repeated."""
    with pytest.raises(InvalidRequest) as caught:
        parse_upstream(text)
    assert text not in str(caught.value) or text == "http://"


def test_rendezvous_is_even_and_stable() -> None:
    """Keys spread evenly; taking one upstream out moves only its keys."""
    five = make(5)
    keys = [f"key-{n}" for n in range(5000)]
    before = {key: five.choose(key) for key in keys}
    counts = Counter(each.name for each in before.values() if each)
    assert len(counts) == 5
    assert max(counts.values()) < 1.15 * 1000
    gone = five.all[2]
    after = {key: five.choose(key, [gone]) for key in keys}
    assert all(after[key] is before[key] for key in keys if before[key] is not gone)
    assert make(1).choose("k", make(1).all) is not None
    assert five.choose("k", five.all) is None


def test_resting() -> None:
    """Whoever cannot be reached rests, longer each time, is taken when nobody else is left, and is back after a success."""
    time = Time()
    ups = make(2, time)
    a, b = ups.all
    rests = []
    for _ in range(8):
        ups.failed(a)
        rests.append(a.resting_until - time.now)
        assert {ups.choose(f"k{n}") for n in range(20)} == {b}
        time.now = a.resting_until
        assert ups.is_up(a)
    assert rests == sorted(rests)
    assert rests[-1] == LONGEST_REST_S
    ups.failed(a)
    ups.failed(a)  # many at once count once
    ups.failed(b)
    assert ups.choose("k") in (a, b)
    ups.worked(a)
    assert {ups.choose(f"k{n}") for n in range(20)} == {a}
