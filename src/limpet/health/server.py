"""What INFO (and, for doctor, CONFIG) tells about the servers: eviction, version, persistence, memory."""

from __future__ import annotations

from typing import Final

from limpet.health.model import Check, Infos, among, number

__all__ = ["eviction", "memory", "persistence", "version"]

FULL: Final = 0.9
"""The share of maxmemory from which on memory is a worry."""
OLDEST: Final = {"Redis": (6, 2), "Valkey": (7, 2)}


def eviction(infos: Infos) -> Check:
    """Whether the partitions' clocks, which have no TTL, can be evicted."""
    policies = {name: info.get("maxmemory_policy", "") for name, info in infos.items()}
    unsafe = [name for name, policy in policies.items() if policy.startswith("allkeys")]
    if unsafe:
        text = (
            f"maxmemory-policy is {policies[unsafe[0]]}{among(unsafe)}, which may drop the partitions' clocks; "
            "set it to noeviction or volatile-lru."
        )
        return Check("eviction", "fail", text)
    unknown = [name for name, policy in policies.items() if not policy]
    if unknown:
        text = f"The server does not tell its maxmemory-policy{among(unknown)}; see to it that it is noeviction or volatile-*."
        return Check("eviction", "warn", text)
    pressed = [name for name, policy in policies.items() if policy.startswith("volatile") and number(infos[name], "maxmemory")]
    if pressed:
        text = (
            f"maxmemory-policy is {policies[pressed[0]]}{among(pressed)}: under pressure conversations are dropped before their "
            "retention; give it more memory, or set noeviction."
        )
        return Check("eviction", "warn", text)
    return Check("eviction", "ok", f"maxmemory-policy is {', '.join(sorted(set(policies.values())))}: no clock can be evicted.")


def version(infos: Infos, thorough: bool) -> Check:
    """Redis 6.2 or later, Valkey 7.2 or later."""
    found: dict[str, list[str]] = {}
    for name, info in infos.items():
        valkey = info.get("valkey_version")
        kind, text = ("Valkey", valkey) if valkey else ("Redis", info.get("redis_version", "0"))
        found.setdefault(f"{kind} {text}", []).append(name)
    for called, names in found.items():
        kind, text = called.split(" ", 1)
        major, minor = (int(part) if part.isdigit() else 0 for part in [*text.split("."), "0"][:2])
        if (major, minor) < OLDEST[kind]:
            sentence = f"{called}{among(names)} is older than what is tested; upgrade to Redis 6.2 or Valkey 7.2, or later."
            return Check("version", "fail" if thorough else "warn", sentence)
    if len(found) > 1:
        text = f"The primaries run {' and '.join(sorted(found))}; finish the upgrade."
        return Check("version", "warn", text)
    return Check("version", "ok", f"{', '.join(found)}.")


def persistence(infos: Infos, thorough: bool, saves: dict[str, str] | None = None) -> Check:
    """What a restart loses. ``saves``: the setting ``save`` of each, None where it may not be seen.

    A primary without an append-only file that restarts by itself, before a replica was promoted, comes back with an old
    snapshot or nothing, and its replicas copy that (design, section 4). Whether it restarts by itself cannot be seen from here.
    """
    bare = [name for name, info in infos.items() if info.get("aof_enabled") != "1"]
    wiping = [name for name in bare if number(infos[name], "connected_slaves")]
    if wiping:
        text = (
            f"A primary without an append-only file has replicas{among(wiping)}: if it restarts before one is promoted, its "
            "replicas copy its old snapshot; set appendonly yes, and if it never restarts by itself, take this as a warning."
        )
        return Check("persistence", "fail" if thorough else "warn", text)
    broken = [
        name
        for name, info in infos.items()
        if "err" in (info.get("aof_last_write_status"), info.get("rdb_last_bgsave_status"), info.get("aof_last_bgrewrite_status"))
    ]
    if broken:
        return Check("persistence", "warn", f"The last save to disk failed{among(broken)}; look at its log and its disk.")
    if not bare:
        return Check("persistence", "ok", "The append-only file is on.")
    if saves is not None and not any(saves.get(name) for name in bare):
        text = f"Nothing is saved{among(bare)}: a restart loses all conversations and bindings; set appendonly yes."
    else:
        text = f"No append-only file{among(bare)}: a restart loses what came after the last snapshot; set appendonly yes."
    return Check("persistence", "warn", text)


def memory(infos: Infos) -> Check:
    """How near maxmemory is."""
    bounded = {name: info for name, info in infos.items() if number(info, "maxmemory") and "used_memory" in info}
    shares = {name: number(info, "used_memory") / number(info, "maxmemory") for name, info in bounded.items()}
    full = [name for name, share in shares.items() if share > FULL]
    if full:
        text = f"{max(shares.values()):.0%} of maxmemory is used{among(full)}; raise it before writes are refused."
        return Check("memory", "warn", text)
    return Check("memory", "ok", f"Up to {max(shares.values()):.0%} of maxmemory is used." if shares else "No maxmemory is set.")
