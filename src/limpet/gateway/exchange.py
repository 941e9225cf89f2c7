"""One stamped request: resolve, stamp, dispatch, renew, confirm or abort (design, section 7: ``limpet gateway``)."""

from __future__ import annotations

import asyncio
import math
from typing import Final, NamedTuple

import aiohttp
import msgspec

from limpet.bind import MAX_EXCLUDED
from limpet.cache_bust import apply_to_body, marker_for
from limpet.clock import Clock
from limpet.eager import Started
from limpet.errors import InvalidRequest, LimpetError
from limpet.gateway.checks import Checks, is_good
from limpet.gateway.client_side import ClientSide
from limpet.gateway.control import Control
from limpet.gateway.dispatch import Dispatcher, Stale
from limpet.gateway.fleet import Fleet
from limpet.gateway.heads import forwarded
from limpet.gateway.identity import Pairs
from limpet.gateway.learn import Reader, ResponseReader, WorkerReader, asked_for_worker
from limpet.gateway.lease import Lease
from limpet.gateway.measures import Measures
from limpet.gateway.members import Fleets, Members
from limpet.gateway.moves import Moves, Name
from limpet.gateway.options import Options
from limpet.gateway.problems import BadGateway, NoUpstream, UpstreamTimeout
from limpet.gateway.relay import Opened, open_answer, relay
from limpet.gateway.samples import Samples
from limpet.gateway.seen_workers import SeenWorkers
from limpet.gateway.upstreams import Upstream
from limpet.gateway.vitals import Vitals
from limpet.gateway.who import Who, identify, response_name
from limpet.results import Resolution
from limpet.service.clients import Entry
from limpet.wire.body import Body
from limpet.wire.headers import Headers
from limpet.wire.stamp import Draft
from limpet.wire.turn import TurnValues

__all__ = ["Exchange", "Shared"]

_LOST: Final = frozenset({502, 503})
_LOST_BEHIND_ROUTER: Final = frozenset({400, 500, 502, 503})
"""Dynamo answers 400 to a pin that its table does not know or that differs, 500 and 503 to one whose worker died."""


class Shared(NamedTuple):
    """What all exchanges of a process use."""

    options: Options
    dispatcher: Dispatcher
    vitals: Vitals
    fleets: Fleets
    members: Members
    moves: Moves
    checks: Checks
    seen: SeenWorkers
    samples: Samples
    measures: Measures
    clock: Clock


class _Old(NamedTuple):
    worker: str
    dp_rank: int | None


