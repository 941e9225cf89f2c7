"""Takes bindings that are over out of the store's index, about once a minute (design, section 4: pruning of ``bound``).

Any number of replicas may do so at any time; of the worker processes of one ``limpet serve`` one does it, so that more processes
are not more work. Which one: whoever holds a lock on a file in the directory that they share; it goes with its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from limpet.errors import LimpetError
from limpet.metrics import MULTIPROC
from limpet.service.clients import Clients
from limpet.service.logs import log_unexpected, logger

__all__ = ["Janitor"]

EVERY_S: Final = 60.0
FILE: Final = "janitor.lock"


class Janitor:
    """One per process.

    Args:
        clients: whose open namespaces are tended.
        also: what every process has to tidy for itself, elected or not.
        every_s: seconds between two rounds, on average; each is spread by half of it, so that replicas do not meet.
        spread: a number from 0 up to 1.
    """

    def __init__(
        self,
        clients: Clients,
        *,
        also: Callable[[], None] = lambda: None,
        every_s: float = EVERY_S,
        spread: Callable[[], float] = random.random,
        directory: str | None = None,
    ) -> None:
        self._clients = clients
        self._also = also
        self._every_s = every_s
        self._spread = spread
        self._directory = os.environ.get(MULTIPROC) if directory is None else directory
        self._lock: IO[bytes] | None = None
        self._task: asyncio.Task[None] | None = None
        self.rounds = 0

    def start(self) -> None:
        """In the background."""
        self._task = asyncio.get_running_loop().create_task(self._keep_tidy())

    async def close(self) -> None:
        """Ends, and leaves the office to another process."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def elected(self) -> bool:
        """Whether this process is the one. A process alone always is."""
        if self._lock is not None or not self._directory:
            return True
        with contextlib.suppress(OSError):
            held = (Path(self._directory) / FILE).open("ab")
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # another process is
                held.close()
                return False
            self._lock = held
        return self._lock is not None

    async def _keep_tidy(self) -> None:
        while True:
            await asyncio.sleep(self._every_s * (0.75 + self._spread() / 2))
            self._also()
            if self.elected():
                await self.tidy()
                self.rounds += 1

    async def tidy(self) -> int:
        """One round over the open namespaces; the number of members removed."""
        removed = 0
        for entry in self._clients.all():
            entry.active += 1  # so that its client is not closed under us
            try:
                removed += await entry.client.prune()
            except LimpetError as error:
                logger.warning("not pruned", namespace=entry.namespace, code=error.code)
            except Exception as error:  # noqa: BLE001  (the next round tries again; it is logged)
                log_unexpected("prune", error)
            finally:
                entry.active -= 1
        return removed
