"""Upstreams: names without credentials, capacities, addresses of workers, and placement where nobody knows the loads."""

from __future__ import annotations

from collections import Counter

import pytest

from limpet.errors import InvalidRequest
from limpet.gateway.upstreams import Upstreams, of_worker, parse_upstream
from limpet.keys import digest
from limpet.placement import choose


def make(count: int) -> Upstreams:
    """So many upstreams."""
    return Upstreams(parse_upstream(f"http://w{n}:8000") for n in range(count))


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
    "text",
    [
        "h:1",
        "ftp://h",
        "http://",
        "http://h?x=1",
        "http://h#x",
        "http://h:99999",
        "http://a b",
        "http://h\n",
        "http://h;x=1",
        "http://h;x=1;capacity=2",
    ],
)
def test_bad_urls(text: str) -> None:
    """What is no such URL is refused, and its text (maybe a password) is not repeated."""
    with pytest.raises(InvalidRequest) as caught:
        parse_upstream(text)
    assert text not in str(caught.value) or text == "http://"


@pytest.mark.parametrize(
    ("text", "capacity"),
    [
        ("http://h", 1.0),
        ("http://h;capacity=4", 4.0),
        ("https://u:p;w@h/v1;capacity=0.5", None),
        ("http://h/v1/;capacity=0.5", 0.5),
    ],
)
def test_capacities(text: str, capacity: float | None) -> None:
    """A capacity follows the URL; a semicolon in the URL itself is to be escaped."""
    if capacity is None:
        with pytest.raises(InvalidRequest):
            parse_upstream(text)
    else:
        found = parse_upstream(text)
        assert (found.capacity, ";" in found.name, found.worker) == (capacity, False, found.name)


@pytest.mark.parametrize("value", ["", "0", "-1", "nan", "inf", "1e9", "1000001", "1_0", "9" * 30, " 1"])
def test_bad_capacities(value: str) -> None:
    """As the registry takes them: above 0, up to a million."""
    with pytest.raises(InvalidRequest):
        parse_upstream(f"http://h;capacity={value}")


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("10.0.0.1:8000", "http://10.0.0.1:8000/x"),
        ("http://gpu-1:8000/v1", "http://gpu-1:8000/v1/x"),
        ("[::1]:80", "http://[::1]:80/x"),
        ("", None),
        ("unix:///x", None),
        ("a b", None),
    ],
)
def test_addresses_of_workers(address: str, url: str | None) -> None:
    """A registered address is a URL or host:port; the worker keeps its id, which is what is bound."""
    found = of_worker("gpu-1", address, 2.0)
    assert (found.url("/x") if found is not None else None) == url
    assert found is None or (found.worker, found.capacity) == ("gpu-1", 2.0)


def test_rendezvous_is_even_and_stable() -> None:
    """Keys spread evenly; taking one upstream out moves only its keys."""
    five = make(5)
    keys = [f"key-{n}" for n in range(3000)]
    before = {key: five.choose(key) for key in keys}
    counts = Counter(each.name for each in before.values() if each)
    assert len(counts) == 5
    assert max(counts.values()) < 1.2 * 600
    gone = five.all[2]
    after = {key: five.choose(key, [gone]) for key in keys}
    assert all(after[key] is before[key] for key in keys if before[key] is not gone)
    assert make(1).choose("k", make(1).all) is not None
    assert five.choose("k", five.all) is None


def test_it_is_the_placement_of_the_library() -> None:
    """Where the loads are unknown, the library would propose the same one: there is one placement, not two."""
    ups = Upstreams([parse_upstream("http://a;capacity=3"), parse_upstream("http://b")])
    for n in range(50):
        found = ups.choose(f"k{n}")
        assert found is not None
        assert found.name == choose(digest(f"k{n}"), {"http://a": 3.0, "http://b": 1.0}, {})
