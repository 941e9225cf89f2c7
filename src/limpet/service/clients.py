"""One library client per namespace, made when first asked for, at most so many (the idlest goes first).

A client needs no opening: the library connects at the first call, answers degraded turns while the store is away, and
tries again by itself. Only start-up opens the namespaces that are known, so that a store that disagrees is noticed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from limpet.errors import StoreUnavailable
from limpet.service.logs import logger
from limpet.service.problems import TooManyNamespaces

if TYPE_CHECKING:
    from limpet.bind import Bind
    from limpet.coordinator import Kind
    from limpet.events import Event
    from limpet.health import Health
    from limpet.maintenance import Drained
    from limpet.opinion import Opinion
    from limpet.policy import Policy
    from limpet.results import Advanced, Binding, Forgotten, Resolution, Suspended
    from limpet.workers import Worker

__all__ = ["MAX_CLIENTS", "Client", "Clients", "Entry"]

MAX_CLIENTS: Final = 64


class Client(Protocol):
    """What the service asks of :class:`limpet.Limpet`."""

    opinion: Opinion | None

    async def open(self) -> None:
        """Connect and check the configuration."""

    async def close(self) -> None:
        """Disconnect."""

    async def resolve(
        self,
        key: str | None = None,
        *,
        session_id: str,
        kind: Kind = "turn",
        parent_key: str | None = None,
        policy: Policy | Mapping[str, object] | None = None,
        exempt: bool = False,
        seen_epoch: int | None = None,
        bind: Bind | Mapping[str, object] | bool | None = None,
        request_id: str | None = None,
        require_durable: bool = False,
    ) -> Resolution:
        """A turn."""

    async def advance(
        self,
        key: str,
        reason: str,
        *,
        expected_epoch: int | None = None,
        request_id: str | None = None,
        require_durable: bool = False,
    ) -> Advanced:
        """A new conversation."""

    async def suspend(self, key: str, *, resume_within_s: float | None = None, request_id: str | None = None) -> Suspended:
        """Reset at the next turn."""

    async def peek(self, key: str) -> Resolution | None:
        """Look, do not touch."""

    async def forget(self, key: str, *, expected_epoch: int | None = None, request_id: str | None = None) -> Forgotten:
        """The record goes."""

    async def confirm(
        self,
        key: str | None = None,
        *,
        session_id: str | None = None,
        fence: int,
        worker: str | None = None,
        dp_rank: int | None = None,
        ttl_ms: int | None = None,
        request_id: str | None = None,
        require_durable: bool = False,
    ) -> Binding:
        """The claim becomes a binding."""

    async def abort(
        self,
        key: str | None = None,
        *,
        session_id: str | None = None,
        fence: int,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> Binding:
        """The claim failed."""

    async def release(
        self,
        key: str | None = None,
        *,
        session_id: str | None = None,
        fence: int,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> Binding:
        """The binding ends."""

    async def renew(
        self,
        key: str | None = None,
        *,
        session_id: str | None = None,
        fence: int,
        ttl_ms: int | None = None,
        request_id: str | None = None,
    ) -> Binding:
        """The binding lives on."""

    async def rebind(
        self,
        key: str | None = None,
        *,
        session_id: str | None = None,
        fence: int,
        reason: str,
        worker: str | None = None,
        pool: str | None = None,
        exclude: Sequence[str] = (),
        holder: str | None = None,
        claim_ttl_ms: int | None = None,
        request_id: str | None = None,
        require_durable: bool = False,
    ) -> Binding:
        """Claim anew."""

    def events(self) -> AsyncGenerator[Event, None]:
        """What replicas tell one another."""

    async def read_record(self, key: str) -> tuple[str, bytes | None]:
        """The digest and the stored record."""

    async def register(
        self,
        worker: str,
        *,
        pool: str,
        address: str = "",
        capacity: float = 1.0,
        incarnation: str = "",
        labels: Mapping[str, str] | None = None,
        ttl_ms: int = 15_000,
        on_behalf: bool = False,
    ) -> Worker:
        """A worker comes."""

    async def heartbeat(self, worker: str, *, incarnation: str | None = None) -> Worker:
        """It is alive."""

    async def mark_draining(self, worker: str) -> Worker:
        """It is proposed no more."""

    async def undrain(self, worker: str) -> Worker:
        """It is proposed again."""

    async def remove_worker(self, worker: str) -> Worker:
        """It goes."""

    def drain(self, worker: str, *, resume: bool = False, moved: int = 0) -> AsyncIterator[Drained]:
        """One pass."""

    async def workers(self, *, counts: bool = False) -> list[Worker]:
        """All of them."""

    async def watch_workers(self) -> bool:
        """Keep a view of the workers from now on."""

    async def bindings_by_worker(self) -> dict[str, int]:
        """Live bindings."""

    async def prune(self) -> int:
        """Tidy the index."""

    async def link_response(self, response_id: str, key: str) -> None:
        """A response belongs to that conversation."""

    async def key_of_response(self, response_id: str) -> str | None:
        """The conversation of a response."""

    async def health(self) -> Health:
        """The checks of ``/readyz``."""


class Entry:
    """The client of one namespace, and how many requests use it right now."""

    __slots__ = ("active", "client", "namespace")

    def __init__(self, namespace: str, client: Client) -> None:
        self.namespace = namespace
        self.client = client
        self.active = 0


class Clients:
    """Hands out the client of a namespace.

    Args:
        connect: makes a client.
        limit: clients to hold at most.
    """

    def __init__(self, connect: Callable[[str], Client], *, limit: int = MAX_CLIENTS) -> None:
        self._connect = connect
        self._limit = limit
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def enter(self, namespace: str) -> Entry:
        """The entry of a namespace. Raises TooManyNamespaces when all clients are busy."""
        entry = self._entries.get(namespace)
        if entry is None:
            self._make_room()
            entry = self._entries[namespace] = Entry(namespace, self._connect(namespace))
        self._entries.move_to_end(namespace)
        return entry

    async def open(self, namespace: str) -> None:
        """Open a client at start-up. A store that is away is no reason not to start; ``/readyz`` tells.

        Raises:
            StoreMismatch: the store disagrees with our settings.
        """
        try:
            await self.enter(namespace).client.open()
        except StoreUnavailable as error:
            logger.warning("store is away", namespace=namespace, code=error.code)

    def _make_room(self) -> None:
        if len(self._entries) < self._limit:
            return
        for namespace, entry in self._entries.items():
            if entry.active == 0:
                del self._entries[namespace]
                task = asyncio.create_task(entry.client.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
                return
        raise TooManyNamespaces(f"This process serves {self._limit} namespaces at once, and all of them are busy.")

    def all(self) -> list[Entry]:
        """All entries, the idlest first."""
        return list(self._entries.values())

    async def close(self) -> None:
        """Close every client."""
        entries, self._entries = list(self._entries.values()), OrderedDict()
        await asyncio.gather(*(entry.client.close() for entry in entries), *self._closing, return_exceptions=True)
