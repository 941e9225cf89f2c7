"""Active health checks: a GET of every upstream now and then, and the gauges that tell what is known.

An answer is good unless it is a 5xx: a server without such a path (404), or that asks for a login there (401), is alive. No
connection, silence, garbage and 5xx are bad; 501 is a server that does not know the method, and good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from limpet.gateway.dispatch import Dispatcher
from limpet.gateway.measures import Measures
from limpet.gateway.problems import NoUpstream
from limpet.gateway.upstreams import Upstream
from limpet.gateway.vitals import Vitals
from limpet.service.logs import logger
from limpet.service.problems import HttpError

__all__ = ["Checks", "is_good"]

AT_ONCE: Final = 64
LONGEST_TICK_S: Final = 1.0
SHORTEST_TICK_S: Final = 0.02
JITTER: Final = 0.2
"""Part of the interval by which checks are spread, so that gateways do not ask in step."""


class Checks:
    """Runs for as long as the gateway.

    Args:
        upstreams: those there are now.
        path: of the health page, from the server's root.
        interval_s: between two checks of one upstream; 0: none are made, and only the gauges are kept.
        timeout_s: how long one may take.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        vitals: Vitals,
        measures: Measures,
        upstreams: Callable[[], Iterable[Upstream]],
        panics: Callable[[], bool],
        monotonic: Callable[[], float],
        *,
        path: str,
        interval_s: float,
        timeout_s: float,
    ) -> None:
        self._dispatcher = dispatcher
        self._vitals = vitals
        self._measures = measures
        self._upstreams = upstreams
        self._panics = panics
        self._monotonic = monotonic
        self._path = path
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._due: dict[str, float] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._random = Random()
        self._tick_s = min(LONGEST_TICK_S, max(SHORTEST_TICK_S, interval_s / 10)) if interval_s else LONGEST_TICK_S

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._look()
                await asyncio.sleep(self._tick_s)
        finally:
            for task in self._asking.values():
                task.cancel()
            await asyncio.gather(*self._asking.values(), return_exceptions=True)

    def _look(self) -> None:
        now_there = {each.name: each for each in self._upstreams()}
        self._vitals.keep(now_there)
        self._measures.upstreams({name: self._vitals.is_up(name) for name in now_there}, panics=self._panics())
        if not self._interval_s:
            return
        now = self._monotonic()
        self._due = {name: self._due.get(name, now) for name in now_there}
        for name, due in self._due.items():
            if due <= now and name not in self._asking and len(self._asking) < AT_ONCE:
                self._due[name] = now + self._interval_s * self._random.uniform(1 - JITTER, 1 + JITTER)
                self._asking[name] = task = asyncio.create_task(self._ask(now_there[name]))
                task.add_done_callback(lambda _, name=name: self._asking.pop(name, None))  # type: ignore[misc]

    async def _ask(self, upstream: Upstream) -> None:
        reached = good = False
        try:
            async with asyncio.timeout(self._timeout_s):
                status = await self._dispatcher.check(upstream, self._path)
            reached, good = True, is_good(status)
        except NoUpstream:
            outcome = "unreachable"
        except TimeoutError:
            outcome = "timeout"
        except HttpError:
            reached, outcome = True, "failed"
        else:
            outcome = "good" if good else "failed"
        self._measures.check(outcome)
        if self._vitals.checked(upstream.name, good=good, reached=reached):
            logger.warning("upstream is " + self._vitals.state(upstream.name), upstream=upstream.name, check=outcome)


def is_good(status: int) -> bool:
    """Whether a server that answers a health check so is alive."""
    return status < 500 or status == 501
