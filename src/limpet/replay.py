"""Replays: what a load generator's workers share instead of a set of sessions "already bound" in each process.

    replay = Replay(client)
    async with replay.request("s7") as turn:          # warm-up and profiling alike: whoever comes first binds, once
        headers, body = turn.stamp("dynamo-session-control", headers, body)
        ...                                            # send it; turn.served_by(worker) if the answer says who served
    await replay.recycle("s7", cycle=2)                # the session stands for a new conversation: a new scope, one new bind
    async with replay.fork("s7/b1", parent="s7") as turn: ...

All of it lies in the store, so it holds over any number of processes and machines, and over their restarts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from limpet.bind import MAX_WAIT_MS, Bind
from limpet.cache_bust import marker_for
from limpet.coordinator import Limpet
from limpet.errors import StaleFence
from limpet.turn import Turn
from limpet.validate import check_int, check_text
from limpet.wire import Profile, Stamped, stamp

__all__ = ["Replay", "ReplayTurn"]

H = TypeVar("H", bound="Mapping[str, str] | Sequence[tuple[str, str]]")
B = TypeVar("B", bound="bytes | Mapping[str, Any] | None")
MAX_CYCLE: Final = 2**53 - 1


class ReplayTurn:
    """One request of a session, while it is sent."""

    def __init__(self, turn: Turn, *, final: bool) -> None:
        self.turn = turn
        self.final = turn.final = final

    @property
    def binds(self) -> bool:
        """Whether this request, of all in the cluster, is the one that carries the bind marker."""
        binding = self.turn.binding
        return binding is not None and binding.action == "bind"

    @property
    def scope(self) -> str:
        """The affinity token for the wire."""
        return self.turn.scope

    @property
    def worker(self) -> str | None:
        """Where the session is bound, if that is known."""
        return self.turn.binding.worker if self.turn.binding is not None else None

    @property
    def marker(self) -> str:
        """The session's cache-bust marker, for :func:`limpet.cache_bust.apply`; the same in warm-up and profiling."""
        return marker_for(self.scope)

    def stamp(self, profile: str | Profile | Mapping[str, Any], headers: H, body: B, owned: Sequence[str] = ()) -> Stamped[H, B]:
        """The request with the scope where the server wants it; see :func:`limpet.wire.stamp`."""
        return stamp(profile, headers, body, self.turn, owned)

    def served_by(self, worker: str, dp_rank: int | None = None) -> None:
        """Names the worker that really served; later requests of the session go there."""
        self.turn.served_by(worker, dp_rank)


class Replay:
    """The verbs of a replay, over one client. Its methods may run concurrently.

    Args:
        client: open.
        ttl_ms: how long a session stays bound between its requests; the client's default without.
        wait_ms: how long a request waits while another one binds its session, at most 30 s.
    """

    def __init__(self, client: Limpet, *, ttl_ms: int | None = None, wait_ms: int = MAX_WAIT_MS) -> None:
        self._client = client
        self._bind = Bind.parse(Bind(ttl_ms=ttl_ms, wait_ms=wait_ms))

    @asynccontextmanager
    async def request(self, session_id: str, *, final: bool = False) -> AsyncIterator[ReplayTurn]:
        """One request of a session; of a spawned child too, which is a session of its own.

        The block confirms if it ends well. If it raises, the bind is given back, and the session's next request, whichever
        process sends it, binds. After a ``final`` request that went well the session is released.
        Raises InvalidRequest; a store that is away degrades the turn.
        """
        check_text(session_id, "session_id")
        turn = self._client.turn(session_id, session_id=session_id, bind=self._bind)
        async with turn:
            yield ReplayTurn(turn, final=final)
        if final:
            await self._release(turn, key=session_id)

    @asynccontextmanager
    async def fork(self, session_id: str, parent: str, *, final: bool = False) -> AsyncIterator[ReplayTurn]:
        """One request of a branch. It has a scope and a binding of its own; its parent's stay as they are."""
        check_text(session_id, "session_id")
        turn = self._client.turn(session_id=session_id, kind="fork", parent_key=parent, bind=self._bind)
        async with turn:
            yield ReplayTurn(turn, final=final)
        if final:
            await self._release(turn, session_id=session_id)

    async def recycle(self, session_id: str, *, cycle: int) -> int:
        """The session id is used for another conversation from now on; the new epoch.

        ``cycle`` counts its uses: of all processes that recycle it for the same cycle, one advances, and the others learn.
        Raises InvalidRequest, StoreUnavailable.
        """
        check_int(cycle, "cycle", 0, MAX_CYCLE)
        return (await self._client.advance(session_id, "recycled", request_id=f"recycle:{cycle}")).epoch

    async def _release(self, turn: Turn, *, key: str | None = None, session_id: str | None = None) -> None:
        binding = turn.binding
        if binding is None or binding.fence is None or turn.lost:
            return
        try:
            await self._client.release(key, session_id=session_id, fence=binding.fence, reason="final")
        except StaleFence:
            return  # another has bound it since: theirs to release
