"""One gateway process of ``limpet bench peers``: ``-m limpet.bench.peers_process``, a Plan on stdin, an Outcome on stdout."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

import msgspec
import redis.asyncio
import uvloop

from limpet.bench.model import percentile
from limpet.bench.peers_ways import WAYS, Crash, Way
from limpet.bench.processes import answer

__all__ = ["Outcome", "Plan", "carry_out"]

WORKERS: Final = 8


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``prefix``: of session names, new for each run. ``turns``: per session, the first one included. ``faults``: this process
    dies in the first request of a session, or is slow, where it is that session's turn to."""

    way: str
    urls: list[str]
    number: int
    processes: int
    sessions: int
    prefix: str
    turns: int
    tasks: int
    ttl_s: float
    faults: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """``workers``: per session, the workers that its turns went to, in order. ``bound``: per session, the binds carried out."""

    seconds: float
    turns: int
    p50_us: float
    p99_us: float
    workers: list[list[str]]
    bound: list[int]


class _Run:
    def __init__(self, plan: Plan, way: Way) -> None:
        self._plan = plan
        self._way = way
        self.times: list[float] = []
        self.workers: list[list[str]] = [[] for _ in range(plan.sessions)]
        self.bound = [0] * plan.sessions
        self._dispatched: set[int] = set()

    async def _turn(self, session: int) -> None:
        plan = self._plan
        candidate = f"worker-{(session + plan.number) % WORKERS}"

        async def dispatch(_: str) -> None:
            first = session not in self._dispatched
            self._dispatched.add(session)
            if plan.faults and first and session % plan.processes == plan.number:
                if session // plan.processes % 2:
                    raise Crash
                await asyncio.sleep(plan.ttl_s * 2.5)
                return
            await asyncio.sleep(0)

        began = time.perf_counter()
        try:
            told = await self._way.turn(f"{plan.prefix}{session}", candidate, dispatch)
        except Crash:
            return
        self.times.append(time.perf_counter() - began)
        self.workers[session].append(told.worker)
        self.bound[session] += told.bound

    async def all(self) -> float:
        """Every session's first turn at about the same time in every process; then the later ones."""
        began = time.perf_counter()
        for _ in range(self._plan.turns):
            todo = iter(range(self._plan.sessions))

            async def work(todo: object = todo) -> None:
                for session in todo:  # type: ignore[attr-defined]
                    await self._turn(session)

            await asyncio.gather(*(work() for _ in range(self._plan.tasks)))
        return time.perf_counter() - began


async def _all_here(plan: Plan) -> None:
    """Until every process of the run is ready: they meet each session at the same time."""
    async with redis.asyncio.Redis.from_url(plan.urls[0]) as client:
        name = f"here:{plan.prefix}"
        here = int(await client.incr(name))
        while here < plan.processes:
            await asyncio.sleep(0.002)
            here = int(await client.get(name) or 0)


async def carry_out(plan: Plan) -> Outcome:
    """What this process does; the others do it meanwhile."""
    async with WAYS[plan.way](plan.urls, plan.ttl_s) as way:
        run = _Run(plan, way)
        await _all_here(plan)
        seconds = await run.all()
    run.times.sort()
    p50, p99 = (percentile(run.times, part) * 1e6 for part in (0.5, 0.99))
    return Outcome(
        seconds=seconds, turns=len(run.times), p50_us=p50, p99_us=p99, workers=run.workers, bound=run.bound
    )  # fmt: skip


if __name__ == "__main__":
    answer(uvloop.run(carry_out(msgspec.json.decode(sys.stdin.buffer.read(), type=Plan))))
