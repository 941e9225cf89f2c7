"""The short way of the hottest request (limpet.service.shortcut) answers as the ordinary way does, whatever a client does."""

from __future__ import annotations

import contextlib
import hashlib
import json
import select
import socket
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import redis

from tests.support.servers import Server

PLAIN = {"content-type": "application/json"}


class Client:
    """One connection, byte for byte."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._socket = socket.create_connection((host, int(port)), 10)
        self._data = b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer: status, headers, body."""
        while (end := self._data.find(b"\r\n\r\n")) < 0:
            self._more()
        lines = self._data[:end].decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        whole = end + 4 + int(headers.get("content-length", "0"))
        while len(self._data) < whole:
            self._more()
        body, self._data = self._data[end + 4 : whole], self._data[whole:]
        return int(lines[0].split()[1]), headers, body

    def _more(self) -> None:
        piece = self._socket.recv(65536)
        if not piece:
            raise ConnectionError("closed")
        self._data += piece

    def ask(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        self.send(request)
        return self.read()

    def silent(self) -> bool:
        """Whether nothing comes for a moment."""
        return not select.select([self._socket], [], [], 0.05)[0]

    def close(self) -> None:
        self._socket.close()


def request(body: Any, headers: dict[str, str] = PLAIN, path: str = "/v1/resolve") -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n"
    return (head + "".join(f"{name}: {value}\r\n" for name, value in headers.items())).encode() + b"\r\n" + raw


@contextlib.contextmanager
def connected(url: str) -> Iterator[Client]:
    client = Client(url)
    try:
        yield client
    finally:
        client.close()


def warm(client: Client, turn: Any, headers: dict[str, str] = PLAIN) -> tuple[int, dict[str, str], bytes]:
    """Until head and conversation are known: the answer of the third time, which went the short way."""
    answers = [client.ask(request(turn, headers)) for _ in range(3)]
    assert answers[0][0] == 200, answers[0]
    return answers[-1]


def alike(one: bytes, other: bytes) -> None:
    """The same but for the time that has passed."""
    first, second = json.loads(one), json.loads(other)
    for each in (first, second):
        each["created"] = None
        if each["binding"] is not None:
            assert 0 < each["binding"].pop("expires_in_ms") <= 300_000
    assert first == second


TURNS = [
    pytest.param({"key": "a", "session_id": "s"}, id="plain"),
    pytest.param({"key": "b", "session_id": "s", "bind": {"worker": "w", "commit": True}}, id="bound"),
    pytest.param({"key": "c", "session_id": "s", "policy": {"idle_s": 3600}}, id="idle"),
    pytest.param({"key": "d", "session_id": "s", "policy": {"daily": {"at": "04:00", "tz": "Europe/Paris"}}}, id="daily"),
    pytest.param({"key": "e", "session_id": "s", "exempt": True}, id="exempt"),
    pytest.param({"key": "f" * 256, "session_id": "ß" * 64}, id="long"),
]


@pytest.mark.parametrize("turn", TURNS)
def test_the_same_answer(service: Any, turn: dict[str, Any]) -> None:
    """Byte for byte the ordinary way's, in JSON and in MessagePack. A header unknown to the short way forces the other."""
    turn = turn | {"key": f"{turn['key'][:200]}-{hash(str(turn))}"[:256]}
    with connected(service.url) as client:
        status, headers, short = warm(client, turn)
        ordinary = client.ask(request(turn, PLAIN | {"x-anything": "1"}))
        assert (status, headers["content-type"]) == (ordinary[0], ordinary[1]["content-type"]) == (200, "application/json")
        alike(short, ordinary[2])
        assert set(headers) == set(ordinary[1])
        packed = PLAIN | {"accept": "application/msgpack"}
        status, headers, short = warm(client, turn, packed)
        assert headers["content-type"] == "application/msgpack"
        alike(json.dumps(msgspec.msgpack.decode(short)).encode(), ordinary[2])


def without(answer: bytes, *names: str) -> dict[str, Any]:
    """What two first turns of two conversations have in common."""
    told: dict[str, Any] = json.loads(answer)
    for name in names:
        del told[name]
    if told["binding"] is not None:
        for name in ("fence", "expires_in_ms", "holder"):
            assert told["binding"].pop(name)
    return told


@pytest.mark.parametrize("durability", ["none", "replica"])
def test_first_turns(serve: Callable[..., Any], durability: str) -> None:
    """A conversation's very first turn on a known head is created, bound and told as durable just as on the ordinary way."""
    service = serve(durability=durability).wait_up()
    with connected(service.url) as client:
        for number, turn in enumerate(each.values[0] for each in TURNS):
            width = len(turn["key"])
            first, second = (turn | {"key": f"{name}{number}".ljust(width, "-")} for name in ("x", "y"))
            warm(client, turn | {"key": f"w{number}".ljust(width, "-")})
            status, _, short = client.ask(request(first))
            ordinary = client.ask(request(second, PLAIN | {"x-anything": "1"}))
            assert (status, ordinary[0]) == (200, 200)
            varying = ("key", "epoch", "epoch_started_ms", "scope")
            assert without(short, *varying) == without(ordinary[2], *varying)
            assert json.loads(short)["created"] is True
            assert json.loads(short)["durable"] is (False if durability == "replica" else None)  # there is no replica


def test_what_is_decided_between(service: Any) -> None:
    """An advance, a release and a forget are seen by the very next short turn; a claim and its confirm too."""
    key = "short-decided"
    turn = {"key": key, "session_id": "s", "bind": True}
    with connected(service.url) as client, connected(service.url) as other:
        claim = json.loads(client.ask(request(turn))[2])["binding"]
        assert claim["action"] == "bind"
        assert [json.loads(warm(client, turn)[2])["binding"]["action"] for _ in range(2)] == ["wait", "wait"]
        other.ask(request({"key": key, "fence": claim["fence"], "worker": "w"}, path="/v1/bindings/confirm"))
        first = json.loads(client.ask(request(turn))[2])
        assert (first["binding"]["action"], first["binding"]["worker"]) == ("continue", "w")
        advanced = json.loads(other.ask(request({"key": key, "reason": "new"}, path="/v1/advance"))[2])
        second = json.loads(client.ask(request(turn))[2])
        assert second["epoch"] == advanced["epoch"] > first["epoch"]
        assert second["binding"]["action"] == "bind"


BAD = [
    pytest.param(b"{", 400, "malformed_body", id="no JSON"),
    pytest.param(b"[]", 400, None, id="no object"),
    pytest.param(b'{"key":"","session_id":"s"}', 400, None, id="empty key"),
    pytest.param(b'{"key":"a\\u0000b","session_id":"s"}', 400, "invalid_request", id="control character"),
    pytest.param(b'{"key":"%b","session_id":"s"}' % (b"k" * 257), 400, "invalid_request", id="long key"),
    pytest.param(b'{"key":"\\ud800","session_id":"s"}', 400, None, id="lone surrogate"),
    pytest.param(b'{"key":"k"}', 400, None, id="no session"),
    pytest.param(b'{"key":"k","session_id":"s","zz":1}', 400, None, id="unknown field"),
    pytest.param(b'{"key":"k","session_id":"s","bind":{"ttl_ms":-1}}', 400, None, id="bad bind"),
    pytest.param(b'{"key":"k","session_id":"s","seen_epoch":9007199254740991}', 400, "implausible_epoch", id="implausible"),
]


@pytest.mark.parametrize(("body", "status", "code"), BAD)
def test_what_is_wrong_is_refused_alike(service: Any, body: bytes, status: int, code: str | None) -> None:
    """Under a head that is known: the ordinary way's refusal, and the connection goes on."""
    good = b'{"key":"ok","session_id":"s"}'.ljust(len(body))
    with connected(service.url) as client:
        padded = body.ljust(len(good))
        for _ in range(3):
            assert client.ask(request(good.ljust(len(padded))))[0] == 200
        got, headers, told = client.ask(request(padded))
        assert (got, headers["content-type"]) == (status, "application/problem+json")
        assert code is None or json.loads(told)["code"] == code
        assert client.ask(request(good.ljust(len(padded))))[0] == 200


def test_pieces_and_pipelines(service: Any) -> None:
    """A head in pieces, two requests in one piece, and requests sent before the answer: answered all, and in order."""
    turns = [{"key": f"piece-{number}", "session_id": "s"} for number in range(3)]
    with connected(service.url) as client:
        for turn in turns:
            warm(client, turn)
        one = request(turns[0])
        for cut in (1, 10, len(b"POST /v1/resolve HTTP/1.1\r\n"), one.index(b"\r\n\r\n") + 2, len(one) - 1):
            client.send(one[:cut])
            assert client.silent()
            client.send(one[cut:])
            assert json.loads(client.read()[2])["key"] == "piece-0"
        client.send(b"".join(request(turn) for turn in turns))
        assert [json.loads(client.read()[2])["key"] for _ in turns] == ["piece-0", "piece-1", "piece-2"]
        for turn in turns * 20:
            client.send(request(turn))
        assert [json.loads(client.read()[2])["key"] for _ in turns * 20] == [turn["key"] for turn in turns] * 20
        client.send(request(turns[0]) + request({"requests": []}, path="/v1/batch") + request(turns[1]))
        assert [client.read()[0] for _ in range(3)] == [200, 200, 200]


def test_a_client_that_sends_without_reading(service: Any) -> None:
    """What waits behind an answer is bounded, and none is lost once the client reads."""
    turn = {"key": "flood", "session_id": "s"}
    with connected(service.url) as client:
        warm(client, turn)
        client.send(request(turn) * 2000)
        assert {client.read()[0] for _ in range(2000)} == {200}


def test_tokens_and_namespaces(serve: Callable[..., Any]) -> None:
    """A known head with another token is another head; a token's namespace is its own."""
    tokens = [
        {"sha256": hashlib.sha256(word.encode()).hexdigest(), "namespace": word.split("-")[0], "rights": ["resolve"]}
        for word in ("one-token-of-length", "two-token-of-length")
    ]
    url = serve(tokens=json.dumps(tokens)).wait_up().url
    turn = {"key": "k", "session_id": "s"}

    def bearer(word: str) -> dict[str, str]:
        return PLAIN | {"authorization": f"Bearer {word}"}

    with connected(url) as client:
        one = json.loads(warm(client, turn, bearer("one-token-of-length"))[2])
        two = json.loads(warm(client, turn, bearer("two-token-of-length"))[2])
        assert one["scope"] != two["scope"]
        assert json.loads(client.ask(request(turn, bearer("one-token-of-length")))[2])["scope"] == one["scope"]
        for _ in range(4):
            assert client.ask(request(turn, bearer("bad-token-of-length")))[0] == 401
            assert client.ask(request(turn))[0] == 401
        assert client.ask(request(turn, bearer("one-token-of-length") | {"x-limpet-namespace": "two"}))[0] == 403


def test_the_quota_holds(serve: Callable[..., Any]) -> None:
    """Each short turn is charged once, and above the quota it is a 429 like any other."""
    url = serve(quota_per_s=0.1, quota_burst=50).wait_up().url
    turn = {"key": "k", "session_id": "s"}
    with connected(url) as client:
        statuses = [client.ask(request(turn))[0] for _ in range(60)]
        assert statuses == [200] * 50 + [429] * 10
        assert client.ask(request(turn, PLAIN | {"x-limpet-namespace": "other"}))[0] == 200


def test_a_store_that_is_away(serve: Callable[..., Any], fresh_server: Callable[..., Server]) -> None:
    """G7 on the short way: the physical scope, marked degraded, within the deadline; and back to normal with the store."""
    server = fresh_server()
    url = serve(redis_url=server.url, deadline_ms=250).wait_up().url
    turn = {"key": "k", "session_id": "s"}
    with connected(url) as client:
        known = json.loads(warm(client, turn)[2])
        server.pause()
        try:
            away = [json.loads(client.ask(request(turn))[2]) for _ in range(3)]
        finally:
            server.resume()
        assert all(each["degraded"] and each["scope"].startswith("gws_") for each in away)
        assert not known["degraded"]
        for _ in range(100):
            back = json.loads(client.ask(request(turn))[2])
            if not back["degraded"]:
                break
        assert (back["scope"], back["epoch"]) == (known["scope"], known["epoch"])


def test_scripts_that_are_gone(service: Any, service_store: str) -> None:
    """SCRIPT FLUSH between two short turns: the next one is answered all the same."""
    turn = {"key": "flushed", "session_id": "s"}
    with connected(service.url) as client, redis.Redis.from_url(service_store) as store:
        before = json.loads(warm(client, turn)[2])
        store.script_flush()
        assert json.loads(client.ask(request(turn))[2])["epoch"] == before["epoch"]


def test_the_end_of_the_service(serve: Callable[..., Any]) -> None:
    """SIGTERM: kept-alive connections are closed, and the service ends with 0."""
    running = serve().wait_up()
    with connected(running.url) as client:
        warm(client, {"key": "k", "session_id": "s"})
        assert running.stop() == 0
        with pytest.raises(OSError):
            client.ask(request({"key": "k", "session_id": "s"}))
