"""What a host that only speaks HTTP tells the gateway by ``X-Limpet-*`` headers."""

from __future__ import annotations

from typing import Final, NamedTuple, cast

from limpet.errors import InvalidRequest
from limpet.gateway.identity import Pairs, header_text
from limpet.resolving import KINDS, Kind
from limpet.service.auth import Guard
from limpet.service.problems import Headers, Unauthorized
from limpet.validate import check_request_id, check_text

__all__ = ["Control", "enter"]

_TRUE: Final = frozenset({"1", "true"})
_FALSE: Final = frozenset({"", "0", "false"})
_READ: Final = frozenset({b"x-limpet-session-id", b"x-limpet-kind", b"x-limpet-parent-key", b"x-limpet-new", b"x-limpet-final"})
"""What is read here. ``Idempotency-Key`` counts only beside ``X-Limpet-New``."""


class Control(NamedTuple):
    """``new``: advance first. ``final``: release after the answer. ``retry_id``: the client's ``Idempotency-Key``."""

    session_id: str | None
    kind: Kind
    parent_key: str | None
    new: bool
    final: bool
    retry_id: str | None

    @staticmethod
    def read(headers: Pairs) -> Control:
        """Raises InvalidRequest for a value that makes no sense."""
        if _READ.isdisjoint(name for name, _ in headers):
            return _PLAIN
        kind = _text(headers, "X-Limpet-Kind") or "turn"
        if kind not in KINDS:
            raise InvalidRequest(f"X-Limpet-Kind must be one of {', '.join(KINDS)}.", field="X-Limpet-Kind")
        new = _flag(headers, "X-Limpet-New")
        if new and kind != "turn":
            raise InvalidRequest("X-Limpet-New begins a conversation, so X-Limpet-Kind must be turn.", field="X-Limpet-New")
        retry_id = _text(headers, "Idempotency-Key") if new else None
        return Control(
            _text(headers, "X-Limpet-Session-ID"),
            cast("Kind", kind),
            _text(headers, "X-Limpet-Parent-Key"),
            new,
            _flag(headers, "X-Limpet-Final"),
            None if retry_id is None else check_request_id(retry_id),
        )


_PLAIN: Final = Control(None, "turn", None, False, False, None)


def _text(headers: Pairs, name: str) -> str | None:
    value = header_text(headers, name.lower().encode(), name)
    return check_text(value, name) if value else None


def _flag(headers: Pairs, name: str) -> bool:
    value = (header_text(headers, name.lower().encode(), name) or "").strip().lower()
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise InvalidRequest(f"{name} must be 1 or 0.", field=name)


def enter(guard: Guard, headers: dict[bytes, bytes], right: str = "resolve") -> str:
    """The namespace of a request, by ``X-Limpet-Token``: ``Authorization`` is the upstream's.

    Raises Unauthorized, Forbidden, InvalidRequest.
    """
    shown = {name: headers[name] for name in (b"x-limpet-namespace",) if name in headers}
    token = headers.get(b"x-limpet-token")
    if token is not None:
        shown[b"authorization"] = b"Bearer " + token.strip()
    try:
        return guard.enter(shown, "admin" if right == "admin" else "resolve")
    except Unauthorized:
        raise _NoToken("This gateway asks for a token of its own: send X-Limpet-Token.") from None


class _NoToken(Unauthorized):
    headers: Headers = ()  # no challenge: a browser must not ask for a password that belongs to the upstream
