"""What the routes beside the hot ones share: entering, reading, answering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.types import Receive, Scope, Send

from limpet.errors import InvalidRequest
from limpet.service.body import read_body
from limpet.service.media import JSON, MSGPACK, Decode, Media, accepted, declared
from limpet.service.problems import MethodNotAllowed
from limpet.validate import check_text

__all__ = ["name_of", "need", "nothing", "query_of", "read", "send_answer"]

LIMIT: Final = 64 * 1024


def need(method: str, *allowed: str) -> None:
    """Raises MethodNotAllowed; HEAD goes with GET."""
    if method not in allowed and not (method == "HEAD" and "GET" in allowed):
        names = [*allowed, "HEAD"] if "GET" in allowed else list(allowed)
        raise MethodNotAllowed(f"That route takes {', '.join(allowed)}.", allow=", ".join(names))


def name_of(raw: bytes, what: str) -> str:
    """A name in a path: percent-decoded once, from the raw path, so that %2F is part of it. Raises InvalidRequest."""
    try:
        return check_text(unquote_to_bytes(raw).decode(), what)
    except UnicodeDecodeError:
        raise InvalidRequest(f"{what} is not valid UTF-8 after percent-decoding.", field=what) from None


def query_of(scope: Scope, *known: str) -> dict[str, str]:
    """The query. Raises InvalidRequest for a parameter that is unknown or given twice."""
    raw: bytes = scope["query_string"]
    found: dict[str, str] = {}
    for name, value in parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=16) if raw else ():
        if name not in known:
            raise InvalidRequest(f"{name[:80]}: there is no such query parameter.", field=name[:80])
        if name in found:
            raise InvalidRequest(f"{name} is given twice.", field=name)
        found[name] = value
    return found


async def nothing(receive: Receive, headers: Mapping[bytes, bytes], method: str) -> None:
    """Reads the body of a call that takes none. An empty object counts as none. Raises InvalidRequest."""
    body = await read_body(receive, headers, LIMIT)
    if body.strip() not in (b"", b"{}", b"\x80"):
        raise InvalidRequest(f"{method} takes no body here.")


async def read(receive: Receive, headers: Mapping[bytes, bytes], decode: Mapping[Media, Decode[Any]], empty: Any = None) -> Any:
    """The body, decoded. ``empty`` is what no body at all stands for, where that is allowed."""
    body = await read_body(receive, headers, LIMIT)
    if not body and empty is not None:
        return empty
    return decode[declared(headers.get(b"content-type"))](body)


async def send_answer(send: Send, headers: Mapping[bytes, bytes], result: Any) -> None:
    """200, in the format that the caller accepts."""
    named = headers.get(b"content-type")
    media = accepted(headers.get(b"accept"), MSGPACK if named is not None and b"msgpack" in named else JSON)
    body = media.encode(result)
    fields = [(b"content-type", media.header), (b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": body})
