"""What one client may hold: bytes, time, connections. The limits of `limpet serve`; the gateway runs the same server."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from limpet.service.protocol import MAX_HEAD_BYTES

HEAD = b"POST /v1/resolve HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
BODY = b'{"key":"k","session_id":"s"}'


@pytest.fixture
def strict(serve: Callable[..., Any]) -> Iterator[Any]:
    """A service with little patience."""
    return serve(head_timeout_s=0.6, body_timeout_s=0.6, max_connections=8).wait_up()


def connect(running: Any) -> socket.socket:
    """A plain connection."""
    return socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2])), 10)


def rest(client: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    out = b""
    try:
        while piece := client.recv(65536):
            out += piece
    except ConnectionResetError:
        pass
    return out


def trickle(client: socket.socket, data: bytes, every_s: float) -> bytes:
    """Sends a byte now and then until the other side has had enough; what it said."""
    client.settimeout(every_s)
    out = b""
    end = time.monotonic() + 10
    for at in range(len(data)):
        assert time.monotonic() < end, "it was held for ten seconds"
        try:
            client.send(data[at : at + 1])
            piece = client.recv(65536)
            out += piece
            if not piece:
                return out
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return out
    raise AssertionError("all was taken")


def problem(answer: bytes) -> tuple[int, str]:
    """Status and code of an answer that is a problem document, and the last one on its connection."""
    head, _, body = answer.partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    told = json.loads(body)
    assert fields["content-type"] == "application/problem+json"
    assert (fields["connection"], int(fields["content-length"])) == ("close", len(body))
    assert told["status"] == int(answer[9:12])
    assert told["detail"]
    return told["status"], told["code"]


@pytest.mark.parametrize(
    ("first", "slowly", "status"),
    [
        (b"", HEAD * 9, b"408"),
        (HEAD + b"content-length: 28\r\n\r\n", BODY[:-1] * 9, b"408"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n{\r\n" * 99, b"408"),
        (b"", b"\r\n" * 200, b"408"),
    ],
    ids=["head", "body", "chunks", "empty lines"],
)
def test_slow_clients_are_let_go(strict: Any, first: bytes, slowly: bytes, status: bytes) -> None:
    """A byte now and then holds a connection no longer than the limit; whoever began a request is told 408."""
    with connect(strict) as client:
        client.sendall(first)
        start = time.monotonic()
        got = trickle(client, slowly, 0.05)
        assert time.monotonic() - start < 6
    assert problem(got) == (int(status), "too_slow")


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET\r\n\r\n", HEAD + b"x: " + b"x" * 70_000 + b"\r\n\r\n"]
)
def test_what_is_no_request(service: Any, data: bytes) -> None:
    """TLS to a plain port, no HTTP, a head without end: 400, said in the way of all other refusals."""
    with connect(service) as client:
        client.sendall(data)
        assert problem(rest(client)) == (400, "malformed_request")


def test_a_silent_connection_is_closed(strict: Any) -> None:
    """Whoever connects and says nothing is not waited for, nor after the empty lines that follow an answer."""
    with connect(strict) as client:
        assert rest(client) == b""
    with connect(strict) as client:
        client.sendall(HEAD + b"content-length: 28\r\n\r\n" + BODY)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        trickle(client, b"\r\n" * 200, 0.05)


def test_a_body_that_comes_steadily_is_taken(strict: Any) -> None:
    """Longer than the limit in all, but never slower than it: the time is not for the whole body."""
    body = b'{"key":"k","session_id":"s"' + b" " * 1200 + b"}"
    with connect(strict) as client:
        client.sendall(HEAD + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body))
        for at in range(0, len(body), 100):
            client.sendall(body[at : at + 100])
            if at + 100 < len(body):
                client.settimeout(0.1)
                with pytest.raises(TimeoutError):
                    client.recv(1)
        client.settimeout(10)
        assert rest(client).startswith(b"HTTP/1.1 200")


def test_connections_are_bounded(strict: Any) -> None:
    """Beyond the bound: 503 and closed, at once; those that are there go on, and a place that is given up can be had again."""
    with httpx.Client(base_url=strict.url, timeout=10) as http:
        assert http.get("/livez").status_code == 200
        held = [connect(strict) for _ in range(7)]
        with connect(strict) as one_more:
            assert problem(rest(one_more)) == (503, "too_many_connections")
        assert http.get("/livez").status_code == 200
        for client in held:
            rest(client)
            client.close()
        assert httpx.get(f"{strict.url}/livez", timeout=10).status_code == 200


def test_sizes_are_bounded(service: Any, http: httpx.Client) -> None:
    """Head, path, body, batch and key: each has its bound and its code; nothing is cut."""
    assert http.get("/livez", headers={"x-pad": "x" * MAX_HEAD_BYTES}).status_code in (400, 431)
    assert http.get(f"/v1/conversations/{'k' * 257}").status_code == 400
    big = http.post("/v1/resolve", json={"key": "k", "session_id": "s", "pad": "x" * 2**20})
    assert (big.status_code, big.json()["code"]) == (413, "too_large")
    item = {"op": "resolve", "key": "k", "session_id": "s"}
    assert http.post("/v1/batch", json={"requests": [item] * 256}).status_code == 200
    assert http.post("/v1/batch", json={"requests": [item] * 257}).status_code == 400
    assert http.post("/v1/resolve", json={"key": "é" * 129, "session_id": "s"}).status_code == 400
    assert (
        http.post("/v1/resolve", json={"key": "k", "session_id": "s"}, headers={"Idempotency-Key": "x" * 257}).status_code == 400
    )


@pytest.mark.parametrize("offer", [b"h2c", b"websocket", b"foo"])
@pytest.mark.parametrize("path", [b"/v1/resolve", b"/v1/advance"])
@pytest.mark.parametrize("apart", [False, True], ids=["one packet", "body apart"])
def test_an_offered_upgrade_hides_no_request(service: Any, path: bytes, offer: bytes, apart: bool) -> None:
    """``curl --http2`` offers one. Nothing is upgraded here, and the body is a body, not the next request."""
    hidden = b"GET /livez?hidden HTTP/1.1\r\nhost: x\r\n\r\n"
    head = (
        b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: %b\r\n"
        b"http2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\ncontent-length: %d\r\n\r\n"
    )
    last = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    with connect(service) as client:
        client.sendall(head % (path, offer, len(hidden)) + (b"" if apart else hidden + last))
        if apart:
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):  # the body is waited for
                client.recv(1)
            client.settimeout(10)
            client.sendall(hidden + last)
        got = rest(client)
    assert re.findall(rb"HTTP/1\.1 (\d+) ", got) == [b"400", b"200"]
    with connect(service) as client:
        client.sendall(head % (b"/v1/resolve", offer, len(BODY)) + BODY + last)
        got = rest(client)
    assert re.findall(rb"HTTP/1\.1 (\d+) ", got) == [b"200", b"200"]
