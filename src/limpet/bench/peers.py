"""``limpet bench peers``: the same job by what people use now, how fast, and what each lets through."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from limpet.bench.alternate import alternate
from limpet.bench.model import SILENT, Report, Row, Sample, Tell, figure, machine, rows_of
from limpet.bench.peers_process import Outcome, Plan
from limpet.bench.peers_ways import WAYS
from limpet.bench.place import version
from limpet.bench.processes import gather
from limpet.bench.servers import Server, running

__all__ = ["Count", "count", "run"]

PROCESSES: Final = 4
TASKS: Final = 32
TURNS: Final = 4
LIMPET: Final = "limpet"
DICT: Final = "a dict per process"
CALM_TTL_S: Final = 10.0
SHORT_TTL_S: Final = 0.2
"""How long a claim or lock lives where its holder dies or is slow: short, so that the bench is."""
_numbers = itertools.count()


class Count(msgspec.Struct, frozen=True):
    """What was let through. ``splits``: sessions whose turns went to two workers. ``double``: sessions whose first request was
    dispatched twice, each to the end, as if by the only one. ``orphans``: sessions that turns went on with though nobody had
    carried the first request out."""

    splits: int
    double: int
    orphans: int

    def __add__(self, other: Count) -> Count:
        return Count(self.splits + other.splits, self.double + other.double, self.orphans + other.orphans)


def count(outcomes: Sequence[Outcome]) -> Count:
    """Counts over the processes of one run."""
    splits = double = orphans = 0
    for seen, bound in zip(
        zip(*(each.workers for each in outcomes), strict=True), zip(*(each.bound for each in outcomes), strict=True), strict=True
    ):
        workers = {worker for one in seen for worker in one}
        splits += len(workers) > 1
        double += sum(bound) > 1
        orphans += bool(workers) and not sum(bound)
    return Count(splits, double, orphans)


def run(
    *,
    sessions: int = 2000,
    rounds: int = 3,
    processes: int = PROCESSES,
    ways: Sequence[str] = tuple(WAYS),
    tell: Tell = SILENT,
) -> Report:
    """``sessions``: per contender and round; a tenth of them again, by callers that die or are slow amid their first request."""
    with running((), (), ()) as servers:
        calm: dict[str, list[Count]] = {name: [] for name in ways}
        cases = {name: _measured(name, servers, sessions, processes, calm[name]) for name in ways}
        found = alternate(cases, rounds, tell, "peers")
        hard = {name: _hard(name, servers, max(sessions // 10, 8), processes, tell, number) for number, name in enumerate(ways)}
        told = version(servers[0].client)
    counts = {name: sum(each[-rounds:], Count(0, 0, 0)) for name, each in calm.items()}  # without the warm-up
    more: dict[str, dict[str, Any]] = {
        name: {"splits": counts[name].splits, "double binds": counts[name].double} for name in ways
    }
    rows = rows_of(found, baseline=LIMPET, unit="turns/s", group="calm: concurrent first turns, then later ones", more=more)
    rows += [_hard_row(name, hard[name]) for name in ways]
    ours = counts[LIMPET] + hard[LIMPET]
    figures = [figure("Limpet: splits and double binds", ours.splits + ours.double + ours.orphans, 0, None, "low")]
    figures += [
        figure(f"{row.case}: turns a second against Limpet's", row.ratio or 0, 1.0, None, "low")
        for row in rows
        if row.ratio is not None and row.case not in (LIMPET, DICT)
    ]
    return Report(
        bench="peers",
        title=f"Which worker has this session? {processes} processes of {TASKS} callers, {sessions:,} sessions; ratio to Limpet",
        rows=rows,
        figures=figures,
        notes=[
            f"The second part: {max(sessions // 10, 8):,} sessions, whose callers die in the first request or take "
            f"{SHORT_TTL_S * 2.5:g} s for it, where a claim or lock lives {SHORT_TTL_S:g} s.",
            "Orphans: sessions that others were sent on with, though the one that had to open them had died.",
        ],
        machine=machine(told),
    )


def _plans(
    name: str, servers: Sequence[Server], sessions: int, processes: int, *, turns: int, ttl_s: float, faults: bool
) -> list[Plan]:
    prefix = f"{next(_numbers)}-"
    return [
        Plan(
            way=name, urls=[server.url for server in servers], number=number, processes=processes, sessions=sessions,
            prefix=prefix, turns=turns, tasks=TASKS, ttl_s=ttl_s, faults=faults,
        )
        for number in range(processes)
    ]  # fmt: skip


def _measured(name: str, servers: Sequence[Server], sessions: int, processes: int, counts: list[Count]) -> Callable[[], Sample]:
    def once() -> Sample:
        plans = _plans(name, servers, sessions, processes, turns=TURNS, ttl_s=CALM_TTL_S, faults=False)
        outcomes = gather("limpet.bench.peers_process", plans, Outcome)
        counts.append(count(outcomes))
        with contextlib.ExitStack() as stack:
            for server in servers:
                stack.callback(server.client.flushall)
        slowest = max(each.seconds for each in outcomes)
        return Sample(
            sum(each.turns for each in outcomes) / slowest,
            max(each.p50_us for each in outcomes),
            max(each.p99_us for each in outcomes),
        )

    return once


def _hard(name: str, servers: Sequence[Server], sessions: int, processes: int, tell: Tell, number: int) -> Count:
    tell(f"dying and slow callers: {name}", number, len(WAYS))
    plans = _plans(name, servers, sessions, processes, turns=2, ttl_s=SHORT_TTL_S, faults=True)
    return count(gather("limpet.bench.peers_process", plans, Outcome))


def _hard_row(name: str, found: Count) -> Row:
    return Row(
        case=name, group="callers that die or are slow amid a first request", ratio=None, median=found.orphans, low=found.orphans,
        high=found.orphans, unit="orphans", more={"splits": found.splits, "double binds": found.double},
    )  # fmt: skip
