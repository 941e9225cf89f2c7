"""Throughput and p99 against concurrency, as an SVG drawn by hand: logarithmic x, one line per contender, a panel per kind."""

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
COLOURS: Final = ("#0b6e4f", "#c8553d", "#3d5a80", "#b08900", "#7b4b94", "#5c6b73", "#d17a9b", "#2f9e44", "#1c7ed6", "#8d6e63")
DASHES: Final = ("", "6 3", "2 3")
"""Lines beyond the colours are dashed."""
Point = tuple[float, float]
Lines = dict[int, list[Point]]
"""By the number of the contender, which is that of its colour."""


def draw(report: Report) -> str:
    """The picture of a report whose rows have a load (concurrency, depth, size): for each of its groups the medians, and beside
    them the p99 where there is one."""
    rows = [row for row in report.rows if row.load is not None]
    numbers = {case: number for number, case in enumerate(dict.fromkeys(row.case for row in rows))}  # one colour everywhere
    height, parts = 30.0, list[str]()
    columns = 1
    for group in dict.fromkeys(row.group for row in rows):
        ours = [row for row in rows if row.group == group]
        cases = list(dict.fromkeys(row.case for row in ours))
        panels = [(f"median, {ours[0].unit}", {case: _points(ours, case, "median") for case in cases})]
        if any(row.p99_us is not None for row in ours):
            panels.append(("p99, us", {case: _points(ours, case, "p99_us") for case in cases}))
        columns = max(columns, len(panels))
        if group:
            parts.append(f'<text x="14" y="{height + 14:.0f}" font-weight="600">{escape(group)}</text>')
            height += 16
        axis = "at once" if report.bench != "scale" else group.partition(":")[0]
        for number, (title, lines) in enumerate(panels):
            parts += _panel(number * WIDTH, height, title, axis, {numbers[case]: line for case, line in lines.items()})
        height += HEIGHT
        for number, case in enumerate(cases):
            x, y = 14 + number % (2 * len(panels)) * WIDTH / 2, height + 12 + 18 * (number // (2 * len(panels)))
            colour, dash = _style(numbers[case])
            parts.append(
                f'<line x1="{x}" x2="{x + 22}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="3" '
                f'stroke-dasharray="{dash}"/>'
            )
            parts.append(f'<text x="{x + 28}" y="{y}">{escape(case)}</text>')
        height += 18 * math.ceil(len(cases) / (2 * len(panels))) + 16
    width = WIDTH * columns
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{escape(report.title)}</title>",
        f'<rect width="{width}" height="{height:.0f}" fill="#fff"/>',
        f'<text x="14" y="20" font-size="14" font-weight="600">limpet bench {escape(report.bench)}</text>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def _style(number: int) -> tuple[str, str]:
    return COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]


def _points(rows: Sequence[Row], case: str, field: str) -> list[Point]:
    found = []
    for row in rows:
        value = getattr(row, field)
        if row.case == case and value and row.load:
            found.append((float(row.load), float(value)))
    return sorted(found)


def _panel(left: float, above: float, title: str, axis: str, lines: Lines) -> list[str]:
    points = [point for line in lines.values() for point in line]
    parts = [f'<text x="{left + LEFT}" y="{above + TOP - 10}" fill="#555">{escape(title)}</text>']
    if not points:
        return parts
    low, high = (math.log2(edge) for edge in (min(x for x, _ in points), max(x for x, _ in points)))
    top = _ceiling(max(y for _, y in points))
    wide, tall, base = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM, above + TOP

    def at(point: Point) -> tuple[float, float]:
        part = (math.log2(point[0]) - low) / (high - low) if high > low else 0.5
        return left + LEFT + part * wide, base + tall * (1 - point[1] / top)

    for step in range(5):
        y = base + tall * (1 - step / 4)
        parts.append(f'<line x1="{left + LEFT}" x2="{left + LEFT + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{left + LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{_figure(top * step / 4)}</text>'
        )
    for x in sorted({x for x, _ in points}):
        across, _ = at((x, 0))
        parts.append(f'<text x="{across:.1f}" y="{base + tall + 16}" text-anchor="middle" fill="#555">{_figure(x)}</text>')
    middle = left + LEFT + wide / 2
    parts.append(f'<text x="{middle:.1f}" y="{base + tall + 32}" text-anchor="middle" fill="#555">{escape(axis)}</text>')
    for number, line in lines.items():
        colour, dash = _style(number)
        placed = [at(point) for point in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
    return parts


def _ceiling(value: float) -> float:
    """The next of 1, 2, 4, 8 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 4, 8, 10) if power * step >= value)
