"""What the core tells about itself, and the default listener that hears nothing.

The core calls these methods and never a metrics library, so that ``import limpet`` needs no registry.
:class:`limpet.metrics.Metrics` is the Prometheus listener. No method may raise or block, and none is given a key.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["Instruments", "NullMetrics"]


class Instruments(Protocol):
    """The events of design, section 10."""

    def resolution(self, namespace: str, source: str, outcome: str) -> None:
        """A turn was resolved (``source`` declared or physical; ``outcome`` continued, created, reset or degraded)."""

    def reset(self, reason: str) -> None:
        """A conversation was replaced."""

    def rollback(self) -> None:
        """A lost advance was noticed and passed (design, section 4, ``seen_epoch``)."""

    def clock_behind(self) -> None:
        """The store's clock was behind a record or a partition's last tick."""

    def bind(self, outcome: str) -> None:
        """A bind was asked for; ``outcome`` is the action, or what became of the claim."""

    def claim_timeout(self) -> None:
        """A claim ran out unconfirmed and another's bind took its place: its holder died, hung or lost the store."""

    def fence_rejection(self, operation: str) -> None:
        """A call with an old fence was refused (G5)."""

    def store_seconds(self, command: str, seconds: float) -> None:
        """A command to the store took this many seconds."""

    def store_error(self, kind: str) -> None:
        """A command to the store failed."""

    def degraded(self) -> None:
        """A turn got the physical scope because the store did not answer (G7)."""

    def undurable(self) -> None:
        """A write that matters was not acknowledged by a replica."""

    def memo(self, outcome: str) -> None:
        """The memo was asked; ``outcome`` is hit, miss or bypass."""

    def batch_size(self, n: int) -> None:
        """So many commands went to the store in one write."""


class NullMetrics:
    """Hears nothing: the library's default."""

    __slots__ = ()

    def resolution(self, namespace: str, source: str, outcome: str) -> None:
        """Nothing."""

    def reset(self, reason: str) -> None:
        """Nothing."""

    def rollback(self) -> None:
        """Nothing."""

    def clock_behind(self) -> None:
        """Nothing."""

    def bind(self, outcome: str) -> None:
        """Nothing."""

    def claim_timeout(self) -> None:
        """Nothing."""

    def fence_rejection(self, operation: str) -> None:
        """Nothing."""

    def store_seconds(self, command: str, seconds: float) -> None:
        """Nothing."""

    def store_error(self, kind: str) -> None:
        """Nothing."""

    def degraded(self) -> None:
        """Nothing."""

    def undurable(self) -> None:
        """Nothing."""

    def memo(self, outcome: str) -> None:
        """Nothing."""

    def batch_size(self, n: int) -> None:
        """Nothing."""
