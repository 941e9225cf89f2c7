"""A bound on what one namespace may ask of one process, so that a tenant that floods it holds nobody else up.

A token bucket per namespace: ``LIMPET_QUOTA_PER_S`` requests a second (0 is off), ``LIMPET_QUOTA_BURST`` at once. It counts per
process: with N processes behind a balancer a namespace may ask N times as much. An item of a batch counts as a request.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from limpet.errors import QuotaExceeded
from limpet.service.problems import HttpError

__all__ = ["OverQuota", "Quota"]

CAPACITY: Final = 4096
"""Namespaces remembered. The one unused longest goes first, and is full again if it comes back."""


class OverQuota(HttpError, QuotaExceeded):
    """429; ``Retry-After`` says when a request would be taken again."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.headers = ((b"retry-after", str(max(1, math.ceil(retry_after_s))).encode()),)


class Quota:
    """The buckets.

    Args:
        per_s: requests a second, above 0.
        burst: requests at once, at least 1; 0 for what comes in one second.
        monotonic: seconds, never going back.
    """

    __slots__ = ("_buckets", "_burst", "_monotonic", "_per_s")

    def __init__(self, per_s: float, burst: float, monotonic: Callable[[], float]) -> None:
        self._per_s = per_s
        self._burst = max(1.0, burst or per_s)
        self._monotonic = monotonic
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, namespace: str, *, beat: bool = False) -> None:
        """Takes one token out of the bucket; heartbeats have one of their own, of the same size. Raises OverQuota when there is
        none."""
        now = self._monotonic()
        bucket = f"{namespace} beats" if beat else namespace  # no namespace holds a space
        level, at = self._buckets.get(bucket, (self._burst, now))
        level = min(self._burst, level + (now - at) * self._per_s)
        if level < 1:
            self._buckets[bucket] = (level, now)
            raise OverQuota(
                f"Namespace {namespace} asks more than the {self._per_s:g} requests a second that this process grants it; "
                "come back after Retry-After.",
                retry_after_s=(1 - level) / self._per_s,
            )
        self._buckets[bucket] = (level - 1, now)
        self._buckets.move_to_end(bucket)
        if len(self._buckets) > CAPACITY:
            self._buckets.popitem(last=False)

    def charge(self, namespace: str, more: int) -> None:
        """A request that was taken turned out to be ``more`` than one (a batch): the bucket may run into debt, paid before the
        next is taken."""
        level, at = self._buckets.get(namespace, (self._burst, self._monotonic()))
        self._buckets[namespace] = (level - more, at)
