"""One turn as a context manager: claims, publishes the scope, renews while it is open, confirms or aborts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypedDict

import structlog

from limpet.context import Published
from limpet.errors import LimpetError, StaleFence, StoreUnavailable
from limpet.results import Binding, Resolution

if TYPE_CHECKING:
    from types import TracebackType

    from limpet.binding_calls import BindingCalls

__all__ = ["Turn"]

log = structlog.get_logger("limpet.turn")

RENEWALS_PER_TTL: Final = 3
"""A claim or binding is renewed this often within its ttl, so that two renewals may fail before it is over."""


class _Name(TypedDict):
    key: str | None
    session_id: str | None


class Turn:
    """What ``async with client.turn(...)`` gives. After leaving: confirmed if the body succeeded, aborted if it did not.

    ``lost`` is True once a renewal, confirm or abort found that another claim holds the binding: the work of this turn is
    stale, and its worker should refuse it by its fence.
    """

    def __init__(
        self, client: BindingCalls, resolve: Callable[[], Awaitable[Resolution]], key: str | None, session_id: str
    ) -> None:
        self._client = client
        self._resolve = resolve
        self._key = key
        self._session_id = session_id
        self._resolution: Resolution | None = None
        self._publication: Published | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._worker: str | None = None
        self._dp_rank: int | None = None
        self._holds = False
        self.binding: Binding | None = None
        self.lost = False
        self.final = False
        self.publishes = True

    @property
    def resolution(self) -> Resolution:
        """What the turn resolved to. Raises RuntimeError before it was entered."""
        if self._resolution is None:
            raise RuntimeError("The turn has not been entered; use it with `async with`.")
        return self._resolution

    @property
    def scope(self) -> str:
        """The affinity token for the wire."""
        return self.resolution.scope

    @property
    def epoch(self) -> int | None:
        """The generation of the key; None for a physical or degraded turn."""
        return self.resolution.epoch

    @property
    def session_id(self) -> str:
        """The caller's physical id."""
        return self._session_id

    @property
    def publishable(self) -> str | None:
        """What entering publishes: the declared scope, or None, which shadows the parent's (design, section 5: Context)."""
        return self.scope if self.resolution.source == "declared" else None

    def served_by(self, worker: str, dp_rank: int | None = None) -> None:
        """Names the worker that really served, for the confirm at the end; it is authoritative."""
        self._worker, self._dp_rank = worker, dp_rank

    async def confirm(self, worker: str | None = None, dp_rank: int | None = None) -> Binding | None:
        """Confirms now instead of at the end (say, after the first byte of a good answer). None if there is nothing to confirm.

        Raises:
            StaleFence: another claim holds the binding.
            StoreUnavailable: whether it was confirmed is unknown.
        """
        if not self._holds or self.binding is None or self.binding.fence is None:
            return None
        try:
            self.binding = await self._client.confirm(
                **self._name(),
                fence=self.binding.fence,
                worker=worker or self._worker,
                dp_rank=self._dp_rank if dp_rank is None else dp_rank,
            )
        except StaleFence:
            self._holds, self.lost = False, True
            raise
        self._holds = False
        return self.binding

    async def abort(self, reason: str = "aborted") -> None:
        """Gives the claim back, so that the next turn is told to bind. Does nothing if there is none."""
        if not self._holds or self.binding is None or self.binding.fence is None:
            return
        self._holds = False
        try:
            self.binding = await self._client.abort(**self._name(), fence=self.binding.fence, reason=reason)
        except StaleFence:
            self.lost = True

    def _name(self) -> _Name:
        """How the binding calls name this binding: by key, or by session id for a physical one."""
        if self.resolution.source == "declared":
            return _Name(key=self._key, session_id=None)
        return _Name(key=None, session_id=self._session_id)

    async def __aenter__(self) -> Turn:
        self._resolution = resolution = await self._resolve()
        self.binding = binding = resolution.binding
        if self.publishes:
            self._publication = Published(self.publishable)
        if binding is not None and binding.fence is not None and binding.action in ("bind", "continue"):
            self._holds = binding.action == "bind" and binding.state == "claimed"
            self._renewing = asyncio.get_running_loop().create_task(self._renew(binding.fence, binding.expires_in_ms or 0))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            renewing, self._renewing = self._renewing, None  # it holds us, too
            if renewing is not None:
                settling = asyncio.get_running_loop().create_task(self._settle(renewing, error))
                try:
                    await asyncio.shield(settling)
                except asyncio.CancelledError:
                    # A turn that is cancelled while it is left must still confirm its claim or give it back. Waited for, since
                    # the client may be closed next; the client's deadline bounds it.
                    await asyncio.wait([settling])
                    raise
        finally:
            if self._publication is not None:
                self._publication.end()

    async def _settle(self, renewing: asyncio.Task[None], error: BaseException | None) -> None:
        renewing.cancel()
        await asyncio.wait([renewing])
        if error is None:
            await self._settle_well()
        else:
            await self._settle_badly(error)

    async def _settle_well(self) -> None:
        try:
            await self.confirm()
        except StaleFence:
            log.warning("turn_lost", operation="confirm")  # the work is done; its binding is another's now
        except StoreUnavailable:
            log.warning("turn_unconfirmed")  # the claim runs out by itself, and the next turn binds anew

    async def _settle_badly(self, error: BaseException) -> None:
        try:
            await self.abort("cancelled" if isinstance(error, asyncio.CancelledError) else "failed")
        except LimpetError as problem:  # the body's own error is what the caller must see
            log.warning("turn_unaborted", error=problem.code)

    async def _renew(self, fence: int, left_ms: int) -> None:
        while True:
            await asyncio.sleep(max(0.01, left_ms / 1000 / RENEWALS_PER_TTL))
            try:
                renewed = await self._client.renew(**self._name(), fence=fence)
                left_ms = renewed.expires_in_ms or left_ms
            except StaleFence:
                self.lost = True
                return
            except StoreUnavailable:
                left_ms = max(100, left_ms // 2)  # soon again: what is left of the ttl is all there is
