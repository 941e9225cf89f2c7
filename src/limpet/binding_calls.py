"""The binding calls: confirm, abort, renew, release, rebind (design, section 5: Binding life cycle)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from limpet.bind import MAX_BIND_TTL_MS, MAX_CLAIM_TTL_MS, Bind
from limpet.calls import Answer, Call, Target
from limpet.errors import InvalidRequest, StaleFence
from limpet.placing import Placing, unseen
from limpet.results import Binding
from limpet.validate import check_epoch, check_int, check_reason, check_request_id, check_text

__all__ = ["BindingCalls"]


class BindingCalls(Placing):
    """The calls that name a binding by key or session id, and by its fence."""

    # -- the binding ---------------------------------------------------------------------------------------------------

    def _named(self, key: str | None, session_id: str | None, fence: int) -> Target:
        check_epoch(fence, "fence")
        if (key is None) == (session_id is None):
            raise InvalidRequest("Name the binding by key or by session_id: exactly one of the two.", field="key")
        if key is not None:
            return self.commands.declared(check_text(key, "key"))
        assert session_id is not None
        return self.commands.physical(check_text(session_id, "session_id"))

    async def _bound(
        self, operation: str, build: Callable[[bool], Call[Answer]], target: Target, require_durable: bool | None = None
    ) -> Binding:
        """A binding call. ``require_durable`` is None for those that the guarantees do not rest on: they wait for nobody."""
        self._changing(target)
        try:
            if require_durable is None:
                answer = await self._run(build(False))
                self._note(target, answer)
            else:
                answer = await self._decide(build, target, require_durable)
        except StaleFence:
            self._instruments.fence_rejection(operation)
            raise
        finally:
            self._changing(target)
        binding: Binding = answer.result
        return binding

    async def confirm(
        self,
        key: str | None = None,
        *,
        session_id: str | None = None,
        fence: int,
        worker: str | None = None,
        dp_rank: int | None = None,
        ttl_ms: int | None = None,
        request_id: str | None = None,
        require_durable: bool = False,
    ) -> Binding:
        """The claim becomes a binding, to the ``worker`` that really served if one is named. Accepted after the claim's ttl too,
        as long as nobody claimed since. As of all binding calls: raises StaleFence when the fence does not hold it."""
        target = self._named(key, session_id, fence)
        who = "" if worker is None else check_text(worker, "worker")
        rank = -1 if dp_rank is None else check_int(dp_rank, "dp_rank", 0, 2**31 - 1)
        ttl = 0 if ttl_ms is None else check_int(ttl_ms, "ttl_ms", 1000, MAX_BIND_TTL_MS)
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        view = self._registry.snapshot if self._registry is not None else None
        known = view.workers.get(who) if view is not None else None
        incarnation = known.incarnation if known is not None else ""
        binding = await self._bound(
            "confirm",
            lambda durable: self.commands.confirm(
                target, fence, worker=who, dp_rank=rank, incarnation=incarnation, ttl_ms=ttl, request_id=rid, durable=durable
            ),
            target,
            require_durable,
        )
        self._instruments.bind("confirmed")
        return binding

    async def abort(
        self,
        key: str | None = None,
        *,
        session_id: str | None = None,
        fence: int,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> Binding:
        """The first request failed: the claim goes, and the next turn is told to bind."""
        target = self._named(key, session_id, fence)
        why = "aborted" if reason is None else check_reason(reason)
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        binding = await self._bound("abort", lambda _: self.commands.abort(target, fence, reason=why, request_id=rid), target)
        self._instruments.bind("aborted")
        return binding

    async def release(
        self,
        key: str | None = None,
        *,
        session_id: str | None = None,
        fence: int,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> Binding:
        """The conversation leaves its worker. Idempotent."""
        target = self._named(key, session_id, fence)
        why = "released" if reason is None else check_reason(reason)
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        binding = await self._bound("release", lambda _: self.commands.release(target, fence, reason=why, request_id=rid), target)
        self._instruments.bind("released")
        return binding

    async def renew(
        self,
        key: str | None = None,
        *,
        session_id: str | None = None,
        fence: int,
        ttl_ms: int | None = None,
        request_id: str | None = None,
    ) -> Binding:
        """A claim or binding lives on, by ``ttl_ms`` or its default; an activity."""
        target = self._named(key, session_id, fence)
        ttl = 0 if ttl_ms is None else check_int(ttl_ms, "ttl_ms", 100, MAX_BIND_TTL_MS)
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        return await self._bound("renew", lambda _: self.commands.renew(target, fence, ttl_ms=ttl, request_id=rid), target)

    async def rebind(
        self,
        key: str | None = None,
        *,
        session_id: str | None = None,
        fence: int,
        reason: str,
        worker: str | None = None,
        pool: str | None = None,
        exclude: Sequence[str] = (),
        holder: str | None = None,
        claim_ttl_ms: int | None = None,
        request_id: str | None = None,
        require_durable: bool = False,
    ) -> Binding:
        """The worker is lost: claims anew with a larger fence, by compare-and-set on ``fence``. The loser gets StaleFence, whose
        ``binding`` is the winner's to follow. With a ``pool`` and no ``worker`` of the caller's own, one is proposed as by
        :meth:`resolve`, none of ``exclude`` (at most 64)."""
        target = self._named(key, session_id, fence)
        check_reason(reason)
        if worker is not None:
            check_text(worker, "worker")
        claimer = "" if holder is None else check_text(holder, "holder")
        ttl = 0 if claim_ttl_ms is None else check_int(claim_ttl_ms, "claim_ttl_ms", 100, MAX_CLAIM_TTL_MS)
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        asked = Bind.parse(Bind(worker=worker, pool=pool, exclude=tuple(exclude)))
        assert asked is not None
        placed = await self._propose(asked, target)

        def build(durable: bool) -> Call[Answer]:
            return self.commands.rebind(
                target,
                fence,
                reason,
                worker=placed.bind.worker or "",
                incarnation=placed.incarnation,
                holder=claimer,
                claim_ttl_ms=ttl,
                request_id=rid,
                durable=durable,
            )

        try:
            binding = await self._bound("rebind", build, target, require_durable)
        except BaseException as error:
            if request_id is None and unseen(error):
                self._return_unseen(lambda: self._decide(build, target, False), target)
            self._account(placed, None)
            raise
        self._account(placed, binding)
        self._instruments.bind("rebound")
        return binding
