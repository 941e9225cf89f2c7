"""Bytes that are no HTTP, or that two servers could read in two ways: refused, never a 500, never a hang."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.gateway.test_bad_clients import SMUGGLED, post

HIDDEN = b"POST /v1/advance HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
MORE = [
    pytest.param(b"POST /v1/resolve HTTP/1.1\nhost: x\ncontent-length: 0\n\n", id="bare LF"),
    pytest.param(b"GET /livez HTTP/1.1\r\nhost: x\nx: y\r\n\r\n", id="bare LF in a head"),
    pytest.param(b"GET  /livez HTTP/1.1 x\r\nhost: x\r\n\r\n", id="request line"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
    pytest.param(b"GET /livez HTTP/9.9\r\nhost: x\r\n\r\n", id="version"),
]


def ask(url: str, data: bytes) -> bytes:
    """All that comes back once we have said all; a server that neither answers nor closes fails the test by its time-out."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 10) as client:
        out = b""
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while piece := client.recv(65536):
                out += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
        except OSError as error:
            if error.errno != errno.ENOTCONN:  # it had closed already
                raise
        return out


@pytest.mark.parametrize("data", [*SMUGGLED, *MORE])
def test_what_can_be_read_in_two_ways(service: Any, data: bytes) -> None:
    """At most one answer, a 400: what hides behind is not served."""
    got = ask(service.url, data.replace(b"/v1/chat/completions", b"/v1/resolve") + HIDDEN)
    assert got == b"" or got.startswith(b"HTTP/1.1 400"), got[:200]
    assert got.count(b"HTTP/1.1 ") <= 1


PIECES = st.sampled_from(
    [
        b"GET ", b"POST ", b"/livez", b"/v1/resolve", b" HTTP/1.1", b"\r\n", b"\n", b"host: x", b"content-length: ", b"2", b"-1",
        b"{}",
        b"transfer-encoding: chunked", b"0\r\n\r\n", b"connection: close", b"\0", b"\xff", b":", b" ", b"expect: 100-continue",
        b"upgrade: websocket", b"connection: upgrade", b"content-type: application/json", b"CONNECT x:1", b"OPTIONS *", b"http://a",
    ]
)  # fmt: skip


@settings(max_examples=150, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=24).map(b"".join)))
def test_any_bytes(service: Any, data: bytes) -> None:
    """Random bytes and pieces of HTTP in any order."""
    got = ask(service.url, data + b"\r\n\r\n")
    assert b"HTTP/1.1 5" not in got, got[:300]
    assert service.process.poll() is None


def test_the_service_still_answers(service: Any) -> None:
    """After a request that was refused it goes on."""
    ask(service.url, b"\0" * 100)
    assert ask(service.url, post(b"content-length: 0", b"connection: close", body=b"", path=b"/v1/nothing")).startswith(
        b"HTTP/1.1 404"
    )
