"""Throughput, cost and p99 against the load, as an SVG drawn by hand: a panel per group and unit, one line per contender."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from limpet.bench.model import Report, Row

__all__ = ["STYLES", "draw"]

WIDTH: Final = 520
WIDE: Final = 940
"""Of a panel that is alone."""
HEIGHT: Final = 320
HEAD: Final = 44
LEFT, TOP, RIGHT, BOTTOM = 70, 40, 24, 52
LINE: Final = 18
"""Between lines of the legend."""
ENTRY: Final = 225
"""Width of an entry of the legend."""
STEEP: Final = 40
"""A panel whose largest value is so many times its smallest has a logarithmic axis, or the small ones would lie on the floor."""
COLOURS: Final = (
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#e6850e", "#17a2b8", "#8c564b", "#d6339a", "#5c6b73", "#9a9a00",
)  # fmt: skip
DASHES: Final = ("", "7 4", "2 3")
STYLES: Final = [(colour, dash) for dash in DASHES for colour in COLOURS]
"""One per contender, in order; each differs from every other by colour or dashes."""
Point = tuple[float, float]


class _Panel(NamedTuple):
    title: str
    across: str
    lines: Mapping[str, Sequence[Point]]


def draw(report: Report) -> str:
    """The picture of a report whose rows have a load (concurrency, depth, size)."""
    rows = [row for row in report.rows if row.load]
    panels = list(_panels(report, rows))
    cases = dict.fromkeys(case for panel in panels for case in panel.lines)
    styles = {case: STYLES[number % len(STYLES)] for number, case in enumerate(cases)}
    columns, wide = (1, WIDE) if len(panels) < 2 else (2, WIDTH)
    parts, top = (
        [f'<text x="16" y="26" font-size="15" font-weight="600">{escape(f"{report.bench}: {report.title}")}</text>'],
        HEAD,
    )
    for start in range(0, len(panels), columns):
        beside = panels[start : start + columns]
        each_row = wide // ENTRY
        for number, panel in enumerate(beside):
            parts += _panel(number * wide, top, wide, panel, styles)
            parts += _legend(number * wide + LEFT - 10, top + HEIGHT + 8, each_row, list(panel.lines), styles)
        top += HEIGHT + 22 + LINE * max(math.ceil(len(panel.lines) / each_row) for panel in beside)
    width, height = wide * columns, top + 6
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">'
    )
    title = f"<title>{escape(report.title)}</title>"
    return "\n".join([head, title, f'<rect width="{width}" height="{height}" fill="#fff"/>', *parts, "</svg>"]) + "\n"


def _panels(report: Report, rows: Sequence[Row]) -> Iterator[_Panel]:
    """What differs in meaning or unit has a panel of its own."""
    for group, unit in dict.fromkeys((row.group, row.unit) for row in rows):
        here = [row for row in rows if (row.group, row.unit) == (group, unit)]
        across = report.axes.get(group, report.axes.get("", "load"))
        name = f"{group}: " if group else ""
        yield _Panel(f"{name}median, {_unit(unit)}", across, _lines(here, lambda row: row.median))
        if any(row.p99_us for row in here):
            yield _Panel(f"{name}p99, us", across, _lines(here, lambda row: row.p99_us))


def _unit(unit: str) -> str:
    return "calls a second" if unit == "/s" else unit


def _lines(rows: Sequence[Row], value: Callable[[Row], float | None]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for row in rows:
        measured = value(row)
        if measured and row.load:
            found.setdefault(row.case, []).append((float(row.load), float(measured)))
    return {case: sorted(points) for case, points in found.items()}


def _legend(left: float, top: float, each_row: int, cases: Sequence[str], styles: Mapping[str, tuple[str, str]]) -> list[str]:
    parts = []
    for number, case in enumerate(cases):
        x, y = left + number % each_row * ENTRY, top + number // each_row * LINE
        parts.append(f'<line x1="{x}" x2="{x + 26}" y1="{y}" y2="{y}" {_stroke(styles[case])}/>')
        parts.append(f'<text x="{x + 33}" y="{y + 4}">{escape(case)}</text>')
    return parts


def _stroke(style: tuple[str, str]) -> str:
    colour, dash = style
    return f'fill="none" stroke="{colour}" stroke-width="2"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _panel(left: float, above: float, width: float, panel: _Panel, styles: Mapping[str, tuple[str, str]]) -> list[str]:
    points = [point for line in panel.lines.values() for point in line]
    wide, tall, floor = width - LEFT - RIGHT, HEIGHT - TOP - BOTTOM, above + HEIGHT - BOTTOM
    start, end = math.log2(min(x for x, _ in points)), math.log2(max(x for x, _ in points))
    ticks = _ticks([y for _, y in points])
    steep = ticks[0] > 0

    def at(x: float, y: float) -> Point:
        part = (math.log2(x) - start) / (end - start) if end > start else 0.5
        up = math.log(y / ticks[0]) / math.log(ticks[-1] / ticks[0]) if steep else y / ticks[-1]
        return left + LEFT + part * wide, floor - tall * up

    parts = [f'<text x="{left + LEFT}" y="{above + TOP - 14}" fill="#333" font-weight="600">{escape(panel.title)}</text>']
    for tick in ticks:
        y = at(2**start, tick)[1]
        parts.append(f'<line x1="{left + LEFT}" x2="{left + LEFT + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left + LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{tick:,.6g}</text>')
    for x in sorted({x for x, _ in points}):
        across = at(x, ticks[-1])[0]
        parts.append(f'<text x="{across:.1f}" y="{floor + 17}" text-anchor="middle" fill="#555">{int(x):,}</text>')
    middle = left + LEFT + wide / 2
    parts.append(f'<text x="{middle}" y="{floor + 36}" text-anchor="middle" fill="#333">{escape(panel.across)}</text>')
    for case, line in panel.lines.items():
        placed = [at(x, y) for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" {_stroke(styles[case])}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{styles[case][0]}"/>' for x, y in placed]
    return parts


def _ticks(values: Sequence[float]) -> list[float]:
    """From 0 in four steps; 1, 2, 5, 10 ... around the values of a steep panel."""
    low, high = min(values), max(values)
    if high / low <= STEEP:
        power = 10.0 ** math.floor(math.log10(high))
        top = next(power * step for step in (1, 2, 4, 6, 8, 10) if power * step >= high)
        return [top * step / 4 for step in range(5)]
    steps = [
        10.0**power * step for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for step in (1, 2, 5)
    ]
    first = max(number for number, step in enumerate(steps) if step <= low)
    last = min(number for number, step in enumerate(steps) if step >= high)
    return steps[first : last + 1]
