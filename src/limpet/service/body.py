"""Reading a request body within a bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.types import Receive

from limpet.errors import InvalidRequest
from limpet.service.problems import PayloadTooLarge, UnsupportedMediaType

__all__ = ["Disconnected", "read_body"]

DRAIN_BYTES: Final = 4 * 1024 * 1024
"""How much of a body that is too large is read and dropped, so that the client can read our answer."""


class Disconnected(Exception):
    """The client went away before its request was complete."""


async def read_body(receive: Receive, headers: Mapping[bytes, bytes], limit: int) -> bytes:
    """The body.

    Raises:
        PayloadTooLarge: it is larger than ``limit`` bytes, said or sent.
        UnsupportedMediaType: it is compressed.
        Disconnected: the client went away.
    """
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() != b"identity":
        raise UnsupportedMediaType("Send the body without Content-Encoding.")
    length = headers.get(b"content-length")
    if length is not None and len(length) > 18:
        raise InvalidRequest("Content-Length is not a sensible number.", field="Content-Length")
    said = 0 if length is None else int(length)
    if said > limit:
        waits = headers.get(b"expect", b"").lower() == b"100-continue"
        close = waits or said > DRAIN_BYTES
        if not close:
            await _drain(receive)
        raise PayloadTooLarge(f"The body is {said} bytes; this route takes {limit} at most.", close=close)
    message = await receive()
    if message["type"] != "http.request":
        raise Disconnected
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > limit:
            raise PayloadTooLarge(f"The body is larger than the {limit} bytes that this route takes.")
        return body
    chunks = [body]
    size = len(body)
    while message.get("more_body", False):
        if size > limit:
            ended = await _drain(receive)
            raise PayloadTooLarge(f"The body is larger than the {limit} bytes that this route takes.", close=not ended)
        message = await receive()
        if message["type"] != "http.request":
            raise Disconnected
        chunk = message.get("body", b"")
        size += len(chunk)
        chunks.append(chunk)
    if size > limit:
        raise PayloadTooLarge(f"The body is larger than the {limit} bytes that this route takes.")
    return b"".join(chunks)


async def _drain(receive: Receive) -> bool:
    """Drop the rest, within bounds; whether it ended."""
    dropped = 0
    while dropped <= DRAIN_BYTES:
        message = await receive()
        if message["type"] != "http.request":
            raise Disconnected
        dropped += len(message.get("body", b""))
        if not message.get("more_body", False):
            return True
    return False
