"""One client process: ``python -m limpet.chaos.process`` with a Plan as JSON on stdin. Ends by itself when its time is over."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sys
from pathlib import Path
from typing import Any

import msgspec
import structlog

from limpet.chaos.history import Stall, Writer
from limpet.chaos.recording import Recorder, now_us
from limpet.chaos.workload import Caller, Pool, Workload
from limpet.coordinator import Limpet
from limpet.errors import StoreUnavailable

__all__ = ["Plan", "main"]

BEAT_S = 0.01


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one process is to do. ``until_us`` is on CLOCK_MONOTONIC; ``settings`` are those of Limpet.connect."""

    url: str
    name: str
    seed: int
    history: str
    until_us: int
    clients: int = 2
    callers: int = 6
    settings: dict[str, Any] = {}
    workload: Workload = Workload()


async def _beat(writer: Writer, process: str) -> None:
    """Writes down when this process did not get to run."""
    while True:
        due = now_us() + int(BEAT_S * 1_000_000)
        await asyncio.sleep(BEAT_S)
        if now_us() - due > BEAT_S * 1_000_000:
            writer.write(Stall(process=process, start_us=due, end_us=now_us()))


async def work(plan: Plan) -> None:
    """Runs the plan."""
    with Writer(Path(plan.history)) as writer:
        async with contextlib.AsyncExitStack() as stack:
            recorders = []
            for number in range(plan.clients):
                name = f"{plan.name}.{number}"
                client = Limpet.connect(plan.url, holder=name, **plan.settings)
                stack.push_async_callback(client.close)
                with contextlib.suppress(StoreUnavailable):  # a later call tries again
                    await client.open()
                recorders.append(Recorder(client, name, plan.name, writer))
            beat = asyncio.create_task(_beat(writer, plan.name))
            pool = Pool(recorders, plan.workload)
            callers = [
                Caller(pool, f"{plan.name}.{number}", random.Random(f"{plan.seed}.{plan.name}.{number}"), careful=number % 2 == 0)
                for number in range(plan.callers)
            ]

            def over() -> bool:
                return writer.full or now_us() >= plan.until_us

            await asyncio.gather(*(caller.run(over, lambda: now_us() / 1_000_000) for caller in callers))
            beat.cancel()
            await asyncio.wait([beat])


def main() -> None:
    """Reads the plan and runs it."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    asyncio.run(work(msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)))


if __name__ == "__main__":
    main()
