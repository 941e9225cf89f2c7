"""One turn's hold on a binding: renewed from dispatch on, confirmed once, or given back (design, section 5).

A store that is away never fails a request that an upstream can serve: what could not be written is logged, the claim runs
out by itself and the next turn binds anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypedDict

import msgspec

from limpet.errors import LimpetError, StaleFence, StoreUnavailable
from limpet.results import Binding, Resolution
from limpet.service.clients import Client
from limpet.service.logs import log_unexpected, logger

__all__ = ["Lease"]

RENEWALS_PER_TTL: Final = 3
SHORTEST_S: Final = 0.03


class _Name(TypedDict):
    key: str | None
    session_id: str | None


class Lease:
    """What this request holds. ``binding`` is None for a degraded turn: then nothing is bound, and nothing is renewed."""

    def __init__(self, client: Client, resolution: Resolution, again: Callable[[], Awaitable[Resolution]]) -> None:
        self._client = client
        self._again = again
        self.resolution = resolution
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.lost = False
        self._over = False

    @property
    def binding(self) -> Binding | None:
        """The binding as last known."""
        return self.resolution.binding

    @property
    def action(self) -> str | None:
        """bind, continue, wait, or None."""
        return self.binding.action if self.binding is not None else None

    @property
    def claimed(self) -> bool:
        """Whether this request holds a claim that is neither confirmed nor given back."""
        binding = self.binding
        return binding is not None and binding.action == "bind" and binding.state == "claimed" and not self.lost

    def _name(self) -> _Name:
        if self.resolution.source == "declared":
            return _Name(key=self.resolution.key, session_id=None)
        return _Name(key=None, session_id=self.resolution.session_id)

    # -- renewing ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """From dispatch on: a slow first token must not cost the claim, a long stream not the binding."""
        binding = self.binding
        self._stop()
        if binding is not None and binding.fence is not None and binding.action in ("bind", "continue"):
            self._later(binding.expires_in_ms or 0)

    def _later(self, left_ms: float) -> None:
        if self._over:  # a renewal or confirm that was under way when the request ended
            return
        delay = max(SHORTEST_S, left_ms / 1000 / RENEWALS_PER_TTL)
        self._timer = asyncio.get_running_loop().call_later(delay, self._due, left_ms)

    def _due(self, left_ms: float) -> None:
        self._timer = None
        self.spawn(self._renew(left_ms))

    async def _renew(self, left_ms: float) -> None:
        binding = self.binding
        if binding is None or binding.fence is None or self.lost:
            return
        try:
            renewed = await self._client.renew(**self._name(), fence=binding.fence)
            left_ms = renewed.expires_in_ms or left_ms
        except StaleFence:
            self.lost = True
            return
        except StoreUnavailable:
            left_ms = max(100.0, left_ms / 2)
        if self.binding is binding and self._timer is None and not self.lost:
            self._later(left_ms)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- work beside the stream ----------------------------------------------------------------------------------------

    def spawn(self, work: Awaitable[Any]) -> None:
        """Start store work that the stream does not wait for; :meth:`settle` does."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, LimpetError):
                logger.warning("not written", code=error.code)
            else:
                log_unexpected("work beside a stream", error)

    async def settle(self) -> None:
        """Until the store work that was started is done. Each call of it is bounded by the client's deadline."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def stop(self) -> bool:
        """No more renewals, ever: the request is over. Whether store work is still to be settled."""
        self._over = True
        self._stop()
        return bool(self._tasks)

    # -- what becomes of the claim -------------------------------------------------------------------------------------

    async def confirm(self, worker: str | None = None, dp_rank: int | None = None) -> None:
        """The claim becomes a binding to whoever served."""
        binding = self.binding
        if not self.claimed or binding is None or binding.fence is None:
            return
        try:
            self._take(await self._client.confirm(**self._name(), fence=binding.fence, worker=worker, dp_rank=dp_rank))
            self.start()
        except StaleFence:
            self.lost = True
            logger.warning("confirm lost")
        except StoreUnavailable as error:
            logger.warning("not confirmed", code=error.code)

    async def abort(self, reason: str) -> None:
        """The claim goes, so that the next turn is told to bind."""
        self._stop()
        binding = self.binding
        if not self.claimed or binding is None or binding.fence is None:
            return
        self.lost = True
        try:
            await self._client.abort(**self._name(), fence=binding.fence, reason=reason)
        except (StaleFence, StoreUnavailable) as error:
            logger.warning("not aborted", code=error.code)

    async def release(self) -> None:
        """The last turn is over."""
        self._stop()
        binding = self.binding
        if binding is None or binding.fence is None or binding.state != "bound" or self.lost:
            return
        try:
            await self._client.release(**self._name(), fence=binding.fence, reason="final")
        except (StaleFence, StoreUnavailable) as error:
            logger.warning("not released", code=error.code)

    async def rebind(self, reason: str, worker: str | None, *, pool: str | None = None, exclude: Sequence[str] = ()) -> bool:
        """The worker is lost: claim anew, with a candidate if there is one, or with one of the pool's. Whoever comes too late
        follows the winner.

        False when the store cannot say, or when this turn does not hold the binding: then nothing is bound.
        """
        self._stop()
        await self.settle()
        binding = self.binding
        if binding is None or binding.fence is None or binding.action not in ("bind", "continue") or self.lost:
            return False
        try:
            self._take(
                await self._client.rebind(
                    **self._name(), fence=binding.fence, reason=reason, worker=worker, pool=pool, exclude=exclude
                )
            )
            return True
        except StaleFence:
            self.resolution = await self._again()
            return self.binding is not None
        except StoreUnavailable as error:
            logger.warning("not rebound", code=error.code)
            self.lost = True
            return False

    def _take(self, binding: Binding) -> None:
        keeps = self.binding is not None and self.binding.rebound
        if keeps and not binding.rebound:
            binding = msgspec.structs.replace(binding, rebound=True)
        self.resolution = msgspec.structs.replace(self.resolution, binding=binding)
