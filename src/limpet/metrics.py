"""Prometheus metrics (design, section 10). Labels are few and bounded; none is a key, a session id or a scope.

Children are looked up once per label value and kept as bound methods, so that an event on the hot path costs a dict
hit and an increment. With several worker processes the parent sets ``PROMETHEUS_MULTIPROC_DIR`` before it starts them
(see :mod:`limpet.service.supervisor`); then every process writes into that directory, and whichever renders sums all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from limpet.instruments import Instruments, NullMetrics

if TYPE_CHECKING:
    from limpet.health import Health

__all__ = [
    "CONTENT_TYPE",
    "KNOWN_REASONS",
    "MAX_NAMESPACES",
    "MAX_WORKERS",
    "MULTIPROC",
    "Instruments",
    "Metrics",
    "NullMetrics",
]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MULTIPROC: Final = "PROMETHEUS_MULTIPROC_DIR"
MAX_WORKERS: Final = 100
"""Workers that ``limpet_bindings`` names; the rest count as ``other``."""
MAX_NAMESPACES: Final = 100
"""Namespaces that ``limpet_resolutions_total`` names, in the order seen; the rest count as ``other``."""
KNOWN_REASONS: Final = frozenset(
    {"new", "switch", "idle", "daily", "suspended", "resume_expired", "recycled", "rollback", "forgotten"}
)
"""The reasons of design, section 3 (G2). A reason that a host names counts as ``other``: hosts may name anything."""

_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_OTHER: Final = "other"
_LEVELS: Final = {"ok": 0, "warn": 1, "fail": 2}
WORKER_STATES: Final = ("live", "draining", "gone", "damaged")

Inc = Callable[[], None]
Observe = Callable[[float], None]


class Metrics:
    """The Prometheus listener of the core. One per process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"limpet_{name}", text, labels, registry=self.registry)

        self._resolutions = counter("resolutions", "Turns resolved.", "namespace", "source", "outcome")
        self._resets = counter("resets", "Conversations replaced, by reason.", "reason")
        self._binds = counter("binds", "Binds asked for, and what became of claims.", "outcome")
        self._fences = counter("fence_rejections", "Calls refused for an old fence.", "operation")
        self._errors = counter("store_errors", "Commands to the store that failed.", "kind")
        self._memos = counter("memo", "Turns that asked the memo.", "outcome")
        self._seconds = Histogram(
            "limpet_store_seconds", "Time a command to the store took.", ("command",),
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        sizes = Histogram("limpet_batch_size", "Commands sent in one write.", buckets=_SIZES, registry=self.registry)
        self._rollback: Inc = counter("rollbacks", "Lost advances noticed and passed.").inc
        self._timeout: Inc = counter("claim_timeouts", "Claims that ran out unconfirmed and were taken over.").inc
        self._behind: Inc = counter("clock_behind", "Calls that met a store clock set back.").inc
        self._degraded: Inc = counter("degraded", "Turns answered without the store.").inc
        self._undurable: Inc = counter("undurable", "Writes that no replica acknowledged.").inc
        self._sizes: Observe = sizes.observe
        self._namespaces: set[str] = set()
        self._by_resolution: dict[tuple[str, str, str], Inc] = {}
        self._by_reason: dict[str, Inc] = {}
        self._by_bind: dict[str, Inc] = {}
        self._by_fence: dict[str, Inc] = {}
        self._by_error: dict[str, Inc] = {}
        self._by_memo: dict[str, Inc] = {}
        self._by_command: dict[str, Observe] = {}

    def resolution(self, namespace: str, source: str, outcome: str) -> None:
        """Count one turn."""
        labels = (namespace, source, outcome)
        inc = self._by_resolution.get(labels)
        if inc is None:
            if namespace not in self._namespaces:
                if len(self._namespaces) >= MAX_NAMESPACES:
                    if namespace != _OTHER:
                        self.resolution(_OTHER, source, outcome)
                        return
                else:
                    self._namespaces.add(namespace)
            inc = self._by_resolution[labels] = self._resolutions.labels(*labels).inc
        inc()

    def reset(self, reason: str) -> None:
        """Count one replacement."""
        inc = self._by_reason.get(reason)
        if inc is None:
            if reason not in KNOWN_REASONS:
                reason = _OTHER
            inc = self._by_reason[reason] = self._resets.labels(reason).inc
        inc()

    def rollback(self) -> None:
        """Count one lost advance."""
        self._rollback()

    def clock_behind(self) -> None:
        """Count one call that met a clock set back."""
        self._behind()

    def bind(self, outcome: str) -> None:
        """Count one answer to a bind."""
        inc = self._by_bind.get(outcome)
        if inc is None:
            inc = self._by_bind[outcome] = self._binds.labels(outcome).inc
        inc()

    def claim_timeout(self) -> None:
        """Count one claim that ran out."""
        self._timeout()

    def fence_rejection(self, operation: str) -> None:
        """Count one stale fence."""
        inc = self._by_fence.get(operation)
        if inc is None:
            inc = self._by_fence[operation] = self._fences.labels(operation).inc
        inc()

    def store_seconds(self, command: str, seconds: float) -> None:
        """Time one command."""
        observe = self._by_command.get(command)
        if observe is None:
            observe = self._by_command[command] = self._seconds.labels(command).observe
        observe(seconds)

    def store_error(self, kind: str) -> None:
        """Count one failed command."""
        inc = self._by_error.get(kind)
        if inc is None:
            inc = self._by_error[kind] = self._errors.labels(kind).inc
        inc()

    def degraded(self) -> None:
        """Count one degraded turn."""
        self._degraded()

    def undurable(self) -> None:
        """Count one unacknowledged write."""
        self._undurable()

    def memo(self, outcome: str) -> None:
        """Count one question to the memo."""
        inc = self._by_memo.get(outcome)
        if inc is None:
            inc = self._by_memo[outcome] = self._memos.labels(outcome).inc
        inc()

    def batch_size(self, n: int) -> None:
        """Record the size of one write."""
        self._sizes(n)

    @property
    def shared(self) -> bool:
        """Whether several processes count together."""
        return bool(os.environ.get(MULTIPROC))

    def families(self) -> Iterable[Metric]:
        """What is counted by now, summed over the processes that count together."""
        return self._counted().collect()

    def _counted(self) -> CollectorRegistry:
        directory = os.environ.get(MULTIPROC)
        registry = CollectorRegistry()
        if directory:
            MultiProcessCollector(registry, directory)  # type: ignore[no-untyped-call]
        else:
            registry.register(_Copy(self.registry))
        return registry

    def render(
        self,
        bindings: Mapping[str, int] | None = None,
        workers: Mapping[str, int] | None = None,
        health: Health | None = None,
    ) -> bytes:
        """The exposition text. ``bindings`` (worker -> live bindings) and ``workers`` (state -> workers) come from the store, so
        they are the same whichever process answers; None leaves that metric out. ``health`` is the last look at the store."""
        registry = self._counted()
        registry.register(_Now(bindings, workers, health))
        return generate_latest(registry)


class _Copy(Collector):
    """A registry seen as a collector of another one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """All metrics of the registry, without the times at which they were made (several processes have none)."""
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class _Now(Collector):
    """What holds at the moment of the scrape and belongs to no process."""

    def __init__(self, bindings: Mapping[str, int] | None, workers: Mapping[str, int] | None, health: Health | None) -> None:
        self._bindings = bindings
        self._workers = workers
        self._health = health

    def collect(self) -> Iterator[Metric]:
        """``limpet_build_info``, ``limpet_ready``, ``limpet_health``, ``limpet_workers`` and ``limpet_bindings``."""
        info = GaugeMetricFamily("limpet_build_info", "Always 1; the labels say what runs.", labels=("version",))
        info.add_metric((version("limpet"),), 1)
        yield info
        if self._health is not None:
            ready = GaugeMetricFamily("limpet_ready", "1 when no check of the store fails, 0 when one does.")
            ready.add_metric((), int(self._health.ok))
            yield ready
            checks = GaugeMetricFamily("limpet_health", "Checks of the store: 0 ok, 1 a warning, 2 failed.", labels=("check",))
            for check in self._health.checks:
                checks.add_metric((check.name,), _LEVELS[check.level])
            yield checks
        if self._workers is not None:
            states = GaugeMetricFamily("limpet_workers", "Registered workers.", labels=("state",))
            for state in WORKER_STATES:
                states.add_metric((state,), self._workers.get(state, 0))
            yield states
        if self._bindings is None:
            return
        ranked = sorted(self._bindings.items(), key=lambda item: (-item[1], item[0]))
        gauge = GaugeMetricFamily("limpet_bindings", "Live bindings of a worker.", labels=("worker",))
        for worker, count in ranked[:MAX_WORKERS]:
            gauge.add_metric((worker,), count)
        if rest := ranked[MAX_WORKERS:]:
            gauge.add_metric((_OTHER,), sum(count for _, count in rest))
        yield gauge
