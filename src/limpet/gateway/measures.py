"""``limpet_gateway_*`` (design, section 10). No label is a key, a session id, a path or an address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["Measures"]

MAX_NAMED: Final = 100
"""As many upstreams have a label of their own, as in the core's ``limpet_bindings``."""
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Measures:
    """The metrics of one gateway process, in the registry of the core's."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"limpet_gateway_{name}", text, labels, registry=registry)

        self._requests = counter("requests", "Requests, by route and class of the status sent.", "route", "status")
        self._retries = counter("retries", "Requests sent once more, by why.", "reason")
        self._rebinds = counter("rebinds", "Conversations moved to another worker, by why.", "reason")
        self._aborted = counter("aborted_streams", "Answers cut short, by the side that did.", "side")
        self._seconds = Histogram(
            "limpet_gateway_upstream_seconds", "From dispatch to the first byte of the answer.", ("route",),
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self._flying = Gauge("limpet_gateway_in_flight", "Requests being served.", registry=registry, multiprocess_mode="livesum")

        self._detours = counter("detours", "Turns served beside their binding, as gateways disagree about its worker.")
        self._ejections = counter("ejections", "Upstreams taken out of use for a while, by why.", "reason")
        self._checks = counter("checks", "Health checks of upstreams, by outcome.", "outcome")
        self._healthy = Gauge(
            "limpet_gateway_upstream_healthy", "Whether the upstream may be given conversations (0 or 1).", ("upstream",),
            registry=registry, multiprocess_mode="livemin",
        )  # fmt: skip
        self._panic = Gauge(
            "limpet_gateway_panic", "1 while no upstream is healthy, so that all are used.", registry=registry,
            multiprocess_mode="livemax",
        )  # fmt: skip
        self._named: dict[str, bool] = {}

    def begin(self) -> None:
        """A request came."""
        self._flying.inc()

    def end(self, route: str, status: int | None) -> None:
        """It is over. ``status`` None: the client went away before any was sent."""
        self._flying.dec()
        self._requests.labels(route, "none" if status is None else f"{status // 100}xx").inc()

    def first_byte(self, route: str, seconds: float) -> None:
        """The upstream began to answer."""
        self._seconds.labels(route).observe(seconds)

    def retry(self, reason: str) -> None:
        """The request is sent once more."""
        self._retries.labels(reason).inc()

    def rebind(self, reason: str) -> None:
        """The conversation moved."""
        self._rebinds.labels(reason).inc()

    def detour(self) -> None:
        """A turn was served beside its binding."""
        self._detours.inc()

    def ejected(self, reason: str) -> None:
        """An upstream is out of use for a while."""
        self._ejections.labels(reason).inc()

    def check(self, outcome: str) -> None:
        """A health check was made."""
        self._checks.labels(outcome).inc()

    def upstreams(self, healthy: Mapping[str, bool], *, panics: bool) -> None:
        """Who may be given conversations, by name (no credentials are in it); beyond :data:`MAX_NAMED` the rest is ``other``, and
        healthy if all of it is."""
        shown = dict(sorted(healthy.items())[:MAX_NAMED])
        if len(healthy) > MAX_NAMED:
            shown["other"] = all(up for name, up in healthy.items() if name not in shown)
        for name in self._named.keys() - shown.keys():
            self._healthy.remove(name)
        for name, up in shown.items():
            if self._named.get(name) is not up:
                self._healthy.labels(name).set(up)
        self._named = shown
        self._panic.set(panics)

    def cut(self, side: str) -> None:
        """An answer was cut short by ``client`` or ``upstream``."""
        self._aborted.labels(side).inc()
