"""The comfortable routes: probes, metrics and documentation, on Starlette."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from limpet.clock import Clock, SystemClock
from limpet.errors import LimpetError
from limpet.health import Health
from limpet.metrics import CONTENT_TYPE, Metrics
from limpet.service import docs, openapi, problems
from limpet.service.app import no_such_route
from limpet.service.auth import Guard
from limpet.service.clients import Client, Clients
from limpet.service.logs import log_unexpected
from limpet.service.problems import MethodNotAllowed, Unauthorized

__all__ = ["Counted", "Pages"]

BINDINGS_TTL_S: Final = 5.0
"""How old ``limpet_bindings`` may be: counting them reads the index of all bindings, so scrapes share one count."""
BINDINGS_SHARE: Final = 20
"""A count that took long is kept so many times that long, so that counting never takes more than a twentieth."""
BINDINGS_PATIENCE_S: Final = 5.0
HEALTH_TTL_S: Final = 5.0
"""How old ``limpet_health`` may be."""


class Counted(NamedTuple):
    """Live bindings by worker, and workers by state."""

    bindings: Mapping[str, int]
    states: Mapping[str, int]


Census: TypeAlias = Callable[[Client], Awaitable[Counted]]
_JSON: Final = "application/json"


class Pages:
    """Builds the application of the comfortable routes."""

    def __init__(
        self,
        guard: Guard,
        clients: Clients,
        metrics: Metrics,
        census: Census,
        *,
        clock: Clock | None = None,
        routes: Sequence[Route] = (),
        beside: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        self._routes = routes
        self._beside = beside
        self._guard = guard
        self._clients = clients
        self._metrics = metrics
        self._census = census
        self._clock = clock or SystemClock()
        self._counted: Counted | None = None
        self._count_again_at = float("-inf")
        self._counting = asyncio.Lock()
        self._health: Health | None = None
        self._look_again_at = float("-inf")
        self._looking = asyncio.Lock()
        self.refusal: LimpetError | None = None

    def app(self) -> Starlette:
        """The Starlette application, with the lifespan of the whole service."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            try:
                for namespace in self._guard.namespaces:
                    await self._clients.open(namespace)
            except LimpetError as error:  # the store disagrees with our settings: refuse to start
                self.refusal = error
                await self._clients.close()
                raise
            try:
                async with self._beside():
                    yield
            finally:
                await self._clients.close()

        starlette = Starlette(
            routes=[
                *self._routes,
                Route("/", self._root),
                Route("/livez", self._livez),
                Route("/readyz", self._readyz),
                Route("/metrics", self._scrape),
                Route("/openapi.json", self._openapi),
                Route("/docs", self._docs),
            ],
            exception_handlers={HTTPException: _http_problem, LimpetError: _problem},
            lifespan=_as_lifespan(lifespan),
        )
        starlette.router.redirect_slashes = False
        return starlette

    async def _root(self, _: Request) -> Response:
        return RedirectResponse("docs", status_code=307)

    async def _livez(self, _: Request) -> Response:
        return Response(b'{"ok":true}', media_type=_JSON)

    async def _readyz(self, request: Request) -> Response:
        """200 or 503. The checks name parts of the installation: with a metrics token, only its bearer sees them."""
        health = await self._look()
        body: dict[str, Any] = {"ok": health.ok}
        if self._guard.may_scrape(dict(request.headers.raw)):
            body["checks"] = health.checks
        return Response(msgspec.json.encode(body), status_code=200 if health.ok else 503, media_type=_JSON)

    async def _scrape(self, request: Request) -> Response:
        if not self._guard.may_scrape(dict(request.headers.raw)):
            raise Unauthorized("Metrics need the token of LIMPET_METRICS_TOKEN: Authorization: Bearer <token>.")
        counted, health = await asyncio.gather(self._count(), self._last_look())
        bindings, states = (None, None) if counted is None else counted
        return Response(self._metrics.render(bindings, states, health), media_type=CONTENT_TYPE)

    async def _openapi(self, _: Request) -> Response:
        return Response(openapi.encoded(), media_type=_JSON)

    async def _docs(self, _: Request) -> Response:
        return Response(docs.page(), media_type="text/html", headers={"content-security-policy": docs.CSP})

    async def _look(self) -> Health:
        """The checks that readiness rests on, now. Bounded in time by the client."""
        self._health = await self._clients.enter(self._guard.namespaces[0]).client.health()
        self._look_again_at = self._clock.monotonic() + HEALTH_TTL_S
        return self._health

    async def _last_look(self) -> Health | None:
        """The same, shared by scrapes and probes for a moment; None when that failed in a way that nobody foresaw."""
        async with self._looking:
            if self._clock.monotonic() >= self._look_again_at:
                try:
                    return await self._look()
                except Exception as error:  # noqa: BLE001  (the other metrics matter more than these)
                    log_unexpected("look at the store", error)
                    return None
            return self._health

    async def _count(self) -> Counted | None:
        """Bindings and workers over all open namespaces; None when the store cannot say."""
        async with self._counting:
            start = self._clock.monotonic()
            if start >= self._count_again_at:
                self._counted = await self._ask()
                now = self._clock.monotonic()
                self._count_again_at = now + max(BINDINGS_TTL_S, BINDINGS_SHARE * (now - start))
            return self._counted

    async def _ask(self) -> Counted | None:
        bindings: Counter[str] = Counter()
        states: Counter[str] = Counter()
        try:
            async with asyncio.timeout(BINDINGS_PATIENCE_S):
                for entry in self._clients.all():
                    counted = await self._census(entry.client)
                    bindings.update(counted.bindings)
                    states.update(counted.states)
        except (LimpetError, TimeoutError):
            return None
        except Exception as error:  # noqa: BLE001  (the other metrics matter more than these)
            log_unexpected("count bindings", error)
            return None
        return Counted(bindings, states)


def _as_lifespan(lifespan: Any) -> Any:
    typed: type[AbstractAsyncContextManager[None]] = lifespan
    return typed


def _respond(error: LimpetError) -> Response:
    headers = {name.decode(): value.decode() for name, value in problems.headers_of(error)}
    body = problems.encode(problems.problem_of(error))
    return Response(body, error.status, headers, media_type=problems.CONTENT_TYPE.decode())


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, LimpetError)
    return _respond(error)


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return _respond(MethodNotAllowed("That route takes GET.", allow="GET, HEAD"))
    return _respond(no_such_route(request.url.path))
