"""Where a binding goes: proposing a worker before the store decides, and moving off one that is lost afterwards."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec
import structlog

from limpet.bind import Bind
from limpet.calls import Answer, Call, Target
from limpet.errors import LimpetError, NotDurable, StaleFence, StoreUnavailable
from limpet.executors.breaker import NotTried
from limpet.opinion import Opinion
from limpet.plumbing import Plumbing
from limpet.registry import Registry
from limpet.results import Binding, Resolution

__all__ = ["Placing", "unseen"]

log = structlog.get_logger("limpet")

MAX_BEHIND: Final = 2048
"""Claims that are being given back, and touches to be written, at once."""
PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 1.0


def unseen(error: BaseException) -> bool:
    """Whether a call that ended so may have made a claim that its caller was not told of."""
    return isinstance(error, asyncio.CancelledError | StoreUnavailable) and not isinstance(error, NotDurable | NotTried)


class _Placed(NamedTuple):
    bind: Bind
    incarnation: str = ""
    proposed: str | None = None


class Placing(Plumbing):
    """Proposals and rebinds, by this replica's view of the workers.

    ``opinion``: of the process that holds this client, set before its first call; None: the registry's word is enough.
    """

    opinion: Opinion | None = None

    async def watch_workers(self) -> bool:
        """Keeps a view of the workers fresh from now on (a resolve with a pool does it too). Whether there is one yet: waits for
        the first, half the deadline at most."""
        return await self._workers_view().ready(self._deadline_s / 2)

    def _workers_view(self) -> Registry:
        """The view of the workers, kept fresh from its first use on."""
        if self._registry is None:
            self._prepare()
            assert self._hub is not None
            self._registry = Registry(
                lambda: self._run(self.commands.workers()), self.bindings_by_worker, self._monotonic, self.opinion
            )
            self._hub.listeners.append(self._registry.on_event)
            self._hub.start()
        return self._registry

    async def _propose(self, bind: Bind, target: Target, exclude: tuple[str, ...] = ()) -> _Placed:
        """The bind with a worker of its pool proposed, and the incarnation that worker has now. The caller's candidate stays."""
        if bind.pool is None:
            return _Placed(bind)
        view = self._workers_view()
        await view.ready(self._deadline_s / 2)
        proposed = None
        if bind.worker is None:
            proposed = view.propose(bind.pool, target.digest, (*bind.exclude, *exclude))
            if proposed is None:
                return _Placed(bind)
            bind = msgspec.structs.replace(bind, worker=proposed)
        known = view.snapshot.workers.get(bind.worker or "") if view.snapshot is not None else None
        return _Placed(bind, known.incarnation if known else "", proposed)

    def _account(self, placed: _Placed, binding: Binding | None) -> None:
        """What was proposed counts only if it became a binding; what was bound without a proposal counts too."""
        view = self._registry
        if view is None:
            return
        bound = binding.worker if binding is not None and binding.action == "bind" else None
        if placed.proposed is not None and bound != placed.proposed:
            view.unbound(placed.proposed)
        if bound is not None and bound != placed.proposed:
            view.bound(bound)

    async def _settle_worker(self, answer: Answer, bind: Bind, target: Target, until: float) -> Answer:
        """After the store's decision: counts our own bind, moves a binding off a worker that is gone, draining or reincarnated,
        and says where the worker is."""
        view = self._registry
        resolution: Resolution = answer.result
        binding = resolution.binding
        if view is None or view.snapshot is None or binding is None:
            return answer
        if binding.action == "continue":
            why = view.snapshot.condemns(binding, bind.pool)
            if why is not None:
                binding = await self._move(binding, bind, target, why, until)
        known = view.snapshot.workers.get(binding.worker or "")
        if known is not None and known.address:
            binding = msgspec.structs.replace(binding, address=known.address)
        if binding is resolution.binding:
            return answer
        return answer._replace(result=msgspec.structs.replace(resolution, binding=binding))

    def _return_unseen(self, ask: Callable[[], Awaitable[Answer]], target: Target) -> None:
        """Whoever asked was cancelled, or the store answered too late: nobody will see the claim that it may have made, and
        others would wait for its ttl. So it is asked for once more (``ask``, under the same request id, which gives the same
        claim) and given back, as soon as the store answers.

        Not where the request id is the caller's own: what becomes of its claim is for his retry to say.
        """
        if self._executor is None or len(self._behind) >= MAX_BEHIND:  # closed meanwhile; or an outage of many: these run out
            return
        task = asyncio.get_running_loop().create_task(self._give_back(ask, target))
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)

    async def _give_back(self, ask: Callable[[], Awaitable[Answer]], target: Target) -> None:
        until, pause = self._monotonic() + self.settings.claim_ttl_ms / 1000, PAUSE_S
        try:
            while True:
                try:
                    result = (await ask()).result
                    break
                except StoreUnavailable:
                    await asyncio.sleep(pause * (0.5 + random.random()))
                    pause = min(pause * 2, MAX_PAUSE_S)
                    if self._monotonic() >= until or self._executor is None:
                        raise
            binding: Binding | None = result.binding if isinstance(result, Resolution) else result
            if binding is None or binding.action != "bind" or binding.state != "claimed" or binding.fence is None:
                return
            await self._run(self.commands.abort(target, binding.fence, reason="cancelled", request_id=self._request_id()))
            self._instruments.bind("aborted")
        except StaleFence:
            log.debug("claim_passed_on", namespace=self.namespace)
        except LimpetError as error:
            log.warning("claim_not_returned", namespace=self.namespace, error=error.code)  # it runs out

    async def _move(self, binding: Binding, bind: Bind, target: Target, why: str, until: float) -> Binding:
        """Rebinds, by compare-and-set; the loser follows the winner."""
        fence = binding.fence or 0
        own = msgspec.structs.replace(bind, worker=None) if bind.worker == binding.worker else bind
        # Reincarnated, it is another worker, which only has the name of the old one.
        lost = () if why == "reincarnated" else (binding.worker or "",)
        placed = await self._propose(own, target, lost)
        rid = self._request_id()

        def build(durable: bool) -> Call[Answer]:
            return self.commands.rebind(
                target,
                fence,
                why,
                worker=placed.bind.worker or "",
                incarnation=placed.incarnation,
                holder=bind.holder or "",
                claim_ttl_ms=bind.claim_ttl_ms or 0,
                request_id=rid,
                durable=durable,
            )

        ours: Binding | None = None
        try:
            moved: Binding = (await self._decide(build, target, False, until=until)).result
            self._instruments.bind("rebound")
            if bind.commit and moved.fence is not None:
                confirm = self.commands.confirm(target, moved.fence, ttl_ms=bind.ttl_ms or 0, request_id=self._request_id())
                committed: Binding = (await self._run(confirm, until)).result
                moved = msgspec.structs.replace(committed, action="bind", rebound=True)
            ours = moved
            return moved
        except StaleFence as lost:
            return lost.binding or binding
        except BaseException as error:
            if unseen(error):
                self._return_unseen(lambda: self._decide(build, target, False), target)
            raise
        finally:
            self._account(placed, ours)
