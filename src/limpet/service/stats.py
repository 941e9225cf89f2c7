"""``GET /v1/stats``: the counters as one JSON document, summed over the worker processes of this service; for the console.

Needs the right ``admin``: but for the resolutions, which are of the caller's namespace, the figures are of the whole process.
"""

from __future__ import annotations

import os
import socket
from collections import Counter, defaultdict
from importlib.metadata import version
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from limpet.clock import Clock
from limpet.metrics import Metrics
from limpet.service.answers import need, nothing, query_of, send_answer
from limpet.service.auth import Guard

__all__ = ["PATH", "Stats", "StatsDocument", "StoreTimes"]

PATH: Final = "/v1/stats"


class StoreTimes(msgspec.Struct, frozen=True):
    """How long calls to the store took. ``counts`` has one number for each bound of ``bounds_s`` (seconds, the last is
    infinite: null) and is not cumulative."""

    bounds_s: list[float | None]
    counts: dict[str, list[int]]
    sums_s: dict[str, float]


class StatsDocument(msgspec.Struct, frozen=True):
    """Counters since the start of the service. Rates are differences between two of these by ``at_ms`` (Unix time)."""

    at_ms: int
    started_ms: int
    version: str
    replica: str
    namespace: str
    resolutions: dict[str, int]
    resets: dict[str, int]
    binds: dict[str, int]
    fence_rejections: dict[str, int]
    store_errors: dict[str, int]
    memo: dict[str, int]
    rollbacks: int
    clock_behind: int
    degraded: int
    undurable: int
    store: StoreTimes


class Stats:
    """The route."""

    def __init__(self, guard: Guard, metrics: Metrics, clock: Clock) -> None:
        self._guard = guard
        self._metrics = metrics
        self._clock = clock
        self._started_ms = self._now_ms()
        self._replica = f"{socket.gethostname()}:{os.getppid() if metrics.shared else os.getpid()}"

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One look."""
        need(scope["method"], "GET")
        headers: dict[bytes, bytes] = dict(scope["headers"])
        namespace = self._guard.enter(headers, "admin")
        query_of(scope)
        await nothing(receive, headers, "GET")
        await send_answer(send, headers, self.document(namespace))

    def document(self, namespace: str) -> StatsDocument:
        """What is counted by now."""
        by: dict[str, Counter[str]] = defaultdict(Counter)
        store: dict[str, dict[float, float]] = defaultdict(dict)
        sums: dict[str, float] = {}
        for family in self._metrics.families():
            for sample in family.samples:
                labels = sample.labels
                if sample.name == "limpet_resolutions_total":
                    if labels["namespace"] == namespace:
                        by["resolutions"][labels["outcome"]] += int(sample.value)
                elif sample.name == "limpet_store_seconds_bucket":
                    store[labels["command"]][float(labels["le"])] = sample.value
                elif sample.name == "limpet_store_seconds_sum":
                    sums[labels["command"]] = sample.value
                elif sample.name.endswith("_total"):
                    name = sample.name.removeprefix("limpet_").removesuffix("_total")
                    by[name][next(iter(labels.values()), "")] += int(sample.value)
        return StatsDocument(
            at_ms=self._now_ms(),
            started_ms=self._started_ms,
            version=version("limpet"),
            replica=self._replica,
            namespace=namespace,
            resolutions=by["resolutions"],
            resets=by["resets"],
            binds=by["binds"],
            fence_rejections=by["fence_rejections"],
            store_errors=by["store_errors"],
            memo=by["memo"],
            rollbacks=by["rollbacks"][""],
            clock_behind=by["clock_behind"][""],
            degraded=by["degraded"][""],
            undurable=by["undurable"][""],
            store=_times(store, sums),
        )


def _times(store: dict[str, dict[float, float]], sums: dict[str, float]) -> StoreTimes:
    bounds = sorted({bound for buckets in store.values() for bound in buckets})
    counts: dict[str, list[int]] = {}
    for command, buckets in store.items():
        before = 0
        counts[command] = row = []
        for bound in bounds:
            total = int(buckets.get(bound, before))
            row.append(total - before)
            before = total
    return StoreTimes([None if bound == float("inf") else bound for bound in bounds], counts, sums)
