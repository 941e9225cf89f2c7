"""``GET /v1/history/{key}``: what is known of a conversation's past, and from where.

Two sources, and no more is claimed than they hold: the record itself, which keeps its last 8 decisions with the epochs that they
belong to (any replica reads the same); and what this process has heard as events since it began to listen.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.types import Receive, Scope, Send

from limpet.clock import tick_to_unix_ms
from limpet.record import decode_record
from limpet.service.answers import name_of, need, nothing, query_of, send_answer
from limpet.service.auth import Guard
from limpet.service.clients import Client, Clients
from limpet.service.feed import Feeds, Told, told

__all__ = ["PATH", "Epoch", "Histories", "History"]

PATH: Final = b"/v1/history/"
_ring: Final = msgspec.msgpack.Decoder(list[list[Any]]).decode


class Epoch(msgspec.Struct, frozen=True):
    """One conversation under the key. ``reason`` is why it replaced the one before; None where only its number is still known."""

    epoch: int
    began_ms: int
    ordinal: int | None
    reason: str | None


class History(msgspec.Struct, frozen=True):
    """``epochs``: the newest first, as far as the record remembers. ``events``: the newest first, heard by this process since
    ``listening_since_ms`` (Unix time); ``digest`` is how they name the key."""

    digest: str
    epochs: list[Epoch]
    events: list[Told]
    listening_since_ms: int


class Histories:
    """The route."""

    def __init__(self, guard: Guard, clients: Clients, feeds: Feeds) -> None:
        self._guard = guard
        self._clients = clients
        self._feeds = feeds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One look."""
        need(scope["method"], "GET")
        headers: dict[bytes, bytes] = dict(scope["headers"])
        entry = self._clients.enter(self._guard.enter(headers, "resolve", "admin"))
        query_of(scope)
        key = name_of(scope["raw_path"][len(PATH) :], "key")
        await nothing(receive, headers, "GET")
        entry.active += 1  # so that its client is not closed under us
        try:
            digest, epochs = await _recorded(entry.client, key)
        finally:
            entry.active -= 1
        feed = self._feeds.of(entry)
        events = [told(each) for each in reversed(feed.history(f"conv:{digest}"))]
        await send_answer(send, headers, History(digest, epochs, events, feed.since_ms))


async def _recorded(client: Client, key: str) -> tuple[str, list[Epoch]]:
    digest, raw = await client.read_record(key)
    record = decode_record(raw or b"")
    if record is None or record.forgotten:
        return digest, []
    found: dict[int, Epoch] = {}

    def add(epoch: int, ordinal: int | None, reason: str | None) -> None:
        if epoch and (epoch not in found or found[epoch].reason is None):
            found[epoch] = Epoch(epoch, tick_to_unix_ms(epoch), ordinal, reason)

    add(record.epoch, record.body.ordinal, record.body.reason)
    add(record.body.previous, record.body.ordinal - 1 or None, None)
    for _, _, epoch, ordinal, reason, previous, *_ in _ring(record.body.ring):
        add(epoch, ordinal, reason or None)
        add(previous, ordinal - 1 or None, None)
    return digest, sorted(found.values(), key=lambda each: -each.epoch)
