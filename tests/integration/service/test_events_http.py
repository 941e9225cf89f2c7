"""``GET /v1/events``: what happens, with ids, resumed, filtered; and what a bad reader cannot do."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from limpet.keys import digest
from tests.support.servers import wait_until

Event = tuple[str, str, dict[str, Any]]


@pytest.fixture
def running(serve: Callable[..., Any]) -> Any:
    """A service of this test's own."""
    return serve(partitions=16).wait_up()


@contextlib.contextmanager
def reading(running: Any, **options: Any) -> Iterator[Iterator[Event]]:
    """(id, kind, data) of each event; an id alone has no kind."""
    query = {"kind": options.pop("kind")} if "kind" in options else None
    with (
        httpx.Client(base_url=running.url, timeout=20) as client,
        client.stream("GET", "/v1/events", params=query, **options) as got,
    ):
        assert got.status_code == 200
        assert got.headers["content-type"].startswith("text/event-stream")

        def events() -> Iterator[Event]:
            fields: dict[str, str] = {}
            for line in got.iter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif fields:
                    if "id" in fields:
                        yield fields["id"], fields.get("event", ""), msgspec.json.decode(fields.get("data", "{}"))
                    fields = {}

        yield events()


def test_what_happens(running: Any) -> None:
    """Each kind comes as it happens, in order, and never names a key."""
    with httpx.Client(base_url=running.url, timeout=20) as http:
        http.get("/v1/history/secret-key")  # the feed begins to listen
        wait_until(lambda: _heard(http), 20, "the feed to hear")
        with reading(running) as events:
            at, kind, _ = next(events)
            assert kind == ""
            http.put("/v1/workers/w0", json={"pool": "p", "incarnation": "1", "ttl_ms": 0})
            bound = http.post(
                "/v1/resolve", json={"key": "secret-key", "session_id": "s", "bind": {"worker": "w0", "commit": True}}
            ).json()
            moved = http.post(
                "/v1/bindings/rebind",
                json={"key": "secret-key", "fence": bound["binding"]["fence"], "reason": "busy", "worker": "w1"},
            ).json()
            http.post("/v1/bindings/release", json={"key": "secret-key", "fence": moved["fence"]})
            http.post("/v1/suspend", json={"key": "secret-key"})
            http.delete("/v1/conversations/secret-key")
            http.post("/v1/workers/w0/drain")
            seen: list[Event] = []
            while not seen or not seen[-1][2].get("may_stop"):
                seen.append(next(events))
    kinds = [kind for _, kind, _ in seen]
    assert kinds[:7] == ["worker", "bind", "rebind", "release", "suspend", "forget", "worker"]
    assert set(kinds[7:]) == {"drain"}
    numbers = [int(name.rpartition("-")[2]) for name, _, _ in seen]
    assert numbers == list(range(int(at.rpartition("-")[2]) + 1, numbers[-1] + 1))
    bind = seen[1][2]
    assert (bind["digest"], bind["worker"], bind["epoch"]) == (digest("secret-key"), "w0", bound["epoch"])
    assert seen[0][2]["reason"] == "registered"
    assert seen[-1][2]["done"] == 1.0
    assert "secret-key" not in str(seen)


def test_resuming(running: Any) -> None:
    """With the last id nothing is missed; an unknown one, of another replica say, is answered with a reset."""
    with httpx.Client(base_url=running.url, timeout=20) as http:
        with reading(running, kind="advance") as events:
            at, _, _ = next(events)
            wait_until(lambda: _heard(http), 20, "the feed to hear")
            at, kind, _ = next(events)
            assert kind == "advance"
        made = [http.post("/v1/advance", json={"key": f"k{n}", "reason": "new"}).json()["epoch"] for n in range(5)]
        http.post("/v1/suspend", json={"key": "k0"})
        with reading(running, headers={"last-event-id": at}, kind="advance") as events:
            got: list[int] = []
            while len(got) < 5:
                _, kind, data = next(events)
                assert kind == "advance"
                if data["epoch"] in made:
                    got.append(data["epoch"])
            assert got == made
        for unknown in ("00000000-1", "x", f"{at.partition('-')[0]}-99999999", "٣-٣".encode()):
            with reading(running, headers={"last-event-id": unknown}) as events:
                _, kind, data = next(events)
                assert (kind, data["reason"]) == ("reset", "unknown_id")


def _heard(http: httpx.Client) -> bool:
    http.post("/v1/advance", json={"key": "warm", "reason": "new"})
    return bool(http.get("/v1/history/warm").json()["events"])


def test_what_is_wrong(running: Any) -> None:
    """An unknown kind or parameter is 400; other methods are 405."""
    with httpx.Client(base_url=running.url, timeout=20) as http:
        for query in ("kind=x", "kind=", "kind=bind,x", "key=k", "kind=bind&kind=bind"):
            assert http.get(f"/v1/events?{query}").status_code == 400
        assert http.post("/v1/events").status_code == 405
        assert http.head("/v1/events").status_code == 200


def test_readers_are_bounded(running: Any) -> None:
    """One more than the bound is 503 with a code; when one goes there is room again."""
    address = urlsplit(running.url)
    request = f"GET /v1/events HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack, httpx.Client(base_url=running.url, timeout=20) as http:
        readers = []
        for _ in range(128):
            reader = stack.enter_context(socket.create_connection((address.hostname or "", address.port or 0), 10))
            reader.sendall(request)
            readers.append(reader)
        for reader in readers:
            assert reader.recv(15) == b"HTTP/1.1 200 OK"
        answer = http.get("/v1/events")
        assert (answer.status_code, answer.json()["code"]) == (503, "too_many_readers")
        readers[0].close()
        wait_until(lambda: http.head("/v1/events").status_code == 200, 20, "room for another reader")


def test_a_reader_that_does_not_read(running: Any) -> None:
    """It holds nobody up: events are told to others meanwhile, and calls are served."""
    address = urlsplit(running.url)
    with socket.socket() as deaf, httpx.Client(base_url=running.url, timeout=20) as http:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((address.hostname, address.port))
        deaf.sendall(f"GET /v1/events HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
        with reading(running) as events:
            next(events)
            for part in range(24):
                items = [{"op": "advance", "key": f"{part}-{n}", "reason": "new"} for n in range(256)]
                assert http.post("/v1/batch", json={"requests": items}).status_code == 200
            http.post("/v1/advance", json={"key": "the last one", "reason": "enough"})
            assert any(data.get("reason") == "enough" for _, _, data in events)


def test_the_end_of_the_service_ends_the_streams(running: Any) -> None:
    """A graceful stop does not wait for readers."""
    with reading(running) as events:
        next(events)
        assert running.stop(10) == 0
        assert list(events) == []
