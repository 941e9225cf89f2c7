"""What a public review of such a counter asked for, over HTTP, with two service replicas on one real store that restarts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from limpet.clock import EPOCH_UNIX_S
from limpet.commands import Commands
from limpet.executors import simple
from tests.integration.service.conftest import Running, launch
from tests.support.servers import Server, wait_until

DAY_US = 86_400_000_000


@pytest.fixture
def stack(fresh_server: Callable[..., Server], tmp_path: Path) -> Iterator[Stack]:
    """A store with an append-only file and two service replicas."""
    stack = Stack(fresh_server("--appendonly", "yes", "--appendfsync", "always"), tmp_path)
    yield stack
    stack.stop()


class Stack:
    """Two replicas over one store, all of which may be restarted."""

    def __init__(self, store: Server, base: Path) -> None:
        self.store = store
        self._base = base
        self._runs = 0
        self.replicas: list[Running] = []
        self.start()

    def start(self) -> None:
        for _ in range(2):
            self.replicas.append(launch(self._base / f"run-{self._runs}", self.store.url, {}))
            self._runs += 1
        for replica in self.replicas:
            replica.wait_up()

    def stop(self) -> None:
        while self.replicas:
            self.replicas.pop().stop()

    def post(self, path: str, body: dict[str, Any], *, replica: int = 0, headers: dict[str, str] | None = None) -> dict[str, Any]:
        reply = httpx.post(self.replicas[replica].url + path, json=body, headers=headers or {}, timeout=10)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def age(self, key: str, days: float) -> None:
        """Makes a conversation whose one turn was some days ago, by the scripts' own injected clock."""
        with redis.Redis.from_url(self.store.url) as client:
            seconds, micros = client.time()
            then = (seconds - EPOCH_UNIX_S) * 1_000_000 + micros - int(days * DAY_US)
            commands = Commands()
            simple.run(client, commands.resolve(commands.declared(key), session_id="s", now_us=then))


def test_the_checklist(stack: Stack) -> None:
    """1 -> idle -> 2; 1 -> new -> 2 -> daily -> 3; larger epochs, other scopes; all of it survives a restart of everything."""
    turn = {"key": "idle", "session_id": "resp_1"}
    stack.age("idle", 1)
    inspected = httpx.get(stack.replicas[0].url + "/v1/conversations/idle").json()
    idle = stack.post("/v1/resolve", turn | {"policy": {"idle_s": 3600}})
    assert (inspected["ordinal"], idle["ordinal"]) == (1, 2)
    assert idle["reset"]["reason"] == "idle"
    assert idle["epoch"] > inspected["epoch"]
    assert idle["scope"] != inspected["scope"]

    stack.age("daily", 2)
    new = stack.post("/v1/advance", {"key": "daily", "reason": "new"})
    assert new["ordinal"] == 2
    with redis.Redis.from_url(stack.store.url) as client:  # the turn of the second generation was two days ago
        commands = Commands()
        client.delete(*client.keys("*:conv:*"))
        seconds, micros = client.time()
        then = (seconds - EPOCH_UNIX_S) * 1_000_000 + micros - 2 * DAY_US
        target = commands.declared("daily")
        simple.run(client, commands.resolve(target, session_id="s", now_us=then))
        second = simple.run(client, commands.advance(target, "new", now_us=then + 1000)).result
    third = stack.post(
        "/v1/resolve", {"key": "daily", "session_id": "s", "policy": {"daily": {"at": "04:00", "tz": "Europe/Paris"}}}
    )
    assert (second.ordinal, third["ordinal"]) == (2, 3)
    assert third["reset"]["reason"] == "daily"
    assert third["epoch"] > second.epoch > new["epoch"]
    assert third["scope"] != second.scope

    stack.stop()
    stack.store.restart()
    stack.start()
    after = stack.post("/v1/resolve", {"key": "daily", "session_id": "other"}, replica=1)
    assert (after["ordinal"], after["epoch"], after["scope"]) == (third["ordinal"], third["epoch"], third["scope"])


def test_two_replicas_meet_one_due_reset(stack: Stack) -> None:
    """32 turns at two services at once: one reset, one epoch (G1)."""
    stack.age("due", 3)

    def turn(n: int) -> dict[str, Any]:
        return stack.post("/v1/resolve", {"key": "due", "session_id": f"s{n}", "policy": {"idle_s": 60}}, replica=n % 2)

    with ThreadPoolExecutor(16) as pool:
        turns = list(pool.map(turn, range(32)))
    assert sum(each["reset"] is not None for each in turns) == 1
    assert len({each["epoch"] for each in turns}) == 1


def test_a_lost_reply_means_no_second_advance(stack: Stack) -> None:
    """The same Idempotency-Key at the other replica, with another advance in between: the first result."""
    headers = {"Idempotency-Key": "abc"}
    first = stack.post("/v1/advance", {"key": "k", "reason": "new"}, headers=headers)
    between = stack.post("/v1/advance", {"key": "k", "reason": "new"}, replica=1)
    again = stack.post("/v1/advance", {"key": "k", "reason": "new"}, replica=1, headers=headers)
    assert again == first
    assert httpx.get(stack.replicas[0].url + "/v1/conversations/k").json()["epoch"] == between["epoch"]


def test_exactly_one_bind_across_replicas(stack: Stack) -> None:
    """64 first turns at two services: one bind; it confirms, and all go to its worker; a late confirm is 409."""

    def turn(n: int) -> dict[str, Any]:
        return stack.post("/v1/resolve", {"key": "b", "session_id": f"s{n}", "bind": True}, replica=n % 2)

    with ThreadPoolExecutor(16) as pool:
        turns = list(pool.map(turn, range(64)))
    (bind,) = [each["binding"] for each in turns if each["binding"]["action"] == "bind"]
    assert {each["binding"]["action"] for each in turns} == {"bind", "wait"}
    stack.post("/v1/bindings/confirm", {"key": "b", "fence": bind["fence"], "worker": "w1"}, replica=1)
    followed = stack.post("/v1/resolve", {"key": "b", "session_id": "z", "bind": True})
    assert (followed["binding"]["action"], followed["binding"]["worker"]) == ("continue", "w1")
    stack.post("/v1/advance", {"key": "b", "reason": "new"})
    late = httpx.post(stack.replicas[0].url + "/v1/bindings/confirm", json={"key": "b", "fence": bind["fence"]})
    assert (late.status_code, late.json()["code"]) == (409, "stale_fence")


def test_a_stopped_store_over_http(stack: Stack) -> None:
    """SIGSTOP: resolve is 200 and degraded, the rest 503 with a code, readiness too; then all is well by itself."""
    stack.post("/v1/resolve", {"key": "k", "session_id": "s"})
    os.kill(stack.store.pid, signal.SIGSTOP)
    try:
        turn = stack.post("/v1/resolve", {"key": "k", "session_id": "s"})
        assert turn["degraded"]
        assert turn["epoch"] is None
        new = httpx.post(stack.replicas[1].url + "/v1/advance", json={"key": "k", "reason": "new"})
        assert (new.status_code, new.json()["code"]) == (503, "store_unavailable")
        assert httpx.get(stack.replicas[1].url + "/readyz", timeout=10).status_code == 503
        assert httpx.get(stack.replicas[1].url + "/livez").status_code == 200
    finally:
        os.kill(stack.store.pid, signal.SIGCONT)
    wait_until(lambda: not stack.post("/v1/resolve", {"key": "k", "session_id": "s"})["degraded"], 5, "the service to recover")
    wait_until(lambda: httpx.get(stack.replicas[1].url + "/readyz", timeout=10).status_code == 200, 5, "readiness")
