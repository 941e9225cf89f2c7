"""The faults, for each topology. Each breaks, holds and mends; the tormentor waits for the rest (see ``nemesis``)."""

from __future__ import annotations

import contextlib
import random
from typing import Any, Final

import redis

from limpet.chaos.nemesis import FaultKind, pause

__all__ = ["CLUSTER", "HARMLESS", "SENTINEL", "STANDALONE", "STANDALONE_CLOCK"]

_ERRORS = (redis.RedisError, OSError)
Rng = random.Random


def flush_scripts(rig: Any, rng: Rng) -> str:
    """Every node forgets our scripts."""
    for node in rig.nodes:
        node.do("SCRIPT", "FLUSH")
    return "all"


def kill_clients(rig: Any, rng: Rng) -> str:
    """A primary drops every client connection; replies get lost."""
    node = rng.choice(rig.primaries())
    for _ in range(3):
        node.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        pause(0.05)
    return str(node.name)


def pause_clients(rig: Any, rng: Rng) -> str:
    """A primary serves nobody for a while."""
    node, held_ms = rng.choice(rig.primaries()), rng.choice((60, 200, 500))
    node.do("CLIENT", "PAUSE", held_ms, "ALL")
    pause(held_ms / 1000)
    return str(node.name)


def freeze_shortly(rig: Any, rng: Rng) -> str:
    """SIGSTOP of a primary, too short for a failover."""
    return _freeze(rng.choice(rig.primaries()), rng.choice((0.1, 0.3)))


def freeze_long(rig: Any, rng: Rng) -> str:
    """SIGSTOP of a primary until it has been deposed; then it wakes up and does not know it."""
    return _freeze(rng.choice(rig.primaries()), 4.0)


def freeze_replica(rig: Any, rng: Rng) -> str:
    """Replication stands still: decisions are answered ``durable: false`` meanwhile."""
    return _freeze(rng.choice(rig.replicas(rng.choice(rig.primaries()))), rng.choice((0.3, 1.0)))


def _freeze(node: Any, seconds: float) -> str:
    node.stop()
    try:
        pause(seconds)
    finally:
        node.cont()
    return str(node.name)


def kill_and_restart(rig: Any, rng: Rng) -> str:
    """kill -9 of a primary, and at once a new process on its append-only file."""
    node = rng.choice(rig.primaries())
    node.kill()
    pause(rng.choice((0.0, 0.5)))
    node.start()
    return str(node.name)


def kill_replica(rig: Any, rng: Rng) -> str:
    """kill -9 of a replica."""
    node = rng.choice(rig.replicas(rng.choice(rig.primaries())))
    node.kill()
    pause(rng.choice((0.1, 2.0)))
    node.start()
    return str(node.name)


def kill_until_failover(rig: Any, rng: Rng) -> str:
    """kill -9 of a primary, which comes back after it has been replaced."""
    node = rng.choice(rig.primaries())
    node.kill()
    pause(4.0)
    node.start()
    return str(node.name)


def cut_replication_and_kill(rig: Any, rng: Rng) -> str:
    """The replicas lose their link, the primary goes on alone, then dies: what it decided alone is gone with the failover."""
    node = rng.choice(rig.primaries())
    replicas = rig.replicas(node)
    _cut(node, replicas)
    pause(rng.choice((0.3, 0.7)))
    node.kill()
    _mend(replicas)
    pause(4.0)
    node.start()
    return str(node.name)


def cut_replication(rig: Any, rng: Rng) -> str:
    """The replicas lose their link and get it back."""
    node = rng.choice(rig.primaries())
    replicas = rig.replicas(node)
    _cut(node, replicas)
    pause(0.8)
    _mend(replicas)
    return str(node.name)


def _cut(primary: Any, replicas: list[Any]) -> None:
    """A replica with a wrong password is turned away each time it comes back."""
    for replica in replicas:
        replica.do("CONFIG", "SET", "masterauth", "cut")
    primary.do("CLIENT", "KILL", "TYPE", "replica")


def _mend(replicas: list[Any]) -> None:
    for replica in replicas:
        with contextlib.suppress(*_ERRORS):
            replica.do("CONFIG", "SET", "masterauth", "")


