"""The asyncio client: what a gateway replica holds (design, sections 5 and 8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from limpet.bind import Bind
from limpet.binding_calls import BindingCalls
from limpet.client_settings import Settings
from limpet.errors import InvalidRequest
from limpet.resolving import KINDS, Kind, Resolving
from limpet.response_calls import ResponseCalls
from limpet.results import Advanced, Forgotten, Suspended
from limpet.turn import Turn
from limpet.validate import check_epoch, check_reason, check_request_id, check_text
from limpet.worker_calls import WorkerCalls

__all__ = ["KINDS", "Kind", "Limpet", "Settings"]

MAX_WINDOW_S: Final = 31_536_000


class Limpet(Resolving, BindingCalls, ResponseCalls, WorkerCalls):
    """The coordinator's client. One per process and namespace; its calls may run concurrently by the thousand.

    Use :meth:`connect`, then ``async with``. Every call may raise :class:`~limpet.errors.InvalidRequest` (nothing was sent)
    and, but for :meth:`resolve`, :class:`~limpet.errors.StoreUnavailable`.
    """

    def turn(
        self,
        key: str | None = None,
        *,
        session_id: str,
        bind: Bind | Mapping[str, object] | bool | None = True,
        **options: Any,
    ) -> Turn:
        """One turn as a context manager: resolves with ``bind`` (and any other argument of :meth:`resolve`), publishes the scope,
        renews while it is open; confirms on success, aborts on failure or cancellation."""
        return Turn(self, lambda: self.resolve(key, session_id=session_id, bind=bind, **options), key, session_id)

    # -- the host's own decisions --------------------------------------------------------------------------------------

    async def advance(
        self,
        key: str,
        reason: str,
        *,
        expected_epoch: int | None = None,
        request_id: str | None = None,
        require_durable: bool = False,
    ) -> Advanced:
        """A new conversation begins (``/new``, a switch, a recycled session ...). With ``expected_epoch`` a compare-and-set.

        Raises:
            ImplausibleEpoch: ``expected_epoch`` is more than 60 s ahead of the store's clock.
            StoreUnavailable: whether it happened is unknown; retry with the same ``request_id``.
            NotDurable: ``require_durable`` was set, and no replica has acknowledged it.
        """
        target = self.commands.declared(check_text(key, "key"))
        check_reason(reason)
        expected = 0 if expected_epoch is None else check_epoch(expected_epoch, "expected_epoch")
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        self._changing(target)
        answer = await self._decide(
            lambda durable: self.commands.advance(target, reason, expected_epoch=expected, request_id=rid, durable=durable),
            target,
            require_durable,
        )
        self._changing(target)
        result: Advanced = answer.result
        if result.applied and not answer.replayed:
            self._instruments.reset(reason)
        return result

    async def suspend(self, key: str, *, resume_within_s: float | None = None, request_id: str | None = None) -> Suspended:
        """The next turn begins a new conversation; with ``resume_within_s`` a turn within that time resumes the old one."""
        target = self.commands.declared(check_text(key, "key"))
        window_ms = 0
        if resume_within_s is not None:
            if isinstance(resume_within_s, bool) or not 0.001 <= resume_within_s <= MAX_WINDOW_S:
                raise InvalidRequest(f"resume_within_s must be from 0.001 to {MAX_WINDOW_S} seconds.", field="resume_within_s")
            window_ms = int(resume_within_s * 1000)
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        self._changing(target)
        answer = await self._run(self.commands.suspend(target, window_ms=window_ms, request_id=rid))
        self._changing(target)
        self._note(target, answer)
        suspended: Suspended = answer.result
        return suspended

    async def forget(self, key: str, *, expected_epoch: int | None = None, request_id: str | None = None) -> Forgotten:
        """The record goes, its binding with it; the epoch is not forgotten: the next one is larger (G3)."""
        target = self.commands.declared(check_text(key, "key"))
        expected = 0 if expected_epoch is None else check_epoch(expected_epoch, "expected_epoch")
        rid = self._request_id() if request_id is None else check_request_id(request_id)
        self._changing(target)
        answer = await self._run(self.commands.forget(target, expected_epoch=expected, request_id=rid))
        self._changing(target)
        forgotten: Forgotten = answer.result
        if forgotten.applied:
            self._memory.forget(target.digest)
        return forgotten
