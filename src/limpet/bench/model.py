"""What a bench reports."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

__all__ = ["ROUNDS", "SILENT", "Figure", "Report", "Row", "Sample", "Tell", "figure", "machine", "percentile", "rows_of"]

Tell: TypeAlias = Callable[[str, int, int], None]
"""Told what runs, and (done, total)."""


def SILENT(what: str, done: int, total: int) -> None:  # noqa: N802  (used as a constant)
    """Tells nobody."""


class Sample(msgspec.Struct, frozen=True):
    """One measurement. ``value`` is in the unit of its row; latencies are in microseconds."""

    value: float
    p50_us: float | None = None
    p99_us: float | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One contender. ``ratio``: the median over the rounds of its value by the baseline's in the same round, None where
    there is no baseline. ``low`` and ``high`` are the extremes of all rounds. ``load``: concurrency, depth or size."""

    case: str
    group: str = ""
    load: int | None = None
    ratio: float | None
    median: float
    low: float
    high: float
    unit: str
    p50_us: float | None = None
    p99_us: float | None = None
    more: dict[str, Any] = {}


class Figure(msgspec.Struct, frozen=True):
    """One of the figures that Limpet wants to show, and whether it does."""

    name: str
    measured: float
    bar: float
    aim: float | None
    better: Literal["high", "low"]
    met: Literal["aim", "bar", "no"]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--json`` prints. ``axes``: what the load of a group's rows counts, "" for all other groups."""

    bench: str
    title: str
    rows: list[Row]
    figures: list[Figure] = []
    notes: list[str] = []
    machine: dict[str, Any] = {}
    axes: dict[str, str] = {}


def figure(name: str, measured: float, bar: float, aim: float | None = None, better: Literal["high", "low"] = "high") -> Figure:
    """The verdict on a figure."""

    def reached(goal: float) -> bool:
        return measured >= goal if better == "high" else measured <= goal

    met: Literal["aim", "bar", "no"] = "aim" if aim is not None and reached(aim) else "bar" if reached(bar) else "no"
    return Figure(name, round(measured, 3), bar, aim, better, met)


def rows_of(
    samples: Mapping[str, Sequence[Sample]],
    *,
    baseline: str | None,
    unit: str,
    group: str = "",
    load: int | None = None,
    more: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Row]:
    """The rows of cases that ran alternately, each the same number of times."""
    rows = []
    for case, found in samples.items():
        values = [sample.value for sample in found]
        ratio = None
        if baseline is not None:
            base = samples[baseline]
            ratio = statistics.median(ours.value / theirs.value for ours, theirs in zip(found, base, strict=True) if theirs.value)
        rows.append(
            Row(
                case=case,
                group=group,
                load=load,
                ratio=None if ratio is None else round(ratio, 3),
                median=_rounded(statistics.median(values)),
                low=_rounded(min(values)),
                high=_rounded(max(values)),
                unit=unit,
                p50_us=_median(sample.p50_us for sample in found),
                p99_us=_median(sample.p99_us for sample in found),
                more=dict((more or {}).get(case, {})),
            )
        )
    return rows


def _median(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 1) if known else None


def _rounded(value: float) -> float:
    return round(value, 3) if abs(value) < 100 else round(value)


def percentile(ordered: Sequence[float], part: float) -> float:
    """A percentile of values that are sorted; at least one."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def machine(server: str = "") -> dict[str, Any]:
    """Where it ran."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "load": [round(each, 2) for each in os.getloadavg()],
        **({"store": server} if server else {}),
    }


ROUNDS: Final = 5
"""Repetitions where nobody asks for another number."""
