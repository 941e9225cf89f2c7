"""What a caller may pass. Every check raises :class:`~limpet.errors.InvalidRequest` with one clear sentence.

Opaque means opaque: nothing is parsed out of a key, nothing is normalised, nothing is cut (design, section 2).
"""

from __future__ import annotations

import re
from typing import Final

from limpet.errors import InvalidRequest

__all__ = [
    "MAX_TEXT_BYTES",
    "check_epoch",
    "check_int",
    "check_namespace",
    "check_reason",
    "check_request_id",
    "check_text",
]

MAX_TEXT_BYTES: Final = 256
MAX_EPOCH: Final = 2**53 - 1
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_NAMESPACE: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_REASON: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


def check_text(value: object, field: str) -> str:
    """A key, session id, worker or holder: 1..256 bytes of UTF-8 without control characters (C0, DEL, C1)."""
    if type(value) is not str:
        raise InvalidRequest(f"{field} must be a string, not {type(value).__name__}.", field=field)
    if value.isascii():
        size = len(value)
    else:
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise InvalidRequest(f"{field} is not valid UTF-8 (it holds a lone surrogate).", field=field) from None
    if not 0 < size <= MAX_TEXT_BYTES:
        what = "is empty" if size == 0 else f"is {size} bytes long"
        raise InvalidRequest(f"{field} {what}; it must be 1 to {MAX_TEXT_BYTES} bytes of UTF-8.", field=field)
    if not value.isprintable() and _CONTROL.search(value):
        raise InvalidRequest(f"{field} holds a control character; remove it.", field=field)
    return value


def check_namespace(value: object) -> str:
    """``[a-z0-9][a-z0-9_-]{0,62}``."""
    if not isinstance(value, str) or not _NAMESPACE.fullmatch(value):
        raise InvalidRequest(
            "namespace must be 1 to 63 of a-z, 0-9, _ and -, and start with a letter or digit.", field="namespace"
        )
    return value


def check_reason(value: object) -> str:
    """The reason of an advance, rebind or release: 1..64 of ``a-z0-9_.-``, starting with a letter or digit."""
    if not isinstance(value, str) or not _REASON.fullmatch(value):
        raise InvalidRequest(
            "reason must be 1 to 64 of a-z, 0-9, '_', '.' and '-', and start with a letter or digit.", field="reason"
        )
    return value


def check_request_id(value: object) -> str:
    """A caller's request id (HTTP ``Idempotency-Key``): the same rules as a key."""
    return check_text(value, "request_id")


def check_int(value: object, field: str, low: int, high: int) -> int:
    """An integer (no bool, no float) within ``low..high``."""
    if type(value) is not int or not low <= value <= high:
        raise InvalidRequest(f"{field} must be an integer from {low} to {high}.", field=field)
    return value


def check_epoch(value: object, field: str) -> int:
    """An epoch or fence: an integer from 1 to 2^53 - 1."""
    return check_int(value, field, 1, MAX_EPOCH)
