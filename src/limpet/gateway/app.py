"""The gateway's ASGI application: what it answers itself, what it stamps, and what it passes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from limpet.errors import InvalidRequest, LimpetError, StoreMismatch, StoreUnavailable
from limpet.gateway.client_side import ClientSide
from limpet.gateway.control import enter
from limpet.gateway.exchange import Exchange, Shared
from limpet.gateway.heads import drop_key, forwarded
from limpet.gateway.problems import HeadTooLarge, NoWebSocket
from limpet.gateway.through import pass_through
from limpet.service import problems
from limpet.service.auth import Guard
from limpet.service.body import Disconnected, read_body
from limpet.service.clients import Clients, Entry
from limpet.service.logs import log_unexpected
from limpet.service.problems import Forbidden, MethodNotAllowed, NotFound

__all__ = ["Gateway"]

_ROUTES: Final = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
}
MAX_HEAD_BYTES: Final = 64 * 1024
_SAMPLES: Final = "/v1/debug/samples"
_OTHER: Final = "other"
_DOTS: Final = frozenset({b".", b"..", b"%2e", b".%2e", b"%2e.", b"%2e%2e"})
Message = MutableMapping[str, Any]


class Gateway:
    """The application.

    Args:
        pages: an ASGI application for ``/metrics`` and for the lifespan.
    """

    def __init__(self, shared: Shared, guard: Guard, clients: Clients, pages: ASGIApp) -> None:
        self._shared = shared
        self._guard = guard
        self._clients = clients
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._pages(scope, receive, self._closing(send))
            return
        own = {"/livez": self._livez, "/readyz": self._readyz, "/metrics": self._pages}.get(scope["path"])
        if own is not None:
            await own(scope, receive, send)
            return
        route = _route(scope["path"]) if scope["method"] == "POST" else _OTHER
        client = ClientSide(scope, receive, send)
        measures = self._shared.measures
        measures.begin()
        try:
            await self._serve(scope, client, route)
        except Disconnected:
            return
        except LimpetError as error:
            await client.fail(error)
        except Exception as error:  # noqa: BLE001  (the last line of defence: logged, and answered with 500)
            log_unexpected(f"gateway {route}", error)
            await client.fail(problems.unexpected())
        finally:
            measures.end(route, client.status)

    async def _serve(self, scope: Scope, client: ClientSide, route: str) -> None:
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        headers = dict(pairs)
        if sum(len(name) + len(value) for name, value in pairs) > MAX_HEAD_BYTES:
            raise HeadTooLarge(f"The headers are larger than the {MAX_HEAD_BYTES} bytes that the gateway passes on.")
        if scope["path"] == _SAMPLES:
            await self._debug(scope, client, headers)
            return
        if scope["method"] in ("CONNECT", "TRACE"):
            raise MethodNotAllowed(f"The gateway does not take {scope['method']}.", allow="GET, HEAD, POST, PUT, PATCH, DELETE")
        if headers.get(b"upgrade", b"").strip().lower() == b"websocket":
            raise NoWebSocket("The gateway passes no WebSocket on; connect to the upstream itself for this path.")
        entry = self._clients.enter(enter(self._guard, headers))
        entry.active += 1  # so that its client is not closed under us
        self._shared.members.join(entry.namespace)
        try:
            target = _target(scope)
            if route == _OTHER:
                await self._through(scope, client, entry, pairs, headers, target)
            else:
                await self._stamped(client, entry, route, target, pairs, headers)
        finally:
            entry.active -= 1

    async def _stamped(
        self,
        client: ClientSide,
        entry: Entry,
        route: str,
        target: str,
        pairs: list[tuple[bytes, bytes]],
        headers: dict[bytes, bytes],
    ) -> None:
        exchange = Exchange(
            self._shared, entry, client, route=route, target=target, headers=pairs, responses=route == "responses"
        )
        data = await read_body(client.receive, headers, self._shared.options.max_body)
        await exchange.run(data)

    async def _through(
        self,
        scope: Scope,
        client: ClientSide,
        entry: Entry,
        pairs: list[tuple[bytes, bytes]],
        headers: dict[bytes, bytes],
        target: str,
    ) -> None:
        fleet = self._shared.fleets.of(entry.namespace)
        if self._shared.options.open_pool and not fleet.seen:
            await entry.client.watch_workers()
        found = self._shared.options.sources.find(pairs, None)
        onward = forwarded(pairs)
        length = headers.get(b"content-length")
        await pass_through(
            self._shared.dispatcher,
            fleet,
            self._shared.vitals,
            client,
            method=scope["method"],
            target=target,
            headers=drop_key(onward, found.key) if found is not None else onward,
            key=found.key if found is not None else None,
            length=None if length is None else length.decode("latin-1"),
            has_body=(length is not None and length != b"0") or b"transfer-encoding" in headers,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While inside, upstreams are checked and registered."""
        shared = self._shared
        tasks = [asyncio.create_task(shared.checks.run())]
        if not shared.options.router:
            tasks.append(asyncio.create_task(shared.members.run(self._clients)))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    # -- its own routes ------------------------------------------------------------------------------------------------

    async def _livez(self, _: Scope, __: Receive, send: Send) -> None:
        await _json(send, 200, {"ok": True})

    async def _readyz(self, _: Scope, __: Receive, send: Send) -> None:
        """Ready as long as it can serve: a store that is away only degrades turns (G7), and taking every replica out for that
        would make an outage of it. Nor is it a reason that no upstream is healthy (``panic``), since then all are used: a health
        page that lies must not do what the upstreams did not. A store that disagrees is a reason, and that no upstream is left
        that accepts connections and is not drained."""
        store, ok = "ok", True
        namespace = self._guard.namespaces[0]
        client = self._clients.enter(namespace).client
        try:
            await client.open()
            if not (await client.health()).ok:
                store = StoreUnavailable.code
        except StoreMismatch as error:
            store, ok = error.code, False
        except LimpetError as error:
            store = error.code
        fleet = self._shared.fleets.of(namespace)
        ok = ok and fleet.usable
        ups = {"all": len(fleet.all), **fleet.counts(), "panic": fleet.panics}
        await _json(send, 200 if ok else 503, {"ok": ok, "store": store, "upstreams": ups})

    async def _debug(self, scope: Scope, client: ClientSide, headers: dict[bytes, bytes]) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise MethodNotAllowed("Debug samples take GET.", allow="GET, HEAD")
        if self._guard.open:
            raise Forbidden("Debug samples are shown to a token with the right 'admin' only; set LIMPET_TOKENS.")
        namespace = enter(self._guard, headers, "admin")
        if not self._shared.options.debug_samples:
            raise NotFound("Debug sampling is off; set LIMPET_DEBUG_SAMPLES.")
        data = msgspec.json.encode({"samples": self._shared.samples.of(namespace)})
        await client.start(200, [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))])
        await client.finish(data)

    def _closing(self, send: Send) -> Callable[[Message], Awaitable[None]]:
        """Close the upstream connections before shutdown is said to be complete: after that the loop ends."""

        async def forward(message: Message) -> None:
            if message["type"].startswith("lifespan.shutdown"):
                await self._shared.dispatcher.close()
            await send(message)

        return forward


def _route(path: str) -> str:
    """What a POST is, also where an upstream may read its path as one of a turn's: ``//v1/completions``, ``/v1/completions/``."""
    known = _ROUTES.get(path)
    if known is None:
        known = _ROUTES.get("/" + "/".join(filter(None, path.lower().split("/"))), _OTHER)
    return known


def _target(scope: Scope) -> str:
    """Path and query as the client sent them.

    Raises InvalidRequest for what is no path, so that nothing of it can become part of the upstream's address, and for a path
    with dot segments: what the upstream makes of one may lie outside its base path.
    """
    raw: bytes = scope["raw_path"]
    if not raw.startswith(b"/"):
        raise InvalidRequest("The request's target has to be a path, one that begins with '/'.", field="path")
    if not _DOTS.isdisjoint(segment.lower() for segment in raw.split(b"/")):
        raise InvalidRequest("The path holds '.' or '..' segments; send it in its plain form.", field="path")
    query: bytes = scope["query_string"]
    text = raw + b"?" + query if query else raw
    return text.decode("ascii") if text.isascii() else quote(text, safe="/?&=%:@!$'()*+,;~[]-._")


async def _json(send: Send, status: int, value: object) -> None:
    data = msgspec.json.encode(value)
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": data})
