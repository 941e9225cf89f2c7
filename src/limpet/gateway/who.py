"""Whose turn a request is: key, session id and kind, from headers, body or an earlier response (design, section 7)."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from limpet.errors import InvalidRequest, StoreUnavailable
from limpet.gateway.control import Control
from limpet.gateway.identity import Pairs, Sources
from limpet.keys import digest
from limpet.service.clients import Client
from limpet.service.logs import logger
from limpet.validate import check_text
from limpet.wire.body import Body

__all__ = ["Who", "identify", "response_name"]


class Who(NamedTuple):
    """``owned``: the field that supplied the key. ``chained``: link the response's id to the key."""

    key: str | None
    session_id: str
    owned: tuple[str, ...]
    chained: bool


async def identify(
    client: Client, sources: Sources, headers: Pairs, body: Body | None, control: Control, *, responses: bool
) -> Who | None:
    """Whose turn it is; None for a request that says nothing about it, which is passed on as it is.

    A ``/v1/responses`` request without a key belongs to the conversation of its ``previous_response_id``; the first one of such
    a chain gets a key that nobody else has, and its response's id leads there.

    Raises InvalidRequest for an invalid key: never a silent fallback.
    """
    found = sources.find(headers, body)
    key = found.key if found is not None else None
    owned = (found.owned,) if found is not None else ()
    chained = responses and control.kind == "turn" and body is not None and bytes_of(body, "store") != b"false"
    if key is None and responses and control.kind == "turn" and body is not None:
        key = await _chain(client, body, chained)
    session_id = control.session_id or key
    if session_id is None:
        if control.new or control.kind != "turn" or control.final:
            raise InvalidRequest("X-Limpet-New, -Kind and -Final need a conversation key or X-Limpet-Session-ID.", field="key")
        return None
    if control.new and key is None:
        raise InvalidRequest("X-Limpet-New needs a conversation key.", field="X-Limpet-New")
    return Who(key, session_id, owned, chained and key is not None)


async def _chain(client: Client, body: Body, chained: bool) -> str | None:
    previous = body.text(("previous_response_id",))
    if previous:
        name = response_name(previous)
        if name is None:
            return None  # no answer of ours led there; what the upstream says about it is the client's answer
        try:
            known = await client.key_of_response(name)
        except StoreUnavailable as error:
            logger.warning("chain unknown", code=error.code)
            known = None
        # A response that nobody linked (an old one, or another gateway's) still keeps its own followers together.
        return known or f"chain:{digest(name)}"
    return f"chain:{secrets.token_hex(16)}" if chained else None


def response_name(response_id: str) -> str | None:
    """A response id as the store takes it: providers may have longer ones than a key may be. None for one that nobody can know:
    JSON can write half of a surrogate pair, UTF-8 cannot."""
    try:
        return check_text(response_id, "response_id")
    except InvalidRequest:
        try:
            return f"gwx_{digest(response_id)}"
        except UnicodeEncodeError:
            return None


def bytes_of(body: Body, name: str) -> bytes:
    """The raw JSON of a field; empty if it is not there."""
    value = body.get((name,))
    try:
        return bytes(value)
    except TypeError:
        return b""
