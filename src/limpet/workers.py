"""The workers of a namespace as they are registered, and what a replica's snapshot of them says (design, section 5: Workers)."""

from __future__ import annotations

import struct
from typing import Any, Final, Literal

import msgspec

from limpet.clock import tick_to_unix_ms
from limpet.results import Binding

__all__ = ["HEARTBEAT_TTL_MS", "MAX_CAPACITY", "MAX_WORKERS", "MIN_CAPACITY", "Snapshot", "Worker", "read_list", "read_worker"]

HEARTBEAT_TTL_MS: Final = 15_000
MAX_WORKERS: Final = 10_000
MIN_CAPACITY: Final = 0.001
MAX_CAPACITY: Final = 1_000_000
"""Beyond these a share of the load means nothing, and much beyond them floating point does not either."""


class Worker(msgspec.Struct, frozen=True):
    """A registered worker. ``state``: ``live``, ``draining``, or ``gone`` (its heartbeat is older than its ttl; a ``ttl_ms`` of
    0 is a static worker's, which is never gone by itself). ``since_ms``: Unix time at which this incarnation came. ``bindings``:
    live claims and bindings, as last counted; None where nobody has counted. ``draining_for_ms``: since when it is
    drained, None when it is not. ``damaged``: its entry in the store cannot be decoded, so nothing else is known of it; it is
    proposed to nobody and keeps what is bound to it, until it is registered anew or removed."""

    worker: str
    pool: str
    address: str
    capacity: float
    incarnation: str
    labels: dict[str, str]
    ttl_ms: int
    state: Literal["live", "draining", "gone", "damaged"]
    since_ms: int
    heartbeat_age_ms: int
    bindings: int | None = None
    draining_for_ms: int | None = None


class _State(msgspec.Struct, array_like=True):
    pool: str
    address: str
    capacity: float
    incarnation: str
    labels: dict[str, str]
    ttl_us: int
    draining: int
    since: int
    heartbeat: int


_state: Final = msgspec.msgpack.Decoder(_State, strict=False)  # cmsgpack writes a whole float as an integer
_tick: Final = struct.Struct(">Q")


def read_worker(worker: str, reply: bytes) -> Worker:
    """The reply of worker_register, worker_heartbeat and worker_mark."""
    (now,) = _tick.unpack_from(reply, 1)
    return _worker(worker, reply[9:], now)


def read_list(reply: list[Any]) -> Snapshot:
    """The reply of worker_list."""
    (now,) = _tick.unpack(reply[0])
    names = [name.decode(errors="backslashreplace") for name in reply[1::2]]
    return Snapshot(now, {name: _worker(name, raw, now) for name, raw in zip(names, reply[2::2], strict=True)})


def _worker(name: str, raw: bytes, now: int) -> Worker:
    try:
        # An empty Lua table has no way to say that it is a map.
        state = _state.decode(raw.replace(b"\x90", b"\x80", 1) if _empty_labels(raw) else raw)
    except (msgspec.MsgspecError, TypeError, IndexError, UnicodeDecodeError):
        return Worker(name, "", "", 0.0, "", {}, 0, "damaged", 0, 0)
    age = max(0, now - state.heartbeat)
    gone = state.ttl_us > 0 and age > state.ttl_us
    return Worker(
        name,
        state.pool,
        state.address,
        state.capacity,
        state.incarnation,
        state.labels,
        state.ttl_us // 1000,
        "gone" if gone else "draining" if state.draining else "live",
        tick_to_unix_ms(state.since),
        age // 1000,
        draining_for_ms=max(0, now - state.draining) // 1000 if state.draining else None,
    )


def _empty_labels(raw: bytes) -> bool:
    return isinstance(msgspec.msgpack.decode(raw)[4], list)


class Snapshot:
    """The registry as one replica saw it at ``tick``."""

    __slots__ = ("pools", "tick", "workers")

    def __init__(self, tick: int, workers: dict[str, Worker]) -> None:
        self.tick = tick
        self.workers = workers
        self.pools: dict[str, dict[str, float]] = {}
        for worker in workers.values():
            if worker.state == "live":
                self.pools.setdefault(worker.pool, {})[worker.worker] = worker.capacity

    def condemns(self, binding: Binding, pool: str | None) -> str | None:
        """Why a binding's worker cannot go on with it (gone, draining, reincarnated; unplaced: it was bound to nobody while the
        pool was empty, and is not any more), or None.

        A snapshot older than the binding cannot condemn it. A worker that nobody registered is condemned only where a pool
        was asked for, whose workers are all registered: routers choose workers that we never hear of.
        """
        if binding.fence is None or self.tick <= binding.fence:
            return None
        if binding.worker is None:
            return "unplaced" if pool is not None and self.pools.get(pool) else None
        worker = self.workers.get(binding.worker)
        if worker is None:
            return "gone" if pool is not None else None
        if worker.state == "damaged":
            return None  # nothing is known of it, so nothing against it
        if worker.state != "live":
            return worker.state
        if binding.incarnation is not None and worker.incarnation and binding.incarnation != worker.incarnation:
            return "reincarnated"
        return None
