"""The gateway's own errors. They answer as problem documents that an OpenAI client can read too."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from limpet.errors import LimpetError
from limpet.service.problems import HttpError, headers_of, problem_of

__all__ = [
    "CODES",
    "AllDrained",
    "BadGateway",
    "HeadTooLarge",
    "Headers",
    "NoUpstream",
    "NoWebSocket",
    "UpstreamTimeout",
    "document",
    "error_event",
    "headers_for",
]

Headers = tuple[tuple[bytes, bytes], ...]


class HeadTooLarge(HttpError):
    """The request's headers are larger than the gateway passes on."""

    code = "head_too_large"
    status = 431


class NoWebSocket(HttpError):
    """The gateway passes no WebSocket on."""

    code = "no_websocket"
    status = 501
    headers = ((b"connection", b"close"),)


class NoUpstream(HttpError):
    """No upstream could be reached; nothing was sent to any."""

    code = "upstream_unreachable"
    status = 502
    headers = ((b"retry-after", b"1"),)


class AllDrained(HttpError):
    """Every upstream is being drained, so none takes conversations."""

    code = "upstreams_drained"
    status = 503
    headers = ((b"retry-after", b"5"),)


class BadGateway(HttpError):
    """The upstream went away, or answered what is no HTTP."""

    code = "upstream_failed"
    status = 502


class UpstreamTimeout(HttpError):
    """The upstream was silent for longer than the read timeout."""

    code = "upstream_timeout"
    status = 504


_ALL: Final = (HeadTooLarge, NoWebSocket, NoUpstream, AllDrained, BadGateway, UpstreamTimeout)
CODES: Final = {cls.code: (cls.__doc__ or "").strip() for cls in _ALL}


def _openai(error: LimpetError) -> dict[str, Any]:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"message": str(error), "type": kind, "param": getattr(error, "field", None), "code": error.code}


def document(error: LimpetError) -> bytes:
    """The problem document, with an ``error`` member as OpenAI's clients expect it."""
    return msgspec.json.encode({**msgspec.to_builtins(problem_of(error)), "error": _openai(error)})


def error_event(error: LimpetError, *, named: bool) -> bytes:
    """The last event of a stream that cannot go on. ``named``: as ``/v1/responses`` has it, with an event name."""
    fields = {"error": _openai(error)}
    if named:
        return b"event: error\ndata: " + msgspec.json.encode({**_openai(error), **fields, "type": "error"}) + b"\n\n"
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def headers_for(error: LimpetError) -> Headers:
    """What goes out beside the document."""
    return headers_of(error)
