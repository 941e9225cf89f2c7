"""The client of the asking commands, against servers that are not what it expects."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from limpet.cli import http
from limpet.cli.http import Service
from limpet.cli.problem import ServiceProblem, explain
from limpet.results import Resolution

Serve = Callable[[bytes], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A socket that answers every connection with the same bytes, whatever is asked; b"" never answers."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(answer: bytes) -> str:
        def run() -> None:
            connection, _ = listener.accept()
            held.append(connection)
            connection.recv(65536)
            if answer:
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for thread in threads:
        thread.join(5)
    for each in (listener, *held):
        each.close()


def answer(status: str, kind: str, body: bytes) -> bytes:
    """A whole HTTP answer."""
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("sent", "code", "says"),
    [
        (answer("404 Not Found", "text/html", b"<h1>nginx</h1>"), "not_limpet", "is no Limpet service"),
        (answer("200 OK", "text/html", b"hello"), "not_limpet", "is no Limpet service"),
        (answer("200 OK", "application/json", b'{"hello": 1}'), "not_limpet", "JSON of another kind"),
        (answer("200 OK", "application/json", b"\xff"), "not_limpet", "JSON of another kind"),
        (answer("500 Oops", "application/problem+json", b"{"), "not_limpet", "is no Limpet service"),
        (b"220 smtp ready\r\n", "service_unreachable", "broke off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", "service_unreachable", "broke off"),
    ],
)
def test_what_is_no_limpet_is_said_to_be_none(serve: Serve, sent: bytes, code: str, says: str) -> None:
    """A wrong LIMPET_URL is the likeliest reason, so the line points there."""
    with pytest.raises(ServiceProblem, match=says) as caught:
        Service(serve(sent)).get("/v1/conversations/k", Resolution)
    problem = explain(caught.value)
    assert (problem.code, problem.exit_code) == (code, 1)
    assert "LIMPET_URL" in problem.detail


@pytest.mark.parametrize(
    ("status", "code", "exit_code", "says"),
    [
        ("401 Unauthorized", "unauthorized", 1, "Set LIMPET_TOKEN"),
        ("403 Forbidden", "forbidden", 1, "--namespace"),
        ("400 Bad Request", "invalid_request", 2, "the detail"),
        ("503 Service Unavailable", "store_unavailable", 1, "/readyz"),
    ],
)
def test_a_refusal_is_passed_on_with_what_to_do(serve: Serve, status: str, code: str, exit_code: int, says: str) -> None:
    """The service's own sentence, and a hint that only this side can give."""
    body = f'{{"type": "x", "code": "{code}", "detail": "the detail.", "status": 1}}'.encode()
    with pytest.raises(ServiceProblem) as caught:
        Service(serve(answer(status, "application/problem+json", body))).get("/v1/conversations/k", Resolution)
    problem = explain(caught.value)
    assert (problem.code, problem.exit_code) == (code, exit_code)
    assert problem.detail.startswith("the detail.")
    assert says in problem.detail


def test_a_service_that_hangs_is_left(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command waits for ever."""
    monkeypatch.setattr(http, "TIMEOUT_S", 0.2)
    with pytest.raises(ServiceProblem, match="did not answer within"):
        Service(serve(b"")).get("/v1/conversations/k", Resolution)


def test_an_unknown_host_is_said_to_be_one() -> None:
    """The reserved .invalid never resolves."""
    with pytest.raises(ServiceProblem, match="no such host"):
        Service("http://nowhere.invalid:1").get("/", Resolution)
