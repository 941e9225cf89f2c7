"""Throughput and p99 against concurrency, as an SVG drawn by hand: two panels, logarithmic x, one line per contender."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from limpet.bench.model import Report, Row

__all__ = ["draw"]

WIDTH: Final = 460
HEIGHT: Final = 300
LEFT, TOP, RIGHT, BOTTOM = 64, 42, 16, 44
COLOURS: Final = ("#0b6e4f", "#c8553d", "#3d5a80", "#b08900", "#7b4b94", "#5c6b73", "#d17a9b", "#2f9e44")
Point = tuple[float, float]


def draw(report: Report) -> str:
    """The picture of a report whose rows have a load (concurrency, depth, size)."""
    rows = [row for row in report.rows if row.load is not None]
    cases = list(dict.fromkeys((row.group, row.case) for row in rows))
    several = len({group for group, _ in cases}) > 1
    unit = rows[0].unit if rows else ""
    panels = [(f"median, {unit}", {case: _points(rows, case, "median") for case in cases})]
    if any(row.p99_us is not None for row in rows):
        panels.append(("p99, us", {case: _points(rows, case, "p99_us") for case in cases}))
    legend = 18 * math.ceil(len(cases) / (2 * len(panels))) + 14
    width, height = WIDTH * len(panels), HEIGHT + legend + 26
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{escape(report.title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="14" y="18" font-size="14" font-weight="600">{escape(report.bench)}</text>',
    ]
    for number, (title, lines) in enumerate(panels):
        parts += _panel(number * WIDTH, title, list(lines.values()))
    for number, (group, case) in enumerate(cases):
        x, y = 14 + (number % (2 * len(panels))) * WIDTH / 2, HEIGHT + 24 + 18 * (number // (2 * len(panels)))
        name = f"{group}: {case}" if several and group else case
        parts.append(f'<rect x="{x}" y="{y - 9}" width="14" height="4" fill="{COLOURS[number % len(COLOURS)]}"/>')
        parts.append(f'<text x="{x + 20}" y="{y - 3}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _points(rows: Sequence[Row], case: tuple[str, str], field: str) -> list[Point]:
    found = []
    for row in rows:
        value = getattr(row, field)
        if (row.group, row.case) == case and value and row.load:
            found.append((float(row.load), float(value)))
    return sorted(found)


def _panel(left: float, title: str, lines: Sequence[Sequence[Point]]) -> list[str]:
    points = [point for line in lines for point in line]
    parts = [f'<text x="{left + LEFT}" y="{TOP - 8}" fill="#555">{escape(title)}</text>']
    if not points:
        return parts
    low, high = (math.log2(edge) for edge in (min(x for x, _ in points), max(x for x, _ in points)))
    top = _ceiling(max(y for _, y in points))
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(point: Point) -> tuple[float, float]:
        part = (math.log2(point[0]) - low) / (high - low) if high > low else 0.5
        return left + LEFT + part * wide, TOP + tall * (1 - point[1] / top)

    for step in range(5):
        y = TOP + tall * (1 - step / 4)
        parts.append(f'<line x1="{left + LEFT}" x2="{left + LEFT + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left + LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{top * step / 4:,.6g}</text>')
    for x in sorted({x for x, _ in points}):
        across, _ = at((x, 0))
        parts.append(f'<text x="{across:.1f}" y="{TOP + tall + 16}" text-anchor="middle" fill="#555">{x:,.6g}</text>')
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        placed = [at(point) for point in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
    return parts


def _ceiling(value: float) -> float:
    """The next of 1, 2, 4, 8 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 4, 8, 10) if power * step >= value)
