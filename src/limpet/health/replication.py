"""Replicas, and whether what decisions wait for can be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limpet.health.model import Check, Info, Infos, among, number

if TYPE_CHECKING:
    from limpet.executors.durable import Promise

__all__ = ["durability", "replicas"]


def _online(info: Info) -> int:
    slaves = (info.get(f"slave{i}", "") for i in range(number(info, "connected_slaves")))
    return sum("state=online" in slave for slave in slaves)


def replicas(infos: Infos) -> Check:
    """Who takes over, and whether a primary that was cut off stops."""
    counts = {name: number(info, "connected_slaves") for name, info in infos.items()}
    if not any(counts.values()):
        return Check("replicas", "ok", "No replicas: nothing to fail over to, nobody to wait for.")
    alone = [name for name, count in counts.items() if not count]
    if alone:
        return Check("replicas", "warn", f"Some primaries have no replica{among(alone)}: nobody takes over for them; add one.")
    behind = [name for name, info in infos.items() if _online(info) < counts[name]]
    if behind:
        text = (
            f"A replica is still copying{among(behind)}; until it is in step a failover may lose what was decided: wait for it."
        )
        return Check("replicas", "warn", text)
    free = [name for name, info in infos.items() if "min_slaves_good_slaves" not in info]
    if free:
        text = (
            f"min-replicas-to-write is 0{among(free)}: a primary that is cut off goes on deciding what a failover undoes; "
            "set it to 1 with min-replicas-max-lag 10."
        )
        return Check("replicas", "warn", text)
    fewest, most = min(counts.values()), max(counts.values())
    each = str(fewest) if fewest == most else f"{fewest} to {most}"
    return Check("replicas", "ok", f"{each} replica{'s' if most > 1 else ''} per primary, and min-replicas-to-write is set.")


def durability(infos: Infos, promise: Promise | None, chosen: str | None, fsyncs: dict[str, str] | None) -> Check:
    """What decisions wait for against what the store has. ``chosen``: LIMPET_DURABILITY; ``fsyncs``: the setting ``appendfsync``
    of each primary, None where it may not be seen."""
    if promise is None:
        why = "LIMPET_DURABILITY is none" if chosen == "none" else "there are no replicas"
        return Check("durability", "ok", f"Decisions wait for nobody: {why}.")
    if promise.mode == "aof":
        off = [name for name, info in infos.items() if info.get("aof_enabled") != "1"]
        if off:
            text = (
                f"Decisions wait for an append-only file (LIMPET_DURABILITY) and there is none{among(off)}; set appendonly yes."
            )
            return Check("durability", "warn", text)
        if fsyncs is None:
            text = "LIMPET_DURABILITY is aof; appendfsync may not be seen by this user: see to it that it is always."
            return Check("durability", "warn", text)
        late = [name for name, mode in fsyncs.items() if mode != "always"]
        if late:
            text = (
                f"LIMPET_DURABILITY is aof and appendfsync is {fsyncs[late[0]]}{among(late)}: each decision waits for the next "
                "fsync, up to a second; set appendfsync always."
            )
            return Check("durability", "warn", text)
        return Check("durability", "ok", "Decisions wait for the primary's own fsync.")
    few = [name for name, info in infos.items() if number(info, "connected_slaves") < promise.replicas]
    wanted = f"{promise.replicas} replica{'s' if promise.replicas > 1 else ''}"
    if few:
        text = (
            f"Decisions wait for {wanted} and a primary has {min(number(infos[name], 'connected_slaves') for name in few)}"
            f"{among(few)}, so they are not durable; add one, or lower LIMPET_DURABLE_REPLICAS."
        )
        return Check("durability", "warn", text)
    return Check("durability", "ok", f"Decisions wait for {wanted}.")
