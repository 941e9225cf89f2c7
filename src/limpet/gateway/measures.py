"""``limpet_gateway_*`` (design, section 10). No label is a key, a session id, a path or an address."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["Measures"]

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

    def cut(self, side: str) -> None:
        """An answer was cut short by ``client`` or ``upstream``."""
        self._aborted.labels(side).inc()
