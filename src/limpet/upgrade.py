"""Permits the newest schema of this release, namespace by namespace: the last step of a rolling upgrade.

Until then every replica, old or new, writes what the old ones read. Afterwards the new ones write the new format, within
seconds and without a restart, and an old one refuses what it cannot read; it never takes it for missing (design, section 4).
So nothing is lost by doing this too early, but turns fail: hence the look at who is connected.
"""

from __future__ import annotations

from typing import Final

import msgspec

from limpet.calls import Call
from limpet.errors import StoreMismatch, StoreUnavailable
from limpet.plumbing import Plumbing
from limpet.schema import FIELDS, NEWEST, OLDEST, read_config, reads_of
from limpet.scripts import script

__all__ = ["Outlook", "look", "permit"]

TIMEOUT_S: Final = 5.0
UNDEFINED: Final = 0
"""``schema`` of a namespace that nobody has set up."""


class Outlook(msgspec.Struct, frozen=True):
    """How a namespace stands.

    ``schema``: what is written now, 0 where the namespace was never set up; ``target``: what would be. ``behind``: addresses of
    connected replicas that could not read it (of any namespace on that store); None where CLIENT LIST may not be seen.
    """

    namespace: str
    schema: int
    target: int
    behind: tuple[str, ...] | None

    @property
    def due(self) -> bool:
        """Whether there is anything to do."""
        return UNDEFINED < self.schema < self.target


async def look(client: Plumbing) -> Outlook:
    """Looks, and changes nothing.

    Raises:
        StoreMismatch: the namespace is written in what this release does not know.
        StoreUnavailable: the store does not answer.
    """
    space = client.commands.keyspace
    reply = await client.executor.command("HMGET", space.config, *FIELDS, timeout_s=TIMEOUT_S, key=space.config)
    if None in reply:
        return Outlook(client.namespace, UNDEFINED, NEWEST, ())
    found = read_config(reply)
    found.require(client.namespace, found.partitions)
    return Outlook(client.namespace, found.schema, NEWEST, await _behind(client))


async def _behind(client: Plumbing) -> tuple[str, ...] | None:
    try:
        replies = await client.executor.ask_all("CLIENT", "LIST", timeout_s=TIMEOUT_S)
    except StoreUnavailable:
        return None
    found: dict[str, None] = {}
    for reply in replies.values():
        for line in reply.decode("utf-8", "replace").splitlines():
            fields = dict(pair.split("=", 1) for pair in line.split(" ") if "=" in pair)
            reads = reads_of(fields.get("name", ""))
            if reads is not None and reads < NEWEST:
                found[fields.get("addr", "?")] = None
    return tuple(found)


async def permit(client: Plumbing, target: int) -> bool | None:
    """Raises the schema that may be written; never lowers it. Whether replicas have it, None where nobody is asked.

    Raises:
        StoreMismatch: the namespace is not set up, or is ahead of ``target`` already.
        StoreUnavailable: the store did not answer; repeating it does no harm.
    """
    if not OLDEST <= target <= NEWEST:
        raise StoreMismatch(f"This release writes schema {OLDEST} to {NEWEST}; run the one that brings schema {target}.")
    await client.open()
    promise = client._promise()
    call: Call[int | None] = Call(script("config_raise"), (client.commands.keyspace.config,), (target,), _stored)
    durable: bool | None = None
    if promise is None:
        stored = await client.executor.run(call, TIMEOUT_S)
    else:
        stored, durable = await client.executor.run_durable(call, TIMEOUT_S, promise)
    if stored != target:
        was = "was never set up" if stored is None else f"is written in schema {stored} already"
        raise StoreMismatch(f"Namespace {client.namespace} {was}; nothing was changed.")
    return durable


def _stored(reply: int | bytes | None) -> int | None:
    return None if reply is None else int(reply)
