"""The namespace's ``config``, the scripts on each primary, and the shape of a cluster."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Final

import msgspec

from limpet.calls import Call
from limpet.errors import LimpetError, StoreCorrupt, StoreMismatch, StoreUnavailable
from limpet.health.asking import Asking, reason
from limpet.health.clocks import sampled
from limpet.health.model import Check, Infos, among, parse_info
from limpet.keys import Keyspace
from limpet.schema import FIELDS, NEW_NAMESPACE, NEWEST, read_config
from limpet.scripts import every_script, script

if TYPE_CHECKING:
    from limpet.client_settings import Settings

__all__ = ["cluster", "config", "scripts", "scripts_run"]

SLOTS: Final = 16_384


async def config(asking: Asking, space: Keyspace, settings: Settings) -> Check:
    """What ``config`` holds against what this process is set to."""
    try:
        reply = await asking.at(space.config, "HMGET", space.config, *FIELDS)
    except StoreUnavailable as error:
        if not reason(error).startswith("WRONGTYPE"):
            raise
        return Check("config", "fail", f"{space.config} in the store is no hash of ours; remove that key, or restore it.")
    if None in reply:
        text = (
            f"Namespace {space.namespace} is not set up yet; whoever opens it first does that, as set here with "
            f"{settings.partitions} partitions, which cannot be changed later, in schema {NEW_NAMESPACE}."
        )
        return Check("config", "ok", text)
    try:
        found = read_config(reply)
        found.require(space.namespace, settings.partitions)
    except StoreMismatch as error:
        return Check("config", "fail", str(error))
    told = f"Namespace {space.namespace} has {found.partitions} partitions, and its records are in schema {found.schema}"
    if found.granularity_ms != settings.touch_granularity_ms:
        text = (
            f"The store's touch granularity of {found.granularity_ms} ms holds, not the {settings.touch_granularity_ms} ms set "
            f"here; set LIMPET_TOUCH_GRANULARITY_MS={found.granularity_ms}."
        )
        return Check("config", "warn", text)
    if found.schema < NEWEST:
        return Check("config", "ok", f"{told}; once every replica runs this release, `limpet upgrade` permits schema {NEWEST}.")
    return Check("config", "ok", f"{told}, as this process expects.")


async def scripts(asking: Asking) -> Check:
    """Loaded where they are missing: on a new node, after a SCRIPT FLUSH, on a primary that was just promoted."""
    variants = [each.variant(asking.executor.flags_known) for each in every_script()]
    present = await asking.everywhere("SCRIPT", "EXISTS", *(sha for sha, _ in variants))
    loads = [
        asking.at(primary, "SCRIPT", "LOAD", text)
        for primary in asking.primaries
        for (_, text), there in zip(variants, present[asking.name(primary)], strict=True)
        if not there
    ]
    await asyncio.gather(*loads)
    nodes = f" on {len(present)} primaries" if len(present) > 1 else ""
    return Check("scripts", "ok", f"All {len(variants)} scripts are loaded{nodes}.")


async def scripts_run(asking: Asking, space: Keyspace) -> Check | None:
    """Runs one that touches a record which is not there: it needs struct, cmsgpack, TIME and GET, and writes nothing."""

    async def run(partition: int) -> None:
        tag = space.clock(partition).removesuffix("clock")
        packed = struct.pack(">QQ", 0, 0) + msgspec.msgpack.encode((1, 0, 0))
        call = Call(script("conversation_touch"), (f"{tag}conv:doctor", space.bound(partition)), (packed,), bool)
        await asking.executor.run(call, asking.left_s())

    try:
        await asyncio.gather(*(run(partition) for partition in sampled(space)))
    except StoreCorrupt as error:
        why = error.__cause__ or error
        text = f"The store cannot run our scripts ({why}); use a server with Lua and its cmsgpack and struct (Redis, Valkey)."
        return Check("scripts", "fail", text)
    except StoreUnavailable as error:
        words = reason(error)
        if words.startswith("NOPERM"):
            return Check(
                "scripts", "fail", f"The store's ACL stops our scripts ({words}); see the check of the rights, and +evalsha."
            )
        raise
    except LimpetError as error:
        return Check("scripts", "fail", str(error))
    return None


async def cluster(asking: Asking, infos: Infos) -> Check | None:
    """Whether all slots are served, and whether we know that this is a cluster. None outside of one."""
    members = [name for name, info in infos.items() if info.get("cluster_enabled") == "1"]
    if not members:
        return None
    replies = await asking.everywhere("CLUSTER", "INFO")
    states = {name: parse_info(reply) for name, reply in replies.items()}
    if "" in states:
        if states[""].get("cluster_size") == "1":
            return None
        return Check("cluster", "fail", "This is one node of a Redis Cluster; write its URL as redis+cluster://host:port.")
    down = [name for name, state in states.items() if state.get("cluster_state") != "ok"]
    if down:
        return Check("cluster", "fail", f"The cluster calls itself down{among(down)}; bring the missing primaries back.")
    served = min(int(state.get("cluster_slots_ok", 0)) for state in states.values())
    if served < SLOTS:
        text = f"Only {served} of {SLOTS} slots are served; the conversations of the others degrade: give the slots to a primary."
        return Check("cluster", "fail", text)
    return Check("cluster", "ok", f"{len(states)} primaries serve all {SLOTS} slots.")
