"""One process's own opinion of the workers, over what the registry says (design, section 5: Workers).

A gateway that cannot reach a worker knows nothing of the others' networks. So what it finds is its own: it shapes what this
process proposes, is written nowhere, and drains nothing for anybody else.
"""

from __future__ import annotations

from typing import Protocol

from limpet.workers import Snapshot

__all__ = ["Opinion"]


class Opinion(Protocol):
    """What a :class:`limpet.Limpet` asks whoever holds it; see :attr:`limpet.placing.Placing.opinion`."""

    def amend(self, snapshot: Snapshot) -> Snapshot:
        """The registry as this process takes it; called with each fresh reading."""

    def fit(self, worker: str) -> bool:
        """Whether the worker may be proposed. Where none of a pool is fit, all of them are proposed rather than none."""
