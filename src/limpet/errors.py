"""Everything Limpet raises, and the one table that turns an error WORD of a script into a type.

    LimpetError
     ├── InvalidRequest          the caller's input is wrong; nothing was written
     │    ├── ImplausibleEpoch   a seen epoch further ahead of the store's clock than 60 s
     │    └── UnknownProfile     no wire profile of that name
     ├── UnknownConversation     there is no record of that key
     ├── UnknownWorker           no worker of that name is registered
     ├── OtherIncarnation        the worker was registered anew under another incarnation
     ├── QuotaExceeded           the namespace has had its share; others are not affected
     ├── StaleFence              the fence is not the current one; nothing was changed
     ├── StoreUnavailable        the store did not answer in time; whether the call took effect is unknown
     │    └── NotDurable         it took effect, but no replica has acknowledged it (``require_durable``)
     ├── StoreMismatch           the store was set up otherwise than this process expects
     │    └── SchemaTooNew       a record written by a newer Limpet
     └── StoreCorrupt            a key of ours holds something that we did not write

Each class carries a stable ``code`` (HTTP: the ``code`` of the problem document) and the HTTP ``status`` it maps to.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from limpet.results import Binding

__all__ = [
    "ImplausibleEpoch",
    "InvalidRequest",
    "LimpetError",
    "NotDurable",
    "OtherIncarnation",
    "QuotaExceeded",
    "SchemaTooNew",
    "StaleFence",
    "StoreCorrupt",
    "StoreMismatch",
    "StoreUnavailable",
    "UnknownConversation",
    "UnknownProfile",
    "UnknownWorker",
    "error_for_word",
    "unwrapped",
]


class LimpetError(Exception):
    """The base of all errors that Limpet raises on purpose."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500


class InvalidRequest(LimpetError, ValueError):
    """The caller's input is wrong. ``field`` names the offending argument where one is to blame."""

    code = "invalid_request"
    status = 400

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ImplausibleEpoch(InvalidRequest):
    """``seen_epoch`` (or ``expected_epoch``) lies more than 60 s ahead of the store's clock (design, section 4)."""

    code = "implausible_epoch"


class UnknownProfile(InvalidRequest):
    """No wire profile of that name is known."""

    code = "unknown_profile"


class UnknownConversation(LimpetError, LookupError):
    """There is no record of that key: never seen, forgotten, or past its retention."""

    code = "unknown_conversation"
    status = 404


class UnknownWorker(LimpetError, LookupError):
    """No worker of that name is registered in the namespace."""

    code = "unknown_worker"
    status = 404


class OtherIncarnation(LimpetError):
    """The worker was registered anew under another incarnation; the one that calls is over and must not serve on."""

    code = "other_incarnation"
    status = 409


class QuotaExceeded(LimpetError):
    """The namespace has had its share for now. ``retry_after_s``: when it may try again."""

    code = "quota_exceeded"
    status = 429

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StaleFence(LimpetError):
    """The fence is not the one that holds the binding now. Nothing was changed (G5).

    ``binding`` is what holds now (None if the epoch is unbound), so that the loser can follow the winner.
    """

    code = "stale_fence"
    status = 409

    def __init__(self, message: str, *, binding: Binding | None = None) -> None:
        super().__init__(message)
        self.binding = binding


class StoreUnavailable(LimpetError, ConnectionError):
    """The store did not answer within the deadline. Whether the call took effect is unknown; a retry with the same
    ``request_id`` is safe."""

    code = "store_unavailable"
    status = 503


class NotDurable(StoreUnavailable):
    """``require_durable`` was set and the answer was ``durable: false``. What happened stands. ``result`` is the answer."""

    code = "not_durable"

    def __init__(self, message: str, *, result: object = None) -> None:
        super().__init__(message)
        self.result = result


class StoreMismatch(LimpetError):
    """The store was set up with another schema or number of partitions than this process was told to use."""

    code = "store_mismatch"
    status = 503


class SchemaTooNew(StoreMismatch):
    """A record carries a schema version that this release cannot read. It is refused, never taken for missing."""

    code = "schema_too_new"


class StoreCorrupt(LimpetError):
    """A key of ours holds something that we did not write."""

    code = "store_corrupt"


_WORDS: dict[str, type[LimpetError]] = {
    "IMPLAUSIBLE_EPOCH": ImplausibleEpoch,
    "OTHER_INCARNATION": OtherIncarnation,
    "TOO_MANY_WORKERS": QuotaExceeded,
    "UNKNOWN_WORKER": UnknownWorker,
    "SCHEMA_TOO_NEW": SchemaTooNew,
    "CORRUPT": StoreCorrupt,
    "WRONGTYPE": StoreCorrupt,
    "CLOCK_BEFORE_2026": StoreMismatch,
}


_WRAPPED: Final = re.compile(
    r"(?:ERR )?Error running script \(call to \w+\): (?:@user_script: ?\d+: )+-?(?=[A-Z][A-Z0-9_]{2,} |The user executing)"
)
_DENIED: Final = ("ACL failure in script", "The user executing the script can't")


def unwrapped(message: str) -> str:
    """What a server said of a command in a script, as it says it of a command alone: ``WORD text``.

    Redis 6.2 wraps it (``ERR Error running script (call to f_..): @user_script:7: @user_script: 7: -READONLY text``), and every
    server calls a right that the script lacked an ``ERR`` in words of its own.
    """
    bare = _WRAPPED.sub("", message, count=1)
    words = bare.removeprefix("ERR ")  # redis-py has removed it already
    return f"NOPERM {words}" if words.startswith(_DENIED) else bare


def error_for_word(message: str) -> LimpetError | None:
    """The typed error for a script's ``error_reply('WORD text')``; None when the WORD is not one of ours."""
    word, _, text = unwrapped(message).partition(" ")
    cls = _WORDS.get(word)
    return None if cls is None else cls(text or word)
