"""Headers on their way through: what belongs to one connection only, and what is Limpet's own, goes no further."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE

from limpet.errors import InvalidRequest
from limpet.wire.headers import PROTOCOL_HEADERS

__all__ = ["OURS", "answer_headers", "drop_key", "forwarded", "has_body", "is_sendable"]

OURS: Final = b"x-limpet-"
_BAD_NAME: Final = HEADER_RE.search
_BAD_VALUE: Final = HEADER_VALUE_RE.search
Pairs = Sequence[tuple[bytes, bytes]]

_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""RFC 9110, section 7.6.1, and what HTTP/1.0 proxies made up."""
_REQUEST: Final = _HOP | {b"host", b"expect", b"content-length"}
_ANSWER: Final = _HOP | {b"date"}
"""Our server writes a date of its own."""
_BODILESS: Final = frozenset({204, 304})
"""Their head may say how long a body would be (RFC 9110, section 8.6); our server would wait for that body."""
_NEVER_NAMED: Final = frozenset({b"host", b"authorization", b"content-type", b"cookie", b"content-length"})
"""What ``Connection`` may not name: a client must not strip, by way of us, what the upstream decides by."""


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    names = {part.strip().lower() for name, value in headers if name == b"connection" for part in value.split(b",")}
    return frozenset(names - _NEVER_NAMED)


def forwarded(headers: Pairs) -> list[tuple[str, str]]:
    """The request headers that go upstream, as text; names come in lower case from our server.

    Raises InvalidRequest for a value that is not UTF-8, which the client library below could not send as it is.
    """
    named = _named_by_connection(headers)
    out: list[tuple[str, str]] = []
    for name, value in headers:
        if name in _REQUEST or name in named or name.startswith(OURS):
            continue
        try:
            out.append((name.decode("ascii"), value.decode()))
        except UnicodeDecodeError:
            raise InvalidRequest("A header is not valid UTF-8, so nothing was sent.", field=name.decode("latin-1")[:80]) from None
    return out


def drop_key(headers: list[tuple[str, str]], key: str) -> list[tuple[str, str]]:
    """The headers without those that hold the conversation key: it may be somebody's phone number."""
    return [(name, value) for name, value in headers if value != key or name in PROTOCOL_HEADERS]


def is_sendable(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether our server can send these headers: it refuses one with a control character when it is too late to say so."""
    return not any(_BAD_VALUE(value) or _BAD_NAME(name) for name, value in headers)


def has_body(status: int) -> bool:
    """Whether an answer of this status can have a body at all."""
    return status not in _BODILESS


def answer_headers(headers: Iterable[tuple[bytes, bytes]], *, status: int, changed: bool = False) -> list[tuple[bytes, bytes]]:
    """The headers of an upstream's answer that go to the client. ``changed``: the body is not as long as it was."""
    dropped = _ANSWER | {b"content-length"} if changed or not has_body(status) else _ANSWER
    lowered = [(name.lower(), value) for name, value in headers]
    named = _named_by_connection(lowered)
    return [(name, value) for name, value in lowered if name not in dropped and name not in named and not name.startswith(OURS)]
