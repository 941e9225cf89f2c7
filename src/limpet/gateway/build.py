"""Puts the parts of one gateway process together."""

from __future__ import annotations

from typing import NamedTuple

from limpet.clock import SystemClock
from limpet.gateway.app import Gateway
from limpet.gateway.dispatch import Dispatcher
from limpet.gateway.exchange import Shared
from limpet.gateway.measures import Measures
from limpet.gateway.options import Options
from limpet.gateway.samples import Samples
from limpet.gateway.seen_workers import SeenWorkers
from limpet.gateway.upstreams import Upstreams
from limpet.metrics import Metrics
from limpet.service.auth import Guard
from limpet.service.build import census, connector, quota_of
from limpet.service.clients import MAX_CLIENTS, Clients
from limpet.service.pages import Pages
from limpet.settings import Settings

__all__ = ["Parts", "build"]


class Parts(NamedTuple):
    """The application, and the pages that know why it refused to start."""

    app: Gateway
    pages: Pages


def build(settings: Settings) -> Parts:
    """The gateway of these settings.

    Raises:
        InvalidRequest: no upstream or profile, or one that is not valid.
    """
    options = Options.of(settings)
    metrics, clock = Metrics(), SystemClock()
    guard = Guard(settings, quota_of(settings, clock))
    clients = Clients(connector(settings, metrics), limit=max(MAX_CLIENTS, len(guard.namespaces)))
    pages = Pages(guard, clients, metrics, census)
    shared = Shared(
        options,
        Dispatcher(options),
        Upstreams(options.upstreams, clock.monotonic),
        SeenWorkers(clock.monotonic),
        Samples(options.debug_samples, options.debug_chars),
        Measures(metrics.registry),
        clock,
    )
    return Parts(Gateway(shared, guard, clients, pages.app()), pages)
