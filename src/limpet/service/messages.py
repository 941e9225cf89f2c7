"""What the routes take: one frozen struct per call, decoded and type-checked in C (design, section 7).

Types, ranges and unknown fields are refused here; what needs more than one look (bytes of UTF-8, control characters,
zones, "exactly one of key and session_id") is the library's, so that it holds for every caller, not only over HTTP.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from limpet.bind import Bind
from limpet.policy import Policy

__all__ = [
    "MAX_BATCH",
    "AbortItem",
    "AbortRequest",
    "AdvanceItem",
    "AdvanceRequest",
    "Answer",
    "Answers",
    "Batch",
    "BatchRequest",
    "ConfirmItem",
    "ConfirmRequest",
    "Daily",
    "Item",
    "PolicyRequest",
    "RebindItem",
    "RebindRequest",
    "ReleaseItem",
    "ReleaseRequest",
    "RenewItem",
    "RenewRequest",
    "ResolveItem",
    "ResolveRequest",
    "SuspendItem",
    "SuspendRequest",
    "as_policy",
]

MAX_BATCH: Final = 256

Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256, description="1 to 256 bytes of UTF-8, no control characters")]
Name: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=64, description="a-z, 0-9, _, . and -, first a letter or digit"),
]
Tick: TypeAlias = Annotated[int, Meta(ge=1, le=2**53 - 1, description="an epoch or a fence")]
Rank: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]
BindTtl: TypeAlias = Annotated[int, Meta(ge=1000, le=31_536_000_000, description="milliseconds, idle and sliding")]
ClaimTtl: TypeAlias = Annotated[int, Meta(ge=100, le=3_600_000, description="milliseconds")]
RenewTtl: TypeAlias = Annotated[int, Meta(ge=100, le=31_536_000_000, description="milliseconds")]


class Daily(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A daily reset: at the first instant of each local day whose wall time is at or after ``at``."""

    at: Annotated[str, Meta(max_length=8, description="HH:MM")]
    tz: Annotated[str, Meta(max_length=64, description="an IANA zone")]


class PolicyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a conversation resets by itself. Empty: never (design, section 5)."""

    idle_s: Annotated[float, Meta(ge=1, le=31_536_000, description="seconds")] | None = None
    daily: Daily | None = None


@lru_cache(maxsize=256)
def as_policy(request: PolicyRequest) -> Policy:
    """The library's policy; cached, since a host sends the same few with every turn. Raises InvalidRequest."""
    fields: dict[str, Any] = {}
    if request.idle_s is not None:
        fields["idle_s"] = int(request.idle_s) if request.idle_s.is_integer() else request.idle_s
    if request.daily is not None:
        fields["daily"] = {"at": request.daily.at, "tz": request.daily.tz}
    return Policy.parse(fields)


class ResolveRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where does this turn belong? With ``bind``, also: which worker holds it, or may I claim it?"""

    session_id: Text
    key: Text | None = None
    kind: Literal["turn", "fork", "delegate", "tool", "background"] = "turn"
    parent_key: Text | None = None
    policy: PolicyRequest | None = None
    exempt: bool = False
    seen_epoch: Tick | None = None
    bind: bool | Bind | None = None
    require_durable: bool = False


class AdvanceRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new conversation begins under this key. With ``expected_epoch`` a compare-and-set."""

    key: Text
    reason: Name
    expected_epoch: Tick | None = None
    require_durable: bool = False


class SuspendRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The next turn resets, unless it comes within ``resume_within_s``."""

    key: Text
    resume_within_s: Annotated[int, Meta(ge=1, le=31_536_000, description="seconds")] | None = None


class ConfirmRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The claim became a binding; ``worker`` is who actually served. Exactly one of ``key`` and ``session_id``."""

    fence: Tick
    key: Text | None = None
    session_id: Text | None = None
    worker: Text | None = None
    dp_rank: Rank | None = None
    ttl_ms: BindTtl | None = None
    require_durable: bool = False


class AbortRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The claimed request failed; the next turn is told ``bind``."""

    fence: Tick
    key: Text | None = None
    session_id: Text | None = None
    reason: Name | None = None


class ReleaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The binding ends. Idempotent."""

    fence: Tick
    key: Text | None = None
    session_id: Text | None = None
    reason: Name | None = None


class RenewRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The claim or binding lives on, and was active now."""

    fence: Tick
    key: Text | None = None
    session_id: Text | None = None
    ttl_ms: RenewTtl | None = None


class RebindRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The worker is lost: claim anew, by compare-and-set on the fence."""

    fence: Tick
    reason: Name
    key: Text | None = None
    session_id: Text | None = None
    worker: Text | None = None
    holder: Text | None = None
    claim_ttl_ms: ClaimTtl | None = None
    require_durable: bool = False


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch as it is decoded: its items stay raw, so that one that is wrong fails alone."""

    requests: Annotated[list[msgspec.Raw], Meta(max_length=MAX_BATCH)]


class ResolveItem(ResolveRequest, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="resolve"):
    """A resolve in a batch."""

    request_id: Text | None = None


class AdvanceItem(AdvanceRequest, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="advance"):
    """An advance in a batch."""

    request_id: Text | None = None


class SuspendItem(SuspendRequest, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="suspend"):
    """A suspend in a batch."""

    request_id: Text | None = None


class ConfirmItem(ConfirmRequest, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="confirm"):
    """A confirm in a batch."""

    request_id: Text | None = None


class AbortItem(AbortRequest, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="abort"):
    """An abort in a batch."""

    request_id: Text | None = None


class ReleaseItem(ReleaseRequest, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="release"):
    """A release in a batch."""

    request_id: Text | None = None


class RenewItem(RenewRequest, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="renew"):
    """A renew in a batch."""

    request_id: Text | None = None


class RebindItem(RebindRequest, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="rebind"):
    """A rebind in a batch."""

    request_id: Text | None = None


Item: TypeAlias = ResolveItem | AdvanceItem | SuspendItem | ConfirmItem | AbortItem | ReleaseItem | RenewItem | RebindItem


class BatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Up to 256 calls, each of which succeeds or fails alone, in no particular order."""

    requests: Annotated[list[Item], Meta(max_length=MAX_BATCH)]


class Answer(msgspec.Struct, frozen=True):
    """The answer to one call of a batch: what it would have got by itself."""

    status: int
    body: Any


class Answers(msgspec.Struct, frozen=True):
    """The answers of a batch, in the order of its requests."""

    answers: list[Answer]
