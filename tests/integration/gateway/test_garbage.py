"""Requests with bytes changed, lost, doubled and put in, to the gateway: no 500, no traceback, no hang, no key upstream."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from typing import Any

import pytest

from tests.integration.gateway.conftest import Running, Start

BODY = b'{"model":"m","messages":[{"role":"user","content":"h\\u00e9llo"}],"stream":false,"previous_response_id":"resp_1"}'
HEAD = (
    b"host: x\r\ncontent-type: application/json\r\nx-limpet-key: secret-key\r\nx-limpet-session-id: s\r\nx-limpet-kind: turn\r\n"
    b"accept: */*\r\nconnection: close\r\n"
)
PATHS = [b"/v1/chat/completions", b"/v1/responses", b"/v1/completions", b"/v1/models?x=1", b"/v1/debug/samples", b"/metrics"]
BYTES = [
    b"\x00",
    b"\r",
    b"\n",
    b"\r\n",
    b"\xff",
    b"\xc3\x28",
    b" ",
    b":",
    b'"',
    b"{",
    b"\\",
    b"%",
    b"..",
    b"9" * 30,
    b"\xed\xa0\x80",
]
EACH = 120


def mutated(rng: random.Random) -> bytes:
    """A good request with one to four things wrong, mostly; the rest of it is as it should be."""
    body, head, path = bytearray(BODY), bytearray(HEAD), bytearray(rng.choice(PATHS))
    for _ in range(rng.randrange(5)):
        part = rng.choice((body, body, head, head, path))
        at, size = rng.randrange(len(part) + 1), rng.choice((0, 1, 1, 4, 30))
        part[at : at + size] = rng.choice((rng.choice(BYTES), rng.randbytes(rng.randrange(1, 5)), bytes(part[at : at + 8]) * 2))
    length = len(body) if rng.random() < 0.9 else rng.randrange(200)
    method = rng.choice((b"POST", b"POST", b"POST", b"GET", b"PUT", b"HEAD"))
    return b"%b %b HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b" % (method, path, head, length, body)


async def told(gate: Running, data: bytes) -> bytes:
    """All that comes back, until the other side has had enough; a half request is ended by us."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    writer.write(data)
    writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def whatever(_: Any, writer: asyncio.StreamWriter) -> None:
    """An upstream that looks at nothing."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
    await writer.drain()


@pytest.mark.parametrize("seed", range(3))
async def test_mutated_requests(gateway: Start, upstreams: Any, caplog: pytest.LogCaptureFixture, seed: int) -> None:
    """Each is answered or the connection closed; a refusal says what is wrong; and the gateway serves on."""
    (up,) = await upstreams()
    up.behave = whatever
    gate = await gateway(up, head_timeout_s=2, body_timeout_s=2)
    rng = random.Random(seed)
    with caplog.at_level(logging.WARNING):
        for _ in range(EACH):
            data, before = mutated(rng), len(up.requests)
            got = await told(gate, data)
            if b"\r\nx-limpet-key: secret-key\r\n" in data:
                assert all(b"secret-key" not in request.raw for request in up.requests[before:]), data
            status = re.match(rb"HTTP/1\.1 (\d{3}) ", got)
            assert status is not None or got == b"", (data, got[:200])
            if status is not None and int(status[1]) >= 500:
                assert int(status[1]) in (501, 502, 503, 504), (data, got[:300])
                assert b"application/problem+json" in got, (data, got[:300])
        good = await gate.chat("a key of its own")
    assert good.status_code == 200
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
