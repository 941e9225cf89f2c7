"""Asks every primary, within one deadline for all questions, and tells silence from a refusal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from limpet.errors import LimpetError, StoreUnavailable, unwrapped

if TYPE_CHECKING:
    from limpet.executors.aio import AsyncExecutor

__all__ = ["Asking", "reason"]

FIRST_SHARE: Final = 0.5
"""What part of the time the first question may take, since a node that is silent takes all of it."""
_NODE: Final = "node "


def reason(error: BaseException) -> str:
    """The server's own words for a refusal, which begin with NOPERM, OOM, ...; else our sentence."""
    cause: BaseException | None = error
    while cause is not None and isinstance(cause, (LimpetError, ConnectionError)):
        cause = cause.__cause__
    return unwrapped(str(cause or error))


class Asking:
    """The questions of one examination.

    Args:
        executor: sends them.
        timeout_s: for all of them together.
    """

    def __init__(self, executor: AsyncExecutor, timeout_s: float) -> None:
        self.executor = executor
        self._deadline = executor.time() + timeout_s
        self.primaries: list[str] = []
        self.silent: dict[str, StoreUnavailable] = {}

    @staticmethod
    def name(primary: str) -> str:
        """How people call a text of :meth:`limpet.executors.topology.Topology.primaries`."""
        return primary.removeprefix(_NODE)

    def left_s(self) -> float:
        """Seconds left."""
        return max(self._deadline - self.executor.time(), 0.001)

    async def at(self, key: str, *words: str | int | bytes) -> Any:
        """One command to the primary of a key (or to a primary). Raises StoreUnavailable, also for a refusal."""
        verb, *rest = words
        return await self.executor.command(str(verb), *rest, timeout_s=self.left_s(), key=key)

    async def everywhere(self, *words: str | int | bytes) -> dict[str, Any]:
        """The same to each primary that answered the first question; replies by name. Raises the first refusal or silence."""
        replies = await asyncio.gather(*(self.at(primary, *words) for primary in self.primaries))
        return {self.name(primary): reply for primary, reply in zip(self.primaries, replies, strict=True)}

    async def reach(self) -> float:
        """Finds the primaries that answer; seconds for the slowest of them. The others are in ``silent``, by name."""
        executor = self.executor
        began, timeout_s = executor.time(), self.left_s() * FIRST_SHARE
        if executor.topology.primaries() == [""]:  # perhaps a cluster whose map has not been read yet
            try:
                await executor.command("PING", timeout_s=timeout_s)
            except StoreUnavailable as error:
                self.silent[""] = error
                return 0.0
            began = executor.time()
        primaries = executor.topology.primaries()
        took = await asyncio.gather(*(self._ping(primary, began, timeout_s) for primary in primaries))
        for primary, seconds in zip(primaries, took, strict=True):
            if isinstance(seconds, StoreUnavailable):
                self.silent[self.name(primary)] = seconds
            else:
                self.primaries.append(primary)
                executor.topology.breaker(primary).succeeded()
        return max((seconds for seconds in took if isinstance(seconds, float)), default=0.0)

    async def _ping(self, primary: str, began: float, timeout_s: float) -> float | StoreUnavailable:
        try:
            await self.executor.command("PING", timeout_s=timeout_s, key=primary)
        except StoreUnavailable as error:
            return error
        return self.executor.time() - began
