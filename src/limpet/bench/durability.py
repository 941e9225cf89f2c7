"""``limpet bench durability``: what a decision costs when somebody has to have it before it is answered."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import uvloop

from limpet.bench.alternate import alternate_async
from limpet.bench.library import drive
from limpet.bench.model import SILENT, Report, Row, Sample, Tell, machine, rows_of
from limpet.bench.place import version
from limpet.bench.servers import running
from limpet.coordinator import Limpet

__all__ = ["run"]

TASKS: Final = (1, 64)
_AOF: Final = ("--appendonly", "yes", "--appendfsync")


class _Way(NamedTuple):
    durability: str
    arguments: tuple[str, ...] = ()
    replica: bool = False


WAYS: Final = {
    "none": _Way("none"),
    "AOF everysec": _Way("none", (*_AOF, "everysec")),
    "AOF always, waited for": _Way("aof", (*_AOF, "always")),
    "a replica, not waited for": _Way("none", replica=True),
    "a replica, waited for": _Way("replica", replica=True),
}


def run(*, calls: int = 5000, tasks: Sequence[int] = TASKS, rounds: int = 3, tell: Tell = SILENT) -> Report:
    """``calls``: advances per way and round, at the most tasks; a fifth of them by one alone."""
    with running(*(way.arguments for way in WAYS.values())) as primaries, contextlib.ExitStack() as stack:
        for primary, way in zip(primaries, WAYS.values(), strict=True):
            if way.replica:
                (replica,) = stack.enter_context(running(()))
                replica.replicate(primary)
        urls = [primary.url for primary in primaries]
        rows = uvloop.run(_measure(dict(zip(WAYS, urls, strict=True)), calls, tasks, rounds, tell))
        told = version(primaries[0].client)
    return Report(
        bench="durability",
        title="Advances a second, by who has to have them before the answer; ratio to nobody",
        rows=rows,
        notes=[
            "All advances that come while one WAIT is under way share the next one (group commit).",
            "require_durable takes the same way: an advance waits all the same, and only a no becomes an error.",
        ],
        axes={"": "tasks at once"},
        machine=machine(told),
    )


async def _measure(urls: dict[str, str], calls: int, tasks: Sequence[int], rounds: int, tell: Tell) -> list[Row]:
    rows: list[Row] = []
    async with contextlib.AsyncExitStack() as stack:
        clients = {}
        for name, url in urls.items():
            settings: dict[str, Any] = {"durability": WAYS[name].durability, "deadline_ms": 10_000}
            clients[name] = await stack.enter_async_context(Limpet.connect(url, **settings))
        for many in tasks:
            some = max(calls if many > 1 else calls // 5, many)
            cases = {name: _advances(client, many, some) for name, client in clients.items()}
            found = await alternate_async(cases, rounds, tell, f"{many} tasks")
            rows += rows_of(found, baseline="none", unit="/s", group="advance", load=many)
    return rows


def _advances(client: Limpet, tasks: int, calls: int) -> Callable[[], Awaitable[Sample]]:
    numbers = itertools.count()

    async def step(task: int) -> None:
        await client.advance(f"conversation {task}.{next(numbers) % 16}", "new")

    return lambda: drive(step, tasks, calls)
