"""Puts the parts of one gateway process together."""

from __future__ import annotations

from typing import NamedTuple

from limpet.clock import SystemClock
from limpet.gateway.app import Gateway
from limpet.gateway.checks import Checks
from limpet.gateway.dispatch import Dispatcher
from limpet.gateway.exchange import Shared
from limpet.gateway.measures import Measures
from limpet.gateway.members import Fleets, Members
from limpet.gateway.moves import Moves
from limpet.gateway.options import Options
from limpet.gateway.samples import Samples
from limpet.gateway.seen_workers import SeenWorkers
from limpet.gateway.vitals import Vitals
from limpet.metrics import Metrics
from limpet.service.auth import Guard
from limpet.service.build import census, connector, quota_of
from limpet.service.clients import MAX_CLIENTS, Client, Clients
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
    measures, dispatcher = Measures(metrics.registry), Dispatcher(options)
    vitals = Vitals(options.limits, clock.monotonic, measures.ejected)
    fleets = Fleets(options, vitals)
    make = connector(settings, metrics)

    def connect(namespace: str) -> Client:
        client = make(namespace)
        if not options.router:
            client.opinion = fleets.of(namespace)
        return client

    clients = Clients(connect, limit=max(MAX_CLIENTS, len(guard.namespaces)))
    shared = Shared(
        options,
        dispatcher,
        vitals,
        fleets,
        Members(options, fleets),
        Moves(clock.monotonic),
        Checks(
            dispatcher,
            vitals,
            measures,
            lambda: fleets.upstreams,
            lambda: any(fleet.panics for fleet in fleets.all()),
            clock.monotonic,
            path=options.health_path,
            interval_s=options.health_interval_s,
            timeout_s=options.health_timeout_s,
        ),
        SeenWorkers(clock.monotonic),
        Samples(options.debug_samples, options.debug_chars),
        measures,
        clock,
    )
    running: list[Gateway] = []
    pages = Pages(guard, clients, metrics, census, beside=lambda: running[0].running())
    running.append(Gateway(shared, guard, clients, pages.app()))
    return Parts(running[0], pages)