class Exchange:
    """Serves one request. ``route`` labels metrics; ``responses`` says that it is ``/v1/responses``."""

    def __init__(
        self, shared: Shared, entry: Entry, client: ClientSide, *, route: str, target: str, headers: Pairs, responses: bool
    ) -> None:
        self._shared = shared
        self._options = shared.options
        self._entry = entry
        self._fleet: Fleet = shared.fleets.of(entry.namespace)
        self._conversation: Name = ("", "", "")
        self._client = client
        self._route = route
        self._target = target
        self._headers = headers
        self._responses = responses
        self._control = Control.read(headers)
        self._who: Who | None = None
        self._lease: Lease | None = None
        self._keeps_worker = False
        self._tried: list[Upstream] = []
        self._refused: _Old | None = None
        self._link: asyncio.Task[None] | None = None
        self._draft: Draft | None = None

    async def run(self, data: bytes) -> None:
        """Serve it; ``data`` is the whole body.

        Raises LimpetError before anything was sent, Disconnected. Whatever happens, the claim is confirmed or given back.
        """
        async with self._client.watching():
            try:
                data = await self._begin(data)
                opened, upstream = await self._answered(data)
                try:
                    await self._finish(opened, upstream)
                finally:
                    opened.close()
            except BaseException as error:
                await asyncio.shield(self._give_back(error))
                raise
            finally:
                lease = self._lease
                if lease is not None:
                    self._lease = None  # it holds us, too: a cycle in each turn would be tens of milliseconds for the collector
                    if lease.stop():
                        await asyncio.shield(lease.settle())

    # -- whose turn ----------------------------------------------------------------------------------------------------

    async def _begin(self, data: bytes) -> bytes:
        options, client = self._options, self._entry.client
        try:
            body = Body(data)
        except InvalidRequest:
            if options.sources.find(self._headers, None) is not None or self._control.session_id is not None:
                raise
            return data  # no key, so no stamp: what the upstream says about it is the client's answer
        self._who = who = await identify(client, options.sources, self._headers, body, self._control, responses=self._responses)
        if who is None:
            return data
        self._keeps_worker = options.learns and asked_for_worker(body)
        if self._control.new and who.key is not None:
            await client.advance(who.key, "new", request_id=self._control.retry_id)
        asking = Started(self._resolve())
        try:
            if options.cache_bust == "none":  # else the body is another once the answer is there
                self._draft = self._drafted(body, who)
        finally:
            self._lease = Lease(client, await asking, self._resolve)
        if options.cache_bust != "none":
            marker = marker_for(self._lease.resolution.scope)
            data = apply_to_body(data, marker, options.cache_bust, self._control.kind == "fork")
        return data

    async def _resolve(self) -> Resolution:
        who, control, options = self._who, self._control, self._options
        assert who is not None
        bind = options.bind
        if self._tried and not options.router:
            bind = msgspec.structs.replace(bind, exclude=self._excluded())
        parent = control.parent_key
        if parent is None and control.kind == "fork" and who.key != who.session_id:
            parent = who.key
        resolution = await self._entry.client.resolve(
            who.key,
            session_id=who.session_id,
            kind=control.kind,
            parent_key=parent,
            bind=bind,
        )
        if not options.router:
            self._conversation = (self._entry.namespace, resolution.source, resolution.key or who.session_id)
            self._shared.moves.saw(self._conversation, resolution.binding)
        return resolution

    def _excluded(self, *more: str) -> tuple[str, ...]:
        """The workers that this turn does not want, the last ones if there are too many to tell."""
        return tuple(dict.fromkeys([*(each.worker for each in self._tried), *more]))[-MAX_EXCLUDED:]

    # -- to an upstream and back ---------------------------------------------------------------------------------------

    async def _answered(self, data: bytes) -> tuple[Opened, Upstream]:
        """An answer to pass on, its first bytes read. A lost worker is left for another, once (behind a router twice at
        most), and any number of dead upstreams, to which nothing was sent."""
        retried, stale, vitals = 0, False, self._shared.vitals
        while True:
            upstream = await self._choose()
            if self._lease is not None:
                self._lease.start()
            try:
                opened = await self._attempt(upstream, data)
            except Stale:
                if stale:
                    raise
                stale = True
                self._shared.measures.retry("stale_connection")
                continue
            except NoUpstream:
                vitals.unreachable(upstream.name)
                self._tried.append(upstream)
                self._shared.measures.retry("unreachable")
                continue
            except UpstreamTimeout:
                vitals.failed(upstream.name, "timeout")
                raise
            except BadGateway:
                vitals.failed(upstream.name, "reset")
                if retried or self._fleet.choose("", [*self._tried, upstream]) is None:
                    raise
                retried += 1
                self._tried.append(upstream)
                self._shared.measures.retry("reset")
                continue
            # What a router answers says more of the workers behind it than of itself.
            if is_good(opened.answer.status) or self._options.router:
                vitals.worked(upstream.name)
            else:
                vitals.failed(upstream.name, "status")
            # Behind a router the first retry may be to a worker that only seems alive: which one failed the turn is not told.
            limit = 2 if self._options.router and (opened.answer.status != 400 or self._refused is None) else 1
            if retried < limit and self._is_lost(opened.answer) and await self._leave(upstream, opened.answer.status):
                retried += 1
                self._shared.measures.retry("lost_worker")
                opened.close()
                continue
            return opened, upstream

    async def _choose(self) -> Upstream:
        """The upstream to try now. A conversation whose worker cannot be tried is bound to another first."""
        lease, fleet, tried, options = self._lease, self._fleet, self._tried, self._options
        if options.open_pool and not fleet.seen:
            await self._entry.client.watch_workers()
        binding = lease.binding if lease is not None and not options.router else None
        bound = fleet.get(binding.worker) if binding is not None else None
        if bound is not None and bound not in tried and fleet.is_up(bound) and not fleet.is_drained(bound):
            return bound  # the usual turn: nothing is chosen
        other = fleet.require("" if self._who is None else self._who.key or self._who.session_id, tried)
        if lease is None or binding is None:
            return other
        if bound is not None and bound not in tried and (fleet.is_up(bound) or not fleet.is_up(other)):
            return bound
        if binding.action == "bind" and binding.worker is None:
            return other
        reason = "unknown" if bound is None else "unreachable" if bound in tried else "unhealthy"
        moves = self._shared.moves
        avoid = moves.avoid(self._conversation) if binding.action == "continue" else frozenset()
        if avoid and not fleet.open_to([*tried, bound] if bound is not None else tried, avoid):
            # Others took it off all that is left: moving it there would only make them move it again.
            self._shared.measures.detour()
            return other
        away = (binding.worker,) if binding.worker is not None else ()
        if await lease.rebind(reason, None, pool=options.pool, exclude=self._excluded(*avoid, *away)):
            self._shared.measures.rebind(reason)
            moves.saw(self._conversation, lease.binding)
            followed = fleet.get(lease.binding.worker) if lease.binding is not None else None
            return followed if followed is not None and followed not in tried else other
        return other

    async def _attempt(self, upstream: Upstream, data: bytes) -> Opened:
        shared = self._shared
        readers = self._readers()
        headers, body = self._stamped(data, readers)
        begun = shared.clock.monotonic()
        answer = await shared.dispatcher.send(upstream, "POST", self._target, headers, body)
        opened = await open_answer(answer, readers, self._options.max_body)
        shared.measures.first_byte(self._route, shared.clock.monotonic() - begun)
        return opened

    def _stamped(self, data: bytes, readers: list[Reader]) -> tuple[list[tuple[str, str]], bytes]:
        lease, who = self._lease, self._who
        if lease is None or who is None:
            return forwarded(self._headers), data
        resolution, binding = lease.resolution, lease.binding
        turn = TurnValues(
            scope=resolution.scope,
            session_id=who.session_id,
            key=who.key,
            parent_scope=resolution.parent_scope,
            action=binding.action if binding is not None else None,
            worker=binding.worker if binding is not None else None,
            dp_rank=binding.dp_rank if binding is not None else None,
            ttl_s=math.ceil(self._options.ttl_s),
            final=self._control.final,
            rebound=binding is not None and bool(binding.rebound),
            fence=binding.fence if binding is not None else None,
        )
        draft, self._draft = self._draft, None
        stamped = (self._drafted(data, who) if draft is None else draft).stamp(turn)
        if readers:  # what is to be read must not be compressed
            headers = [pair for pair in stamped.headers if pair[0] != "accept-encoding"]
            stamped = msgspec.structs.replace(stamped, headers=headers)
        samples = self._shared.samples
        if samples.wants(self._entry.namespace, resolution.scope):
            samples.take(
                self._entry.namespace,
                resolution.scope,
                epoch=resolution.epoch,
                action=lease.action,
                fence=binding.fence if binding is not None else None,
                body=stamped.body,
                private=(who.key, who.session_id, self._control.parent_key),
            )
        return stamped.headers, stamped.body

    def _drafted(self, body: bytes | Body, who: Who) -> Draft:
        return Draft(self._options.profile, Headers.of(forwarded(self._headers)), body, who.key, who.owned)

    def _readers(self) -> list[Reader]:
        readers: list[Reader] = []
        if self._lease is not None and self._options.learns and self._lease.claimed:
            readers.append(WorkerReader(keep=self._keeps_worker, learned=self._learned))
        if self._who is not None and self._who.chained:
            readers.append(ResponseReader(self._chained))
        return readers

    # -- lost workers --------------------------------------------------------------------------------------------------

    def _is_lost(self, answer: aiohttp.ClientResponse) -> bool:
        """Whether this answer says that the worker is lost, and not that the request is wrong."""
        if not self._options.router:
            return answer.status in _LOST
        binding = self._lease.binding if self._lease is not None else None
        if binding is None:
            return answer.status in _LOST
        if answer.status == 400:
            return binding.worker is not None and binding.action in ("bind", "continue")
        return answer.status in _LOST_BEHIND_ROUTER

    async def _leave(self, upstream: Upstream, status: int) -> bool:
        """Bind to another worker; False if there is none, or the binding is not ours to move."""
        shared, lease, who = self._shared, self._lease, self._who
        if lease is None or who is None or lease.binding is None:
            self._tried.append(upstream)
            return self._fleet.choose("", self._tried) is not None
        binding = lease.binding
        if not self._options.router:
            self._tried.append(upstream)
            return self._fleet.choose("", self._tried) is not None  # _choose does the rebind
        if status == 400 and binding.worker is not None and binding.action == "continue" and self._refused is None:
            self._refused = _Old(binding.worker, binding.dp_rank)
        if binding.worker is not None:
            shared.seen.lost(binding.worker)
        text = who.key or who.session_id
        if not await lease.rebind("lost_worker", shared.seen.choose(text, binding.worker)):
            return False
        shared.measures.rebind("lost_worker")
        return True

    # -- the answer ----------------------------------------------------------------------------------------------------

    async def _finish(self, opened: Opened, upstream: Upstream) -> None:
        lease, options = self._lease, self._options
        extra: list[tuple[bytes, bytes]] = []
        if lease is not None:
            if opened.good:
                self._served(opened, upstream)
            elif self._refused is not None and 400 <= opened.answer.status < 500:
                # The other worker refused it too: the request is wrong, not the pin. The conversation stays where it was.
                await lease.confirm(*self._refused)
                self._shared.seen.good(self._refused.worker)
            else:
                await lease.abort("upstream_refused")
            if options.headers:
                extra = _told(lease)
        complete = await relay(
            self._client, opened, extra, before_more=self._linked, before_end=self._settle, named=self._responses
        )
        if not complete:
            self._shared.measures.cut("upstream")

    def _served(self, opened: Opened, upstream: Upstream) -> None:
        lease = self._lease
        assert lease is not None
        binding = lease.binding
        if self._options.router and binding is not None and binding.worker is not None:
            self._shared.seen.good(binding.worker)
        if not lease.claimed:
            return  # bound already: there is nothing to write
        if not self._options.router:
            lease.spawn(lease.confirm(worker=upstream.worker))
        elif not (self._options.learns and opened.reads):
            lease.spawn(lease.confirm())

    def _learned(self, worker: str, dp_rank: int | None) -> None:
        self._shared.seen.good(worker)
        if self._lease is not None:
            self._lease.spawn(self._lease.confirm(worker, dp_rank))

    def _chained(self, response_id: str) -> None:
        who, lease, name = self._who, self._lease, response_name(response_id)
        if who is None or who.key is None or lease is None or lease.resolution.degraded or name is None:
            return
        self._link = asyncio.ensure_future(self._entry.client.link_response(name, who.key))
        lease.spawn(self._link)

    async def _linked(self) -> None:
        """Before more of a stream goes out: once the client can know the response's end, its id must be known here."""
        link, self._link = self._link, None
        if link is not None:
            await asyncio.wait([link])

    async def _settle(self) -> None:
        """Before the last byte goes out: what the next turn relies on is written."""
        lease = self._lease
        if lease is None:
            return
        await lease.settle()
        if lease.claimed:
            await lease.confirm()  # a good answer that names no worker: bound, but not pinned
        if self._control.final:
            await lease.release()

    async def _give_back(self, error: BaseException) -> None:
        if self._client.gone and self._client.status is not None:
            self._shared.measures.cut("client")
        lease = self._lease  # ours even when a second cancellation ends the exchange before this, which is shielded from it
        if lease is not None:
            await lease.settle()
            await lease.abort(_reason(error))


def _reason(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return error.code if isinstance(error, LimpetError) else "failed"


def _told(lease: Lease) -> list[tuple[bytes, bytes]]:
    resolution = lease.resolution
    told = [] if resolution.epoch is None else [(b"x-limpet-epoch", b"%d" % resolution.epoch)]
    action = "degraded" if resolution.degraded else lease.action
    return told if action is None else [*told, (b"x-limpet-action", action.encode())]
