"""A report for people: a table on stdout, progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from limpet.bench.model import SILENT, Figure, Report, Tell

__all__ = ["progress", "show"]


def show(report: Report, console: Console) -> None:
    """Prints it."""
    console.print(report.title, style="bold", soft_wrap=True)
    with_load = any(row.load is not None for row in report.rows)
    with_times = any(row.p50_us is not None for row in report.rows)
    extras = list(dict.fromkeys(name for row in report.rows for name in row.more))
    table = Table(box=None, pad_edge=False, header_style="dim")
    # Legible names before a fitting width: in a narrow terminal a row goes on in the next line.
    table.add_column("", no_wrap=True, min_width=max((len(row.case) for row in report.rows), default=0))
    if with_load:
        table.add_column("at", justify="right", no_wrap=True)
    for heading in ("ratio", "median", "spread", *(("p50 us", "p99 us") if with_times else ()), *extras):
        table.add_column(heading, justify="right", no_wrap=True)
    before = None
    for row in report.rows:
        if before is not None and (row.group, row.load) != before:
            table.add_section()
        if row.group and (before is None or row.group != before[0]):
            table.add_row(row.group, style="bold")
        before = (row.group, row.load)
        spread = 0.0 if not row.median else (row.high - row.low) / row.median * 50
        cells = [row.case, *(["" if row.load is None else f"{row.load:,}"] if with_load else [])]
        cells += [_number(row.ratio), f"{_number(row.median)} {row.unit}", f"±{spread:.0f} %"]
        if with_times:
            cells += [_number(row.p50_us), _number(row.p99_us)]
        table.add_row(*cells, *(_number(row.more.get(name)) for name in extras))
    console.print(table)
    for each in report.figures:
        console.print(_verdict(each), soft_wrap=True)
    for note in report.notes:
        console.print(note, style="dim", soft_wrap=True)


def _verdict(each: Figure) -> str:
    sign = ">=" if each.better == "high" else "<="
    aim = "" if each.aim is None else f", aim {sign} {each.aim:g}"
    word = {"aim": "aim reached", "bar": "bar reached", "no": "MISSED"}[each.met]
    return f"{each.name}: {each.measured:g} (bar {sign} {each.bar:g}{aim}): {word}"


def _number(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


@contextmanager
def progress() -> Iterator[Tell]:
    """A bar on stderr, where that is a terminal."""
    if not sys.stderr.isatty():
        yield SILENT
        return
    columns = (TextColumn("{task.description:<40}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def tell(what: str, done: int, total: int) -> None:
            bar.update(task, description=what[:40], completed=done, total=total)

        yield tell