def old_snapshot(rig: Any, rng: Rng) -> str:
    """kill -9, and a restart on the data of an earlier time: once or twice from the same copy."""
    node = rng.choice(rig.primaries())
    node.take_copy()
    for _ in range(rng.choice((1, 2))):
        pause(rng.choice((0.4, 1.0)))
        node.kill()
        node.put_copy_back()
        node.start()
    return str(node.name)


def move_clock(rig: Any, rng: Rng) -> str:
    """A restart with the clock some seconds ahead or behind, and later one with the clock set right again."""
    node = rng.choice(rig.primaries())
    for seconds in (rng.choice((-30, -5, -1, 1, 5, 30)), 0):
        node.kill()
        node.clock_offset_s = seconds
        node.start()
        pause(1.0)
    return str(node.name)


def sentinel_failover(rig: Any, rng: Rng) -> str:
    """The operator asks for a failover."""
    with contextlib.suppress(*_ERRORS):  # refused while the sentinels are not done with the last one
        rng.choice(rig.sentinels).do("SENTINEL", "FAILOVER", rig.service)
    pause(1.5)
    return "sentinels"


def cluster_failover(mode: str) -> Any:
    """The operator promotes a replica: gracefully, without the primary (FORCE), or without anybody (TAKEOVER)."""

    def act(rig: Any, rng: Rng) -> str:
        node = rng.choice(rig.replicas(rng.choice(rig.primaries())))
        node.do("CLUSTER", "FAILOVER", *([mode] if mode else []))
        pause(0.5)
        return str(node.name)

    return act


def reshard(rig: Any, rng: Rng) -> str:
    """Slots that hold keys move from one primary to another while in use, key by key: MOVED, ASK and TRYAGAIN."""
    source, target = rng.sample(rig.primaries(), 2)
    for slot in rig.used_slots(source)[:6]:
        rig.move(slot, source, target)
    return f"{source.name} to {target.name}"


HARMLESS: Final = (
    FaultKind("SCRIPT FLUSH", flush_scripts),
    FaultKind("CLIENT KILL", kill_clients),
    FaultKind("CLIENT PAUSE", pause_clients),
    FaultKind("SIGSTOP of a primary, short", freeze_shortly),
)
"""Nothing may be lost by these."""

STANDALONE: Final = (
    *HARMLESS,
    FaultKind("kill -9 and restart from the AOF", kill_and_restart, weight=2),
    FaultKind("restart from an old snapshot", old_snapshot, weight=2, lossy=True),
)
STANDALONE_CLOCK: Final = (
    *HARMLESS,
    FaultKind("kill -9 and restart from the AOF", kill_and_restart),
    FaultKind("clock moved", move_clock, weight=3, clock=True),
)
"""Apart from old snapshots: data lost *and* the clock set back is G3's stated limit."""

_REPLICATED: Final = (
    *HARMLESS,
    FaultKind("SIGSTOP of a replica", freeze_replica),
    FaultKind("kill -9 of a replica", kill_replica),
    FaultKind("replication cut", cut_replication),
    FaultKind("kill -9 of a primary, quick restart", kill_and_restart, lossy=True),
    FaultKind("kill -9 of a primary, failover", kill_until_failover, weight=2, lossy=True),
    FaultKind("replication cut, then kill -9", cut_replication_and_kill, weight=3, lossy=True),
    FaultKind("SIGSTOP of a primary, failover", freeze_long, weight=2, lossy=True),
)
SENTINEL: Final = (*_REPLICATED, FaultKind("SENTINEL FAILOVER", sentinel_failover, weight=2, lossy=True))
CLUSTER: Final = (
    *_REPLICATED,
    FaultKind("CLUSTER FAILOVER", cluster_failover(""), lossy=True),
    FaultKind("CLUSTER FAILOVER FORCE", cluster_failover("FORCE"), lossy=True),
    FaultKind("CLUSTER FAILOVER TAKEOVER", cluster_failover("TAKEOVER"), lossy=True),
    FaultKind("resharding", reshard, weight=2),
)
