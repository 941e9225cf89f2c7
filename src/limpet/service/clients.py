"""One library client per namespace, opened when first asked for, at most so many (the idlest goes first).

A store that is away keeps no client from being handed out: the library itself answers degraded turns and refuses the
rest, and opening is tried again in the background at most once a second. A store that disagrees is an error each time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from limpet.clock import Clock, SystemClock
from limpet.errors import StoreUnavailable
from limpet.service.problems import TooManyNamespaces

if TYPE_CHECKING:
    from limpet.results import Advanced, Binding, Forgotten, Resolution, Suspended

__all__ = ["MAX_CLIENTS", "Client", "Clients", "Entry"]

MAX_CLIENTS: Final = 64
RETRY_S: Final = 1.0


class Client(Protocol):
    """What the service asks of :class:`limpet.Limpet`."""

    async def open(self) -> Any:
        """Connect and check the configuration."""

    async def close(self) -> None:
        """Disconnect."""

    async def resolve(self, key: str | None = None, **options: Any) -> Resolution:
        """A turn."""

    async def advance(self, key: str, reason: str, **options: Any) -> Advanced:
        """A new conversation."""

    async def suspend(self, key: str, **options: Any) -> Suspended:
        """Reset at the next turn."""

    async def peek(self, key: str) -> Resolution | None:
        """Look, do not touch."""

    async def forget(self, key: str, **options: Any) -> Forgotten:
        """The record goes."""

    async def confirm(self, key: str | None = None, **options: Any) -> Binding:
        """The claim becomes a binding."""

    async def abort(self, key: str | None = None, **options: Any) -> Binding:
        """The claim failed."""

    async def release(self, key: str | None = None, **options: Any) -> Binding:
        """The binding ends."""

    async def renew(self, key: str | None = None, **options: Any) -> Binding:
        """The binding lives on."""

    async def rebind(self, key: str | None = None, **options: Any) -> Binding:
        """Claim anew."""

    async def health(self) -> Any:
        """The checks of ``/readyz``."""

    async def count_bindings(self) -> Mapping[str, int]:
        """Live bindings by worker."""


class Entry:
    """The client of one namespace, and how many requests use it right now."""

    __slots__ = ("active", "client", "namespace", "opening", "ready", "tried")

    def __init__(self, namespace: str, client: Client) -> None:
        self.namespace = namespace
        self.client = client
        self.ready = False
        self.active = 0
        self.tried: float | None = None
        self.opening: asyncio.Task[None] | None = None


class Clients:
    """Hands out the client of a namespace.

    Args:
        connect: makes a client that is not open yet.
        limit: clients to hold at most.
        patience_s: how long a request waits for the opening before it goes on without.
    """

    def __init__(
        self,
        connect: Callable[[str], Client],
        *,
        limit: int = MAX_CLIENTS,
        patience_s: float = 0.25,
        clock: Clock | None = None,
    ) -> None:
        self._connect = connect
        self._limit = limit
        self._patience_s = patience_s
        self._clock = clock or SystemClock()
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, namespace: str) -> Entry | None:
        """The entry of a namespace if its client is open: the hot path."""
        entry = self._entries.get(namespace)
        if entry is None or not entry.ready:
            return None
        self._entries.move_to_end(namespace)
        return entry

    async def enter(self, namespace: str) -> Entry:
        """The entry of a namespace, its client opened if that can be done in time.

        Raises:
            StoreMismatch: the store disagrees with our configuration.
            TooManyNamespaces: all clients are busy.
        """
        entry = self._entries.get(namespace)
        if entry is None:
            self._make_room()
            entry = self._entries[namespace] = Entry(namespace, self._connect(namespace))
        self._entries.move_to_end(namespace)
        if entry.ready:
            return entry
        waited = entry.tried is not None
        if entry.opening is None and (entry.tried is None or self._clock.monotonic() - entry.tried >= RETRY_S):
            entry.tried = self._clock.monotonic()
            entry.opening = asyncio.create_task(self._open(entry))
        if entry.opening is not None:
            # The first requests wait a moment; once the store is known to be away, nobody does.
            done, _ = await asyncio.wait({entry.opening}, timeout=0 if waited and not entry.ready else self._patience_s)
            for task in done:
                task.result()
        return entry

    async def _open(self, entry: Entry) -> None:
        try:
            await entry.client.open()
            entry.ready = True
        except StoreUnavailable:
            entry.ready = False
        finally:
            entry.opening = None

    def _make_room(self) -> None:
        if len(self._entries) < self._limit:
            return
        for namespace, entry in self._entries.items():
            if entry.active == 0 and entry.opening is None:
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
        openings = [entry.opening for entry in entries if entry.opening is not None]
        for task in openings:
            task.cancel()
        await asyncio.gather(*openings, return_exceptions=True)
        await asyncio.gather(*(entry.client.close() for entry in entries), *self._closing, return_exceptions=True)
