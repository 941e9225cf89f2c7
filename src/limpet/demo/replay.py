"""Recorded requests as the demo's traffic: JSON lines of ``path``, ``headers`` and ``body``, as a load generator sent them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from limpet.demo.plan import Burst, Conversation, Plan
from limpet.errors import InvalidRequest
from limpet.validate import check_text

__all__ = ["Recorded", "key_of", "read"]


class Recorded(msgspec.Struct, frozen=True):
    """One recorded request."""

    path: str
    headers: list[tuple[str, str]]
    body: dict[str, Any] | None = None


def key_of(headers: Sequence[tuple[str, str]], body: Mapping[str, Any] | None, sources: Sequence[str]) -> str | None:
    """The conversation key of a request: the first of ``sources`` (``header:X``, ``body:x``) that has one (design, section 7).

    Raises:
        InvalidRequest: it has one that is no key (too long, control characters).
    """
    found = {name.lower(): value for name, value in reversed(headers)}
    for source in sources:
        place, _, name = source.partition(":")
        value = found.get(name.lower()) if place == "header" else (body or {}).get(name)
        if isinstance(value, str) and value:
            return check_text(value, name)
    return None


def read(path: Path, sources: Sequence[str], *, victims: int) -> Plan:
    """The plan that a file of recorded requests makes: one conversation per key, its requests in the file's order.

    The session id is the key's own value, as it is for every client that names its session in a header (design, section 7).

    Raises:
        InvalidRequest: the file cannot be read, or a line is no recorded request; the message names the line.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InvalidRequest(f"Cannot read {path}: {error.strerror}.", field="replay") from None
    decode = msgspec.json.Decoder(Recorded).decode
    keys: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            request = decode(line)
            key = key_of(request.headers, request.body, sources)
        except (msgspec.DecodeError, InvalidRequest, UnicodeDecodeError) as error:
            reason = str(error).rstrip(".")
            raise InvalidRequest(
                f"{path}, line {number}, is no recorded request ({reason}); each line has to be a JSON object with path, "
                'headers ([["Name", "value"], ...]) and body.',
                field="replay",
            ) from None
        if key is None:
            raise InvalidRequest(
                f"{path}, line {number}, names no conversation: none of {', '.join(sources)} is there; "
                "LIMPET_KEY_SOURCES says where to look.",
                field="replay",
            )
        keys.append(key)
    if not keys:
        raise InvalidRequest(f"{path} holds no request; each line has to be one, as JSON.", field="replay")
    return Plan(
        f"{len(keys)} recorded requests of {path.name}",
        tuple(
            Conversation(key, (Burst((key,)),) * count, "recorded", number < victims)
            for number, (key, count) in enumerate(Counter(keys).items())
        ),
    )
