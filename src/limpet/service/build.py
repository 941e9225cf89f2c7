"""Puts the parts of one process together."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol

from starlette.types import ASGIApp

from limpet import Limpet, console
from limpet.clock import Clock, SystemClock
from limpet.metrics import Metrics
from limpet.service.app import Service
from limpet.service.auth import Guard
from limpet.service.beyond import Beyond
from limpet.service.clients import MAX_CLIENTS, Client, Clients
from limpet.service.forward_auth import ForwardAuth
from limpet.service.pages import Counted, Pages
from limpet.service.quota import Quota
from limpet.settings import Settings

__all__ = ["Built", "Parts", "build", "census", "connector", "quota_of"]


class Built(Protocol):
    """What :func:`limpet.service.serving.serve` runs."""

    @property
    def app(self) -> ASGIApp:
        """The application."""

    @property
    def pages(self) -> Pages:
        """The pages, which know why it refused to start."""


class Parts(NamedTuple):
    """The application, and the pages that know why it refused to start."""

    app: Service
    pages: Pages


def connector(settings: Settings, metrics: Metrics) -> Callable[[str], Client]:
    """A function that makes the (unopened) library client of a namespace."""
    url = settings.secret("redis_url")
    if url is None:
        raise ValueError("there is no store: run() sets the URL of the embedded one")
    holder = settings.holder or f"{socket.gethostname()[:200]}:{os.getpid()}"

    def connect(namespace: str) -> Client:
        return Limpet.connect(
            url,
            namespace=namespace,
            partitions=settings.partitions,
            scope_secret=settings.secret("scope_secret"),
            retention_s=settings.retention_s,
            touch_granularity_ms=settings.touch_granularity_ms,
            deadline_ms=settings.deadline_ms,
            memo_ttl_ms=settings.memo_ttl_ms,
            bind_ttl_ms=settings.bind_ttl_ms,
            claim_ttl_ms=settings.claim_ttl_ms,
            holder=holder,
            durability=settings.durability,
            durable_replicas=settings.durable_replicas,
            instruments=metrics,
        )

    return connect


async def census(client: Client) -> Counted:
    """Live bindings by worker and workers by state; claims that name none yet are left out, and so is a client that is not the
    library's."""
    if not isinstance(client, Limpet):
        return Counted({}, {})
    counts = await client.bindings_by_worker()
    counts.pop("", None)
    return Counted(counts, Counter(worker.state for worker in await client.workers()))


def quota_of(settings: Settings, clock: Clock) -> Quota | None:
    """What a namespace may ask of this process; None where there is no bound."""
    return Quota(settings.quota_per_s, settings.quota_burst, clock.monotonic) if settings.quota_per_s else None


def build(settings: Settings, connect: Callable[[str], Client] | None = None) -> Parts:
    """The service of these settings; ``connect`` replaces the library in tests of the HTTP layer."""
    metrics, clock = Metrics(), SystemClock()
    quota = quota_of(settings, clock)
    guard = Guard(settings, quota)
    clients = Clients(
        connect or connector(settings, metrics),
        limit=max(MAX_CLIENTS, len(guard.namespaces)),
    )
    beyond = Beyond(guard, clients, metrics, clock)
    pages = Pages(guard, clients, metrics, census, routes=console.routes(), beside=beyond.running)
    forward_auth = ForwardAuth(settings, guard, clients)
    service = Service(
        guard,
        clients,
        pages.app(),
        forward_auth,
        more=beyond.find,
        quota=quota,
        end_readers=beyond.end_readers,
    )
    return Parts(service, pages)
