"""One server of a topology: its lanes, who is opening them, and its breaker."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Literal

import redis.asyncio
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from limpet.executors.breaker import Breaker
from limpet.executors.lane import Check, Lane, Unreachable
from limpet.executors.urls import Address, StoreUrl

__all__ = ["Kind", "Node", "NodeClient", "OnBatch", "must_be_primary"]

Kind = Literal["shared", "durable"]
OnBatch = Callable[[int], None] | None


class NodeClient(redis.asyncio.Redis):
    """A redis-py client to one node, without redis-py's own retries: who subscribes has to learn of every gap.

    ``moved``: the topology has left this node; whoever listens here should ask for a new client.
    """

    moved: bool = False


async def must_be_primary(connection: AbstractConnection) -> None:
    """Raises Unreachable when the server calls itself a replica: nothing is ever read from one.

    A user without the right to ask either way passes: writes to a replica are refused, and that is noticed too.
    """
    role: object
    try:
        await connection.send_command("ROLE")
        role = (await connection.read_response())[0]
    except ResponseError:
        try:
            await connection.send_command("INFO", "replication")
            role = b"master" if b"role:master" in await connection.read_response() else b"slave"
        except ResponseError:
            return
    if role not in (b"master", "master"):
        raise Unreachable("The store's server is a replica now, and Limpet talks to primaries only; it looks for the primary.")


class Node:
    """Connects at most one lane of each kind, once for all who wait.

    Args:
        url: how to connect.
        address: where; None for a Unix socket.
        on_batch: told the size of each write.
        check: run on each new connection before it is used.
    """

    def __init__(self, url: StoreUrl, address: Address | None, on_batch: OnBatch, check: Check | None = None) -> None:
        self.address = address
        self.name = "" if address is None else f"{address[0]}:{address[1]}"
        self.lanes: dict[Kind, Lane] = {}
        self.breaker = Breaker(asyncio.get_running_loop().time)
        self._url = url
        self._on_batch = on_batch
        self._check = check
        self._opening: dict[Kind, asyncio.Task[Lane]] = {}
        self._clients: weakref.WeakSet[NodeClient] = weakref.WeakSet()

    def lane(self, kind: Kind) -> Lane | None:
        """The live lane of that kind, if there is one."""
        lane = self.lanes.get(kind)
        return None if lane is None or lane.lost else lane

    def live(self) -> list[Lane]:
        """At most two."""
        return [lane for lane in self.lanes.values() if not lane.lost]

    async def connect(self, kind: Kind, timeout_s: float) -> Lane:
        """The lane, connecting first where needed. Raises Unreachable, or StoreUnavailable for what no retry mends."""
        lane = self.lane(kind)
        if lane is not None:
            return lane
        task = self._opening.get(kind)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open(kind, timeout_s))
            self._opening[kind] = task
            task.add_done_callback(lambda done: self._opened(kind, done))
        done, _ = await asyncio.wait({task}, timeout=timeout_s)  # neither a timeout nor a cancelled caller ends the task
        if not done:
            raise Unreachable(
                "The store did not take a connection within the deadline; check that it runs, and that "
                "redis:// or rediss:// (TLS) is what it speaks."
            )
        if task.cancelled():
            raise Unreachable("The store's server was given up while connecting to it.")
        return task.result()

    async def _open(self, kind: Kind, timeout_s: float) -> Lane:
        lane = await Lane.open(
            self._url.connector(self.address),
            timeout_s=max(timeout_s, 1.0),
            on_batch=self._on_batch,
            breaker=self.breaker,
            check=self._check,
        )
        self.lanes[kind] = lane
        return lane

    def _opened(self, kind: Kind, task: asyncio.Task[Lane]) -> None:
        if self._opening.get(kind) is task:
            del self._opening[kind]
        if not task.cancelled():
            task.exception()  # whoever waited has seen it; a caller that gave up must not leave a warning behind

    def client(self) -> NodeClient:
        """A redis-py client to this node; the caller closes it."""
        arguments = {**self._url.arguments(self.address), "retry": Retry(NoBackoff(), 0)}
        client = NodeClient(connection_pool=ConnectionPool(connection_class=self._url.connection_class, **arguments))
        client.auto_close_connection_pool = True  # as redis-py's from_pool does, whose type forgets the class
        self._clients.add(client)
        return client

    def drop(self) -> None:
        """Gives the lanes up at once: calls in flight get LaneLost, and who subscribes here is told to move."""
        for lane in list(self.lanes.values()):
            lane.close()
        self.lanes.clear()
        for task in list(self._opening.values()):
            task.cancel()
        self._opening.clear()
        for client in self._clients:
            client.moved = True

    async def close(self) -> None:
        """The same, and waits for the sockets to be closed."""
        tasks, lanes = list(self._opening.values()), list(self.lanes.values())
        self.drop()
        if tasks:
            await asyncio.wait(tasks)
        for lane in lanes:
            await lane.close()
