"""Errors on the wire: ``application/problem+json`` (RFC 9457) with a stable ``code`` (design, section 7)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from limpet.errors import InvalidRequest, LimpetError, NotDurable, StaleFence
from limpet.results import Binding

__all__ = [
    "CODES",
    "CONTENT_TYPE",
    "Forbidden",
    "HttpError",
    "Internal",
    "MalformedBody",
    "MalformedRequest",
    "MethodNotAllowed",
    "NotFound",
    "PayloadTooLarge",
    "Problem",
    "TooManyConnections",
    "TooManyNamespaces",
    "TooSlow",
    "Unauthorized",
    "UnsupportedMediaType",
    "encode",
    "headers_of",
    "problem_of",
    "unexpected",
]

CONTENT_TYPE: Final = b"application/problem+json"
Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]


class HttpError(LimpetError):
    """An error of the HTTP layer itself. ``headers`` go out with it."""

    headers: Headers = ()


class MalformedBody(HttpError):
    """The body is not JSON or MessagePack at all."""

    code = "malformed_body"
    status = 400


class MalformedRequest(HttpError):
    """No HTTP, or a head beyond what is taken. The connection is closed."""

    code = "malformed_request"
    status = 400


class TooSlow(HttpError):
    """A request that did not come within its time. The connection is closed."""

    code = "too_slow"
    status = 408


class TooManyConnections(HttpError):
    """The process has as many connections as it may. The connection is closed."""

    code = "too_many_connections"
    status = 503
    headers = ((b"retry-after", b"1"),)


class Unauthorized(HttpError):
    """No token, or one that is not known."""

    code = "unauthorized"
    status = 401
    headers: Headers = ((b"www-authenticate", b'Bearer realm="limpet"'),)


class Forbidden(HttpError):
    """The token does not have the right, or names another namespace."""

    code = "forbidden"
    status = 403


class NotFound(HttpError):
    """No such route."""

    code = "not_found"
    status = 404


class MethodNotAllowed(HttpError):
    """The route has other methods."""

    code = "method_not_allowed"
    status = 405

    def __init__(self, message: str, *, allow: str) -> None:
        super().__init__(message)
        self.headers = ((b"allow", allow.encode()),)


class PayloadTooLarge(HttpError):
    """The body is larger than the route takes."""

    code = "too_large"
    status = 413

    def __init__(self, message: str, *, close: bool = False) -> None:
        super().__init__(message)
        self.headers = ((b"connection", b"close"),) if close else ()


class UnsupportedMediaType(HttpError):
    """The body is said to be neither JSON nor MessagePack."""

    code = "unsupported_media_type"
    status = 415
    headers = ((b"accept", b"application/json, application/msgpack"),)


class TooManyNamespaces(HttpError):
    """All namespaces that this process may hold open are in use."""

    code = "too_many_namespaces"
    status = 503
    headers = ((b"retry-after", b"1"),)


class Internal(HttpError):
    """Our fault."""

    code: ClassVar[str] = "internal"
    status = 500


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong. Programs look at ``code``; people read ``detail``.

    ``field`` names the part of the request at fault. ``binding`` comes with ``stale_fence``: what holds now.
    ``result`` comes with ``not_durable``: what happened, and stands.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str | None = None
    binding: Binding | None = None
    result: Any = None


CODES: Final[dict[str, str]] = {
    "invalid_request": "Something in the request is wrong; nothing was written. `field` says what.",
    "malformed_body": "The body is no JSON (or MessagePack) at all; nothing was written.",
    "malformed_request": "That was no HTTP, or its head was too large; nothing was written, and the connection is closed.",
    "too_slow": "The request did not come within `LIMPET_HEAD_TIMEOUT_S` or `LIMPET_BODY_TIMEOUT_S`; the connection is closed.",
    "too_many_connections": "The process has as many connections as `LIMPET_MAX_CONNECTIONS` allows; try another replica.",
    "implausible_epoch": "The epoch lies more than 60 s ahead of the store's clock; nothing was written.",
    "unauthorized": "No bearer token, or none that is known.",
    "forbidden": "The token lacks the right, or belongs to another namespace.",
    "unknown_conversation": "There is no record of that key.",
    "unknown_worker": "No worker of that name is registered.",
    "other_incarnation": "The worker has been registered anew under another incarnation; this one is over.",
    "quota_exceeded": "The namespace asks more than it may, or has as many workers as it may; see `Retry-After`.",
    "too_many_readers": "This process tells events to as many readers as it may.",
    "not_found": "There is no such route.",
    "method_not_allowed": "The route has other methods; see `Allow`.",
    "stale_fence": "The fence is not the current one; nothing was changed. `binding` is what holds now.",
    "too_large": "The body is larger than this route takes; nothing was written.",
    "unsupported_media_type": "The body must be said to be application/json or application/msgpack.",
    "store_unavailable": "The store did not answer in time. A retry with the same Idempotency-Key is safe.",
    "not_durable": "It happened, and stands, but no replica has acknowledged it. `result` is what happened.",
    "store_mismatch": "The store was set up with another schema or number of partitions.",
    "schema_too_new": "A record was written by a newer Limpet.",
    "store_corrupt": "A key of ours holds something that we did not write.",
    "too_many_namespaces": "This process holds as many namespaces open as it may, and all are busy.",
    "internal": "Our fault. The log has more.",
}
"""Every code that the service answers, for people."""

_encode: Final = msgspec.json.Encoder().encode


def problem_of(error: LimpetError) -> Problem:
    """The problem document of an error."""
    detail = str(error)
    return Problem(
        type=f"/docs#{error.code}",
        title=HTTPStatus(error.status).phrase,
        status=error.status,
        detail=detail if detail.endswith(".") else f"{detail}.",
        code=error.code,
        field=error.field if isinstance(error, InvalidRequest) else None,
        binding=error.binding if isinstance(error, StaleFence) else None,
        result=error.result if isinstance(error, NotDurable) else None,
    )


def encode(problem: Problem) -> bytes:
    """The problem document as JSON."""
    return _encode(problem)


def headers_of(error: LimpetError) -> Headers:
    """What goes out beside the problem document."""
    if isinstance(error, HttpError):
        return error.headers
    return ((b"retry-after", b"1"),) if error.status == 503 else ()


def unexpected() -> Internal:
    """For whatever should not have happened; says nothing about it outside the log."""
    return Internal("Something went wrong on our side; the log of this process says more.")
