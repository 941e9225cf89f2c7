"""Every metric of design, section 10, counted by a real service over a real store and read from ``/metrics``."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import httpx
import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from tests.support.servers import Server, wait_until

SECOND_US = 1_000_000
Scraped = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Client:
    """Asks a service, and reads what it has counted."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=20)

    def post(self, path: str, status: int = 200, **body: Any) -> Any:
        """One call; the answer's JSON."""
        answer = self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def resolve(self, key: str, **body: Any) -> Any:
        """One turn."""
        return self.post("/v1/resolve", key=key, session_id="s", **body)

    def scrape(self) -> Scraped:
        """Sample name and labels -> value."""
        families = text_string_to_metric_families(self.http.get("/metrics").raise_for_status().text)
        return {(sample.name, frozenset(sample.labels.items())): sample.value for family in families for sample in family.samples}

    def counted(self, name: str, **labels: str) -> float:
        """One sample."""
        return self.scrape().get((name, frozenset(labels.items())), 0.0)


@pytest.fixture
def store(fresh_server: Callable[..., Server]) -> Server:
    """A store that the test may hold up."""
    return fresh_server()


@pytest.fixture
def client(store: Server, serve: Callable[..., Any]) -> Iterator[Client]:
    """A service whose decisions wait for a replica that is not there."""
    running = serve(redis_url=store.url, durability="replica", claim_ttl_ms=200, memo_ttl_ms=60_000, touch_granularity_ms=0)
    client = Client(running.wait_up().url)
    with client.http:
        yield client


def put_forward(store: Server, seconds: float) -> None:
    """The last activity of every record becomes that much later, as if the store's clock had been set back since."""
    with redis.Redis.from_url(store.url) as direct:
        for name in direct.scan_iter("limpet:*:conv:*"):
            raw = direct.get(name)
            (last,) = struct.unpack(">Q", raw[3:11])
            direct.set(name, raw[:3] + struct.pack(">Q", last + int(seconds * SECOND_US)) + raw[11:], keepttl=True)


def test_every_metric_counts_what_it_says(client: Client, store: Server) -> None:
    """One of each event, one in each metric."""
    assert client.resolve("a")["created"]
    assert not client.resolve("a")["created"]  # from the memo
    epoch = client.post("/v1/advance", key="a", reason="new")["epoch"]
    client.resolve("a", seen_epoch=epoch + SECOND_US)  # it remembers an advance that the store has lost

    fence = client.resolve("b", bind={"worker": "w1"})["binding"]["fence"]
    client.post("/v1/bindings/confirm", key="b", fence=fence)
    client.post("/v1/bindings/confirm", status=409, key="b", fence=fence - 1)
    client.resolve("c", bind={"worker": "w2"})
    assert client.resolve("c", bind={"wait_ms": 5000})["binding"]["action"] == "bind"  # the claimer did not come back
    client.http.put("/v1/workers/w1", json={"pool": "p", "address": "http://w1", "capacity": 1, "incarnation": "i"})

    put_forward(store, 60)
    client.post("/v1/suspend", key="a")
    with redis.Redis.from_url(store.url) as direct:
        direct.script_flush()
    client.post("/v1/advance", key="d", reason="a-hosts-own")

    found = client.scrape()

    def value(name: str, **labels: str) -> float:
        return found.get((name, frozenset(labels.items())), 0.0)

    def turns(outcome: str) -> float:
        return value("limpet_resolutions_total", namespace="default", source="declared", outcome=outcome)

    assert (turns("created"), turns("continued"), turns("reset")) == (3, 1, 1)
    assert value("limpet_resets_total", reason="new") == 1
    assert value("limpet_resets_total", reason="rollback") == value("limpet_rollbacks_total") == 1
    assert value("limpet_resets_total", reason="other") == 1
    assert value("limpet_clock_behind_total") == 1
    assert value("limpet_binds_total", outcome="bind") == 3
    assert value("limpet_binds_total", outcome="confirmed") == 1
    assert value("limpet_claim_timeouts_total") == 1
    assert value("limpet_fence_rejections_total", operation="confirm") == 1
    assert value("limpet_bindings", worker="w1") == 1
    assert value("limpet_workers", state="live") == 1
    assert value("limpet_store_seconds_count", command="conversation_advance") == 2
    assert 0 < value("limpet_store_seconds_sum", command="conversation_advance") < 5
    assert value("limpet_store_errors_total", kind="noscript") >= 1
    assert value("limpet_undurable_total") >= 5  # each of the decisions above
    assert value("limpet_memo_total", outcome="hit") == 1
    assert value("limpet_memo_total", outcome="miss") >= 3
    assert value("limpet_batch_size_count") > 0
    assert value("limpet_build_info", version=version("limpet")) == 1
    assert value("limpet_ready") == 1
    assert value("limpet_health", check="eviction") == 0
    assert value("limpet_degraded_total") == 0


def test_a_store_that_hangs_shows(client: Client, store: Server) -> None:
    """Degraded turns are counted, and the next looks at the store say that it is not ready; the scrape itself still answers."""
    client.resolve("a")
    assert client.counted("limpet_ready") == 1
    store.pause()
    try:
        assert client.resolve("b")["degraded"]
        assert client.counted("limpet_degraded_total") == 1
        assert client.counted("limpet_resolutions_total", namespace="default", source="physical", outcome="degraded") == 1
        assert client.http.get("/readyz").status_code == 503
        assert client.counted("limpet_ready") == 0
        assert client.counted("limpet_health", check="store") == 2
    finally:
        store.resume()


def test_an_eviction_policy_that_loses_clocks_shows(client: Client, store: Server) -> None:
    """``limpet_health{check="eviction"}`` says 2, and nothing else has to be asked for it."""
    store.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    wait_until(lambda: client.counted("limpet_health", check="eviction") == 2, 10, "the failed check in the metrics")
    assert client.counted("limpet_ready") == 0
