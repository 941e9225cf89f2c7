"""``limpet bench scale``: the cost of a call against the conversations stored, and against the number of primaries."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import uvloop

from limpet.bench.alternate import alternate
from limpet.bench.library import drive
from limpet.bench.model import SILENT, Figure, Report, Row, Sample, Tell, figure, machine, rows_of
from limpet.bench.pipe import Pipe
from limpet.bench.place import cpu_us, version
from limpet.bench.seeding import bound, packed
from limpet.bench.servers import Server, cluster, running
from limpet.bind import Bind
from limpet.commands import Commands
from limpet.coordinator import Limpet

__all__ = ["run"]

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
PRIMARIES: Final = (1, 2, 3)
HOUR_MS: Final = 3_600_000
GET, RESOLVE, CPU = "GET", "resolve, bound", "server CPU, resolve"
HOT: Final = "resolve, 1,000 in use"
IN_USE: Final = 1000
TASKS: Final = 256


def run(
    *,
    n: int = 1_000_000,
    calls: int = 50_000,
    primaries: Sequence[int] = PRIMARIES,
    rounds: int = 5,
    tell: Tell = SILENT,
) -> Report:
    """``n``: the most conversations stored. Each size has a server of its own, so that they can take turns."""
    sizes = [size for size in SIZES if size < n] + [n]
    rows, figures, told = _stored(sizes, calls, rounds, tell)
    rows += _nodes(primaries, max(calls // 2, TASKS), rounds, tell)
    return Report(
        bench="scale",
        title="Server CPU per call; ratio to the smallest",
        rows=rows,
        figures=figures,
        notes=[
            "Keys are drawn at random of all that are stored, which costs GET and resolve misses of the CPU's caches; "
            "or of a thousand of them that are in use.",
            "Primaries share the machine's cores with the client: CPU per call tells more than calls a second.",
        ],
        machine=machine(told),
        axes={"conversations stored": "conversations stored", "": "primaries"},
    )


def _stored(sizes: Sequence[int], calls: int, rounds: int, tell: Tell) -> tuple[list[Row], list[Figure], str]:
    commands = Commands(granularity_ms=HOUR_MS)
    cases: dict[str, dict[int, Callable[[], Sample]]] = {GET: {}, RESOLVE: {}, HOT: {}}
    with running(*[()] * len(sizes)) as servers, contextlib.ExitStack() as stack:
        for number, (size, server) in enumerate(zip(sizes, servers, strict=True)):
            tell(f"{size:,} conversations", number, len(sizes))
            pipe = stack.enter_context(Pipe(server.client))
            for start in range(0, size, 50_000):
                bound(pipe, commands, [commands.declared(f"k{each}") for each in range(start, min(start + 50_000, size))])
            for case in cases:
                cases[case][size] = _cost(server, pipe, commands, case, size, calls)
        rows: list[Row] = []
        figures = []
        for case, by_size in cases.items():
            found = alternate({f"{size}": run for size, run in by_size.items()}, rounds, tell, case)
            made = rows_of(found, baseline=f"{sizes[0]}", unit="us")
            rows += [_renamed(row, case, "conversations stored", int(row.case)) for row in made]
            if case == HOT:
                name = f"{case}: cost per call with {sizes[-1]:,} conversations stored against {sizes[0]:,}"
                figures.append(figure(name, made[-1].ratio or 0, 1.1, 1.0, "low"))
        return rows, figures, version(servers[0].client)


def _renamed(row: Row, case: str, group: str, load: int) -> Row:
    return msgspec.structs.replace(row, case=case, group=group, load=load)


def _cost(server: Server, pipe: Pipe, commands: Commands, case: str, size: int, calls: int) -> Callable[[], Sample]:
    rng = random.Random(size)
    used = IN_USE if case == HOT else size
    targets = [commands.declared(f"k{rng.randrange(min(used, size)) * (size // min(used, size))}") for _ in range(calls)]
    asked = [commands.resolve(target, session_id="s", bind=Bind(), request_id="r", look_up=False) for target in targets]
    words = [packed(("GET", call.keys[0]) if case == GET else call) for call in asked]

    def once() -> Sample:
        before = cpu_us(server.client)
        pipe.run(words, 64)
        return Sample((cpu_us(server.client) - before) / calls)

    return once


def _nodes(primaries: Sequence[int], calls: int, rounds: int, tell: Tell) -> list[Row]:
    with contextlib.ExitStack() as stack:
        clusters = {many: stack.enter_context(cluster(many)) for many in primaries}
        cpu: dict[int, list[float]] = {many: [] for many in primaries}

        def measured(many: int) -> Callable[[], Sample]:
            url, servers = clusters[many]

            def once() -> Sample:
                sample, used = uvloop.run(_through(url, servers, calls))
                cpu[many].append(used)
                return sample

            return once

        found = alternate({f"{many}": measured(many) for many in primaries}, rounds, tell, "primaries")
        base = f"{primaries[0]}"
        speed = rows_of(found, baseline=base, unit="/s")
        counted = {f"{many}": [Sample(used) for used in cpu[many][-rounds:]] for many in primaries}  # without the warm-up
        cost = rows_of(counted, baseline=base, unit="us")
        return [
            *(_renamed(row, f"{TASKS} concurrent resolves", "primaries", int(row.case)) for row in speed),
            *(_renamed(row, CPU, "primaries, CPU of all", int(row.case)) for row in cost),
        ]


async def _through(url: str, servers: Sequence[Server], calls: int) -> tuple[Sample, float]:
    settings: dict[str, Any] = {"touch_granularity_ms": 60_000, "deadline_ms": 10_000, "durability": "none"}
    async with Limpet.connect(url, **settings) as client:
        keys = [f"conversation {number}" for number in range(TASKS)]
        await asyncio.gather(*(client.resolve(key, session_id="s", bind=Bind(worker="w", commit=True)) for key in keys))

        async def step(task: int) -> None:
            await client.resolve(keys[task], session_id="s", bind=True)

        before = sum(cpu_us(server.client) for server in servers)
        sample = await drive(step, TASKS, calls)
        return sample, (sum(cpu_us(server.client) for server in servers) - before) / (calls // TASKS * TASKS)
