"""Which worker a new binding is proposed: rendezvous hashing with bounded load, weighted by capacity (design, section 5).

Rendezvous (highest random weight): each conversation orders the workers by a hash of its own, so that a worker that comes or goes
moves only its own conversations. Bounded load: a worker that has its share already (1.05 x the mean, so that 1.1 holds over
replicas that do not see each other's claims at once) is passed over while another has room.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Final

__all__ = ["CAP", "choose"]

CAP: Final = 1.05


def choose(digest: str, capacities: Mapping[str, float], loads: Mapping[str, int], exclude: Collection[str] = ()) -> str | None:
    """The worker for a conversation, or None if there is none to choose from.

    Args:
        digest: of the conversation's key.
        capacities: the workers that may be chosen, with their capacity (any positive unit).
        loads: live bindings per worker.
        exclude: workers that the caller does not want.
    """
    ranked: list[tuple[float, str]] = []
    total_capacity = 0.0
    total_load = 1  # the one to be placed
    seed = digest.encode()
    for worker, capacity in capacities.items():
        if worker in exclude:
            continue
        total_capacity += capacity
        total_load += loads.get(worker, 0)
        value = int.from_bytes(blake2b(worker.encode(), key=seed, digest_size=8).digest())
        # -w / ln(u): the weighted form; each worker wins in proportion to its capacity.
        ranked.append((-capacity / math.log((value + 1) / (2**64 + 2)), worker))
    if not ranked:
        return None
    ranked.sort(reverse=True)
    for _, worker in ranked:
        share = CAP * total_load * capacities[worker] / total_capacity
        if loads.get(worker, 0) + 1 <= math.ceil(share):
            return worker
    return min(ranked, key=lambda each: (loads.get(each[1], 0) / capacities[each[1]], -each[0]))[1]
