"""Reads what a cluster's node says about the slots (``CLUSTER SLOTS``, ``CLUSTER INFO``), and which of several views counts."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from limpet.executors.urls import Address
from limpet.health import parse_info

__all__ = ["SLOTS", "View", "read_redirection", "read_view"]

SLOTS: Final = 16_384


class View(NamedTuple):
    """One node's view. They compare by what counts first: that its side of the cluster works, then how late it is (each failover
    and each slot that moves raises the cluster's epoch)."""

    works: bool
    epoch: int
    ranges: tuple[tuple[int, int, Address], ...]
    """First slot, last slot, primary."""
    replicas: frozenset[Address]

    @property
    def rank(self) -> tuple[bool, int]:
        """The view of the highest rank counts."""
        return self.works, self.epoch


def read_view(slots: list[Any], info: bytes, asked: Address) -> View:
    """The view of the node ``asked``. A node that does not know its own name is where we reached it."""
    fields = parse_info(info)
    ranges: list[tuple[int, int, Address]] = []
    replicas: set[Address] = set()
    for first, last, primary, *others in slots:
        ranges.append((int(first), int(last), _address(primary, asked)))
        replicas.update(_address(each, asked) for each in others)
    primaries = {address for _, _, address in ranges}
    works = fields.get("cluster_state") == "ok"
    return View(works, int(fields.get("cluster_current_epoch", 0)), tuple(ranges), frozenset(replicas - primaries))


def _address(node: list[Any], asked: Address) -> Address:
    host = node[0].decode() if isinstance(node[0], bytes) else node[0]
    return (host if host and host != "?" else asked[0]), int(node[1])


def read_redirection(message: str, asked: Address) -> tuple[int, Address] | None:
    """Slot and address of ``MOVED 3999 127.0.0.1:6381`` or ``ASK ...``; None if it is neither."""
    parts = message.split(" ")
    if len(parts) != 3 or parts[0] not in ("MOVED", "ASK") or not parts[1].isdigit():
        return None
    host, _, port = parts[2].rpartition(":")
    if not port.isdigit() or not 0 <= int(parts[1]) < SLOTS:
        return None
    return int(parts[1]), (host if host and host != "?" else asked[0], int(port))
