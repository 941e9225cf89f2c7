"""Looks at the topology again: often while something is wrong, else rarely or not at all. One task, however many ask."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

__all__ = ["Lookout", "answers"]

T = TypeVar("T")

OFTEN_S: Final = 0.1
"""Between two looks while something is wrong; half to one and a half times that."""
WRONG_S: Final = 5.0
"""How long one suspicion keeps the looks coming; every failing call renews it."""


class Lookout:
    """Args:
    look: one look; it handles its own errors.
    rarely_s: seconds between two looks while all is well; None: none.
    """

    def __init__(self, look: Callable[[], Awaitable[None]], rarely_s: float | None = None) -> None:
        self._look = look
        self._rarely_s = rarely_s
        self._loop = asyncio.get_running_loop()
        self._wrong_until = 0.0
        self._wanted = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False

    def once(self) -> None:
        """One look soon."""
        self._wanted = True
        self._start()

    def suspect(self) -> None:
        """Something is wrong: looks now and keeps looking for a while, unless :meth:`mended` comes first."""
        self._wrong_until = self._loop.time() + WRONG_S
        self._start()

    def mended(self) -> None:
        """What was wrong is over."""
        self._wrong_until = 0.0

    async def looked(self, timeout_s: float) -> None:
        """Waits for the end of the next look (or of the one under way), at most so long."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(future)
        self.once()
        await asyncio.wait({future}, timeout=timeout_s)

    def _start(self) -> None:
        self._wake.set()
        if not self._closed and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        while True:
            self._wanted = False
            self._wake.clear()
            try:
                await self._look()
            finally:
                waiters, self._waiters = self._waiters, []
                for future in waiters:
                    if not future.done():
                        future.set_result(None)
            # Never faster than this, however many calls fail at once.
            await asyncio.sleep(OFTEN_S * (0.5 + random.random()))
            if self._wanted or self._loop.time() < self._wrong_until:
                continue
            pause = None if self._rarely_s is None else self._rarely_s * (0.5 + random.random())
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """Ends the looks."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


async def answers(asked: Iterable[Awaitable[T | None]], timeout_s: float, grace_s: float) -> list[T]:
    """What those asked have to say: all that comes within ``timeout_s``, and within ``grace_s`` of the first real answer.
    None is no answer, so a server that hangs or knows nothing delays those who know by ``grace_s`` at most."""
    loop = asyncio.get_running_loop()
    pending = {asyncio.ensure_future(each) for each in asked}
    until = loop.time() + timeout_s
    found: list[T] = []
    try:
        while pending and (left := until - loop.time()) > 0:
            done, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                answer = task.result()
                if answer is not None:
                    if not found:
                        until = min(until, loop.time() + grace_s)
                    found.append(answer)
    finally:
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
    return found
