"""``/v1/workers``: the registry over HTTP (design, sections 5 and 7).

Rights: whoever may resolve may look (the answers of a resolve name the workers anyhow) and beat, so that a worker needs no more
than ``resolve`` to stay alive; ``admin`` alone may do both too. Everything that changes the fleet needs ``admin``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.types import Receive, Scope, Send

from limpet.errors import UnknownWorker
from limpet.service.answers import name_of, need, nothing, query_of, read, send_answer
from limpet.service.auth import Guard, Right
from limpet.service.clients import Clients, Entry
from limpet.service.counts import Counts
from limpet.service.drains import Drain, Drains
from limpet.service.media import JSON, MSGPACK, Decode, Media
from limpet.service.problems import NotFound
from limpet.workers import HEARTBEAT_TTL_MS, MAX_CAPACITY, MIN_CAPACITY, Worker

__all__ = ["PATH", "HeartbeatRequest", "RegisterRequest", "WorkerList", "WorkerView", "Workers"]

PATH: Final = b"/v1/workers"
VERBS: Final = ("heartbeat", "drain", "undrain")


class RegisterRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker comes, or comes back: under another ``incarnation`` it is another worker. ``ttl_ms`` 0: it needs no heartbeat."""

    pool: Annotated[str, Meta(min_length=1, max_length=256)]
    address: Annotated[str, Meta(max_length=256)] = ""
    capacity: Annotated[float, Meta(ge=MIN_CAPACITY, le=MAX_CAPACITY, description="any unit; workers share in proportion")] = 1.0
    incarnation: Annotated[str, Meta(max_length=256, description="says which life of the worker this is")] = ""
    labels: Annotated[dict[str, str], Meta(max_length=32)] = {}
    ttl_ms: Annotated[int, Meta(ge=0, le=3_600_000, description="of a heartbeat; 0: never gone")] = HEARTBEAT_TTL_MS


class HeartbeatRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The worker is alive. With ``incarnation``, refused (409) if it has been registered anew under another."""

    incarnation: Annotated[str, Meta(min_length=1, max_length=256)] | None = None


class WorkerView(msgspec.Struct, frozen=True):
    """A worker, how many live bindings it has (counted within the last seconds), and its drain, where one is known."""

    worker: str
    pool: str
    address: str
    capacity: float
    incarnation: str
    labels: dict[str, str]
    ttl_ms: int
    state: str
    since_ms: int
    heartbeat_age_ms: int
    bindings: int
    drain: Drain | None = None


class WorkerList(msgspec.Struct, frozen=True):
    """The registered workers, by pool and name. ``unregistered``: live bindings to workers that nobody registered (routers choose
    such ones); ``unnamed``: claims that name no worker yet."""

    workers: list[WorkerView]
    unregistered: int
    unnamed: int


_REGISTER: Final[dict[Media, Decode[Any]]] = {media: media.decoder(RegisterRequest) for media in (JSON, MSGPACK)}
_BEAT: Final[dict[Media, Decode[Any]]] = {media: media.decoder(HeartbeatRequest) for media in (JSON, MSGPACK)}


class Workers:
    """The routes.

    Args:
        guard: who may do what.
        clients: the library, by namespace.
        counts: live bindings.
        drains: those of this process.
    """

    def __init__(self, guard: Guard, clients: Clients, counts: Counts, drains: Drains) -> None:
        self._guard = guard
        self._clients = clients
        self._counts = counts
        self._drains = drains

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. Raises LimpetError, which the service answers with a problem document."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        method: str = scope["method"]
        parts: list[bytes] = scope["raw_path"][len(PATH) :].split(b"/")[1:]
        verb = parts[1].decode("latin-1") if len(parts) == 2 else ""
        if len(parts) > 2 or (len(parts) == 2 and verb not in VERBS):
            raise NotFound("There is no such route; a worker's id has to be percent-encoded, its slashes too.")
        if not parts:
            need(method, "GET")
        elif verb:
            need(method, "POST", *(("GET",) if verb == "drain" else ()))
        else:
            need(method, "GET", "PUT", "DELETE")
        looks = method in ("GET", "HEAD")
        rights: tuple[Right, ...] = ("resolve", "admin") if looks or verb == "heartbeat" else ("admin",)
        entry = self._clients.enter(self._guard.enter(headers, *rights, beat=verb == "heartbeat"))
        query_of(scope)
        entry.active += 1  # so that its client is not closed under us
        try:
            if not parts:
                await nothing(receive, headers, method)
                result: Any = await self.all(entry)
            else:
                worker = name_of(parts[0], "worker")
                if looks:
                    await nothing(receive, headers, method)
                    result = await (self._drain_of(entry, worker) if verb else self._one(entry, worker))
                else:
                    result = await self._change(entry, worker, verb or method, receive, headers)
        finally:
            entry.active -= 1
        await send_answer(send, headers, result)

    async def _change(self, entry: Entry, worker: str, what: str, receive: Receive, headers: dict[bytes, bytes]) -> Any:
        client = entry.client
        if what == "PUT":
            asked: RegisterRequest = await read(receive, headers, _REGISTER)
            return await client.register(
                worker,
                pool=asked.pool,
                address=asked.address,
                capacity=asked.capacity,
                incarnation=asked.incarnation,
                labels=asked.labels,
                ttl_ms=asked.ttl_ms,
            )
        if what == "heartbeat":
            beat: HeartbeatRequest = await read(receive, headers, _BEAT, HeartbeatRequest())
            return await client.heartbeat(worker, incarnation=beat.incarnation)
        await nothing(receive, headers, what)
        if what == "drain":
            return await self._drains.start(entry, worker)
        self._drains.stop(entry, worker)
        return await (client.undrain(worker) if what == "undrain" else client.remove_worker(worker))

    async def all(self, entry: Entry) -> WorkerList:
        """Every worker of a namespace."""
        listed = await entry.client.workers()
        counts = dict(await self._counts.of(entry))
        unnamed = counts.pop("", 0)
        views = [self._view(entry, each, counts.pop(each.worker, 0)) for each in listed]
        return WorkerList(views, sum(counts.values()), unnamed)

    def _view(self, entry: Entry, worker: Worker, bindings: int) -> WorkerView:
        drain = self._drains.find(entry, worker.worker) if worker.draining_for_ms is not None else None
        return WorkerView(
            worker.worker,
            worker.pool,
            worker.address,
            worker.capacity,
            worker.incarnation,
            worker.labels,
            worker.ttl_ms,
            worker.state,
            worker.since_ms,
            worker.heartbeat_age_ms,
            bindings,
            drain,
        )

    async def _find(self, entry: Entry, worker: str) -> Worker:
        for each in await entry.client.workers():
            if each.worker == worker:
                return each
        raise UnknownWorker(
            "No worker of that name is registered; it registers itself with PUT /v1/workers/{id}, or `register` in Python."
        )

    async def _one(self, entry: Entry, worker: str) -> WorkerView:
        found = await self._find(entry, worker)
        return self._view(entry, found, (await self._counts.of(entry)).get(worker, 0))

    async def _drain_of(self, entry: Entry, worker: str) -> Drain:
        found = await self._find(entry, worker)
        known = self._drains.find(entry, worker) if found.draining_for_ms is not None else None
        return known or Drain(worker, False, 0, (await self._counts.of(entry)).get(worker, 0), 0.0, False)
