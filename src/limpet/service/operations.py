"""What each request does with the library: the same function for the route and for the item of a batch."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from limpet import results
from limpet.errors import LimpetError
from limpet.service import messages as m
from limpet.service.auth import Right
from limpet.service.clients import Client
from limpet.service.logs import log_unexpected
from limpet.service.media import JSON, MSGPACK, Decode, Media
from limpet.service.problems import problem_of, unexpected

__all__ = ["HOT", "Context", "Operation"]

SINGLE_BYTES: Final = 64 * 1024
BATCH_BYTES: Final = 1024 * 1024


class Context(NamedTuple):
    """What a call gets beside its body."""

    client: Client
    media: Media
    request_id: str | None
    require_durable: bool


Run = Callable[[Context, Any], Awaitable[Any]]


class Operation:
    """One hot route."""

    __slots__ = ("answer", "decode", "limit", "path", "request", "right", "run")

    def __init__(
        self,
        path: str,
        request: type,
        answer: type,
        run: Run,
        *,
        limit: int = SINGLE_BYTES,
        decoded: type | None = None,
    ) -> None:
        self.path = path
        self.request = request
        self.answer = answer
        self.run = run
        self.limit = limit
        self.right: Right = "resolve"
        self.decode: dict[Media, Decode[Any]] = {media: media.decoder(decoded or request) for media in (JSON, MSGPACK)}


async def _resolve(c: Context, r: m.ResolveRequest) -> Any:
    return await c.client.resolve(
        r.key,
        session_id=r.session_id,
        kind=r.kind,
        parent_key=r.parent_key,
        policy=None if r.policy is None else m.as_policy(r.policy),
        exempt=r.exempt,
        seen_epoch=r.seen_epoch,
        bind=r.bind,
        request_id=c.request_id,
        require_durable=c.require_durable or r.require_durable,
    )


async def _advance(c: Context, r: m.AdvanceRequest) -> Any:
    return await c.client.advance(
        r.key,
        r.reason,
        expected_epoch=r.expected_epoch,
        request_id=c.request_id,
        require_durable=c.require_durable or r.require_durable,
    )


async def _suspend(c: Context, r: m.SuspendRequest) -> Any:
    return await c.client.suspend(r.key, resume_within_s=r.resume_within_s, request_id=c.request_id)


async def _confirm(c: Context, r: m.ConfirmRequest) -> Any:
    return await c.client.confirm(
        r.key,
        session_id=r.session_id,
        fence=r.fence,
        worker=r.worker,
        dp_rank=r.dp_rank,
        ttl_ms=r.ttl_ms,
        request_id=c.request_id,
        require_durable=c.require_durable or r.require_durable,
    )


async def _abort(c: Context, r: m.AbortRequest) -> Any:
    return await c.client.abort(r.key, session_id=r.session_id, fence=r.fence, reason=r.reason, request_id=c.request_id)


async def _release(c: Context, r: m.ReleaseRequest) -> Any:
    return await c.client.release(r.key, session_id=r.session_id, fence=r.fence, reason=r.reason, request_id=c.request_id)


async def _renew(c: Context, r: m.RenewRequest) -> Any:
    return await c.client.renew(r.key, session_id=r.session_id, fence=r.fence, ttl_ms=r.ttl_ms, request_id=c.request_id)


async def _rebind(c: Context, r: m.RebindRequest) -> Any:
    return await c.client.rebind(
        r.key,
        session_id=r.session_id,
        fence=r.fence,
        reason=r.reason,
        worker=r.worker,
        holder=r.holder,
        claim_ttl_ms=r.claim_ttl_ms,
        request_id=c.request_id,
        require_durable=c.require_durable or r.require_durable,
    )


_ITEMS: Final[dict[type, Run]] = {
    m.ResolveItem: _resolve,
    m.AdvanceItem: _advance,
    m.SuspendItem: _suspend,
    m.ConfirmItem: _confirm,
    m.AbortItem: _abort,
    m.ReleaseItem: _release,
    m.RenewItem: _renew,
    m.RebindItem: _rebind,
}
_DECODE_ITEM: Final[dict[Media, Decode[Any]]] = {media: media.decoder(m.Item) for media in (JSON, MSGPACK)}


async def _batch(c: Context, r: m.Batch) -> m.Answers:
    """All items at once: the library sends what is asked in one tick in one write. One that is wrong fails alone."""
    decode = _DECODE_ITEM[c.media]
    # One Idempotency-Key for the whole batch still gives each call an id of its own, the same at a retry.
    stem = None if c.request_id is None else hashlib.sha256(c.request_id.encode()).hexdigest()[:32]

    async def one(index: int, raw: Any) -> m.Answer:
        try:
            item = decode(raw)
            request_id = item.request_id or (None if stem is None else f"{stem}:{index}")
            run = _ITEMS[type(item)]
            return m.Answer(200, await run(Context(c.client, c.media, request_id, c.require_durable), item))
        except LimpetError as error:
            return m.Answer(error.status, problem_of(error))
        except Exception as error:  # noqa: BLE001  (one answer of many; it is logged, the others stand)
            log_unexpected("batch item", error)
            return m.Answer(500, problem_of(unexpected()))

    return m.Answers(await asyncio.gather(*(one(index, raw) for index, raw in enumerate(r.requests))))


_OPERATIONS: Final = (
    Operation("/v1/resolve", m.ResolveRequest, results.Resolution, _resolve),
    Operation("/v1/advance", m.AdvanceRequest, results.Advanced, _advance),
    Operation("/v1/suspend", m.SuspendRequest, results.Suspended, _suspend),
    Operation("/v1/bindings/confirm", m.ConfirmRequest, results.Binding, _confirm),
    Operation("/v1/bindings/abort", m.AbortRequest, results.Binding, _abort),
    Operation("/v1/bindings/renew", m.RenewRequest, results.Binding, _renew),
    Operation("/v1/bindings/release", m.ReleaseRequest, results.Binding, _release),
    Operation("/v1/bindings/rebind", m.RebindRequest, results.Binding, _rebind),
    Operation("/v1/batch", m.BatchRequest, m.Answers, _batch, limit=BATCH_BYTES, decoded=m.Batch),
)
HOT: Final[dict[str, Operation]] = {operation.path: operation for operation in _OPERATIONS}
"""Path -> operation."""
