"""The registry calls, and draining (design, section 5: Workers)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final

import msgspec
import structlog

from limpet.bind import MAX_CLAIM_TTL_MS
from limpet.errors import InvalidRequest, StoreUnavailable, UnknownWorker
from limpet.maintenance import Drained
from limpet.plumbing import Plumbing
from limpet.validate import check_int, check_text
from limpet.workers import HEARTBEAT_TTL_MS, MAX_CAPACITY, MIN_CAPACITY, Worker

__all__ = ["SETTLE_S", "WorkerCalls"]

log = structlog.get_logger("limpet")

MAX_LABELS: Final = 32
SETTLE_S: Final = 2.0
"""After this long every replica has heard of a mark (it looks at least once a second), and what it proposed before is claimed."""
TELL_EVERY_S: Final = 0.25


class WorkerCalls(Plumbing):
    """Workers come, beat, drain and go."""

    # -- workers -------------------------------------------------------------------------------------------------------

    async def register(
        self,
        worker: str,
        *,
        pool: str,
        address: str = "",
        capacity: float = 1.0,
        incarnation: str = "",
        labels: Mapping[str, str] | None = None,
        ttl_ms: int = HEARTBEAT_TTL_MS,
        on_behalf: bool = False,
    ) -> Worker:
        """A worker comes, or comes back: under another ``incarnation`` it is another worker. ``ttl_ms`` 0: a static one, which
        needs no heartbeat. ``on_behalf``: somebody else says so (a gateway, of an upstream), who knows no incarnation; a worker
        that registered itself and lives is then left as it is, and a drained one stays drained. Idempotent, so any number of
        gateways may say it. Raises QuotaExceeded when the namespace has too many."""
        check_text(worker, "worker")
        check_text(pool, "pool")
        for name, text in (("address", address), ("incarnation", incarnation)):
            if text:
                check_text(text, name)
        if isinstance(capacity, bool) or not isinstance(capacity, int | float) or not MIN_CAPACITY <= capacity <= MAX_CAPACITY:
            raise InvalidRequest(f"capacity must be a number from {MIN_CAPACITY} to {MAX_CAPACITY:,}.", field="capacity")
        if ttl_ms:
            check_int(ttl_ms, "ttl_ms", 100, MAX_CLAIM_TTL_MS)
        marks = dict(labels or {})
        if len(marks) > MAX_LABELS:
            raise InvalidRequest(f"labels has more than {MAX_LABELS} entries.", field="labels")
        for name, text in marks.items():
            check_text(name, "labels")
            check_text(text, "labels")
        return await self._run(
            self.commands.register(worker, pool, address, float(capacity), incarnation, marks, ttl_ms, on_behalf=on_behalf)
        )

    async def heartbeat(self, worker: str, *, incarnation: str | None = None) -> Worker:
        """A worker is alive. Raises UnknownWorker, and OtherIncarnation when it has been registered anew since."""
        who = "" if incarnation is None else check_text(incarnation, "incarnation")
        return await self._run(self.commands.heartbeat(check_text(worker, "worker"), who))

    async def undrain(self, worker: str) -> Worker:
        """The worker may be proposed again. Raises UnknownWorker."""
        return await self._run(self.commands.mark(check_text(worker, "worker"), "undrain"))

    async def remove_worker(self, worker: str) -> Worker:
        """The worker is taken out; its conversations are rebound in their next turns. Raises UnknownWorker."""
        return await self._run(self.commands.mark(check_text(worker, "worker"), "remove"))

    async def mark_draining(self, worker: str) -> Worker:
        """The worker is proposed no more, and its conversations are rebound in their next turns. Raises UnknownWorker."""
        return await self._run(self.commands.mark(check_text(worker, "worker"), "drain"))

    async def drain(self, worker: str, *, resume: bool = False, moved: int = 0) -> AsyncIterator[Drained]:
        """Marks the worker as draining and takes its bindings off it in bounded batches; yields the progress of one pass, last
        with ``may_stop`` where nothing is left. Every replica hears of the progress (event ``drain``). Resumable: what is left
        shows in the store.

        ``may_stop`` is said only of a pass that began :data:`SETTLE_S` after the mark: until then a replica that has not heard
        of it may still propose the worker. A pass that finds nothing left earlier is followed by one that looks again. Whoever
        names the worker as a candidate of their own can bind to it at any time; that is not ours to promise.

        With ``resume`` a worker that is not draining (undrained meanwhile, or another incarnation) is left alone: nothing is
        yielded. ``moved``: what earlier passes took off, so that the progress goes on from there.

        Raises UnknownWorker, StoreUnavailable.
        """
        marked = await (self._registered(worker) if resume else self.mark_draining(worker))
        if marked.draining_for_ms is None:
            return
        settled_at = self._monotonic() + SETTLE_S - (marked.draining_for_ms or 0) / 1000
        maintenance, tell = await self._maintenance(), _Teller(self)
        while True:
            began = self._monotonic()
            async for progress in maintenance.drain(worker, self.commands.keyspace.events):
                last = msgspec.structs.replace(progress, moved=moved + progress.moved)
                if not last.may_stop:
                    await tell(last)
                    yield last
            if not last.may_stop:
                return
            if began >= settled_at:
                break
            moved = last.moved
            await asyncio.sleep(max(0.0, settled_at - self._monotonic()))
        await tell(last)
        yield last

    async def _registered(self, worker: str) -> Worker:
        found = (await self._run(self.commands.workers())).workers.get(check_text(worker, "worker"))
        if found is None:
            raise UnknownWorker(
                "No worker of that name is registered; it registers itself with PUT /v1/workers/{id}, or `register` in Python."
            )
        return found

    async def workers(self, *, counts: bool = False) -> list[Worker]:
        """Every registered worker; with ``counts`` how many live bindings each has, counted in the store."""
        snapshot = await self._run(self.commands.workers())
        listed = sorted(snapshot.workers.values(), key=lambda each: (each.pool, each.worker))
        if not counts:
            return listed
        loads = await self.bindings_by_worker()
        return [msgspec.structs.replace(each, bindings=loads.get(each.worker, 0)) for each in listed]


class _Teller:
    """Tells all replicas of a drain's progress, a few times a second. News, not truth: what is left shows in the store."""

    def __init__(self, plumbing: Plumbing) -> None:
        self._plumbing = plumbing
        self._again_at = 0.0
        self._told = (-1, -1, -1.0, False)

    async def __call__(self, drained: Drained) -> None:
        """One state of the drain."""
        plumbing = self._plumbing
        now = plumbing._monotonic()
        news = (drained.moved, drained.left, drained.done, drained.may_stop)
        if news == self._told or (now < self._again_at and drained.done < 1):
            return
        self._told = news
        self._again_at = now + TELL_EVERY_S
        space = plumbing.commands.keyspace
        how = "may_stop" if drained.may_stop else f"{drained.done:.3f}"
        payload = msgspec.msgpack.encode(("drain", "work", "", drained.moved, drained.left, drained.worker, how))
        try:
            await plumbing.executor.command("PUBLISH", space.events, payload, timeout_s=plumbing.settings.deadline_ms / 1000)
        except StoreUnavailable:
            log.debug("drain_untold", worker=drained.worker)
