"""Makes ``dashboards/limpet.json``: ``uv run python deploy/grafana/generate.py [FILE]``.

The builders are Grafana's own (grafana-foundation-sdk), so the JSON has the shape that Grafana's schemas ask for. The queries
read metrics of ``limpet.metrics`` and ``limpet.gateway.measures`` and recording rules of ``deploy/prometheus/rules``;
``tests/packaging/test_grafana.py`` holds each against them.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard, Row
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync
from panels import OURS, PER_SECOND, lines, number, quantile, rate, variables

OUT: Final = Path(__file__).parent / "dashboards" / "limpet.json"
ABOUT: Final = "Turns, resets, bindings, what the guarantees rest on, the store, the gateway. Made by deploy/grafana/generate.py."
CHOSEN: Final = ', namespace=~"$namespace"'
BAD: Final = ((None, "green"), (1e-9, "red"))
LEFT: Final = ((None, "red"), (0, "orange"), (0.5, "green"))
COUNT, SHARE, SECONDS = units.Short, units.PercentUnit, units.Seconds

TURNS = "limpet_resolutions_total"
STORE = "limpet_store_seconds"
FIRST_BYTE = "limpet_gateway_upstream_seconds"

ROWS: Final[dict[str, list[stat.Panel | timeseries.Panel]]] = {
    "At a glance": [
        number("Turns", "Resolved a second.", rate(TURNS, more=CHOSEN), PER_SECOND, (None, "blue")),
        number("Ready", "Replicas that find the store fit.", f"avg(limpet_ready{OURS})", SHARE, (None, "red"), (1, "green")),
        number("Degraded", "Turns a second without the store.", rate("limpet_degraded_total"), PER_SECOND, *BAD),
        number("Undurable", "Decisions a second that nobody acknowledged.", rate("limpet_undurable_total"), PER_SECOND, *BAD),
        number("Budget of turns left", "0.1 % of three days' turns may degrade.", "limpet:turns_budget:left3d", SHARE, *LEFT),
        number(
            "Budget of the gateway left",
            "0.1 % of three days' requests may be 5xx.",
            "limpet:gateway_budget:left3d",
            SHARE,
            *LEFT,
        ),
    ],
    "Turns": [
        lines("Turns by outcome", "Over the chosen namespaces.", (rate(TURNS, "outcome", CHOSEN), "{{outcome}}"), stacked=True),
        lines(
            "Turns by namespace",
            "And by where the scope came from.",
            (rate(TURNS, "namespace, source", CHOSEN), "{{namespace}} {{source}}"),
        ),
        lines(
            "Resets by reason",
            "Conversations replaced; other: a reason that a host named.",
            (rate("limpet_resets_total", "reason"), "{{reason}}"),
            stacked=True,
        ),
        lines(
            "Memo",
            "Turns answered from memory (hit), asked of the store (miss), and past a memo that is down (bypass).",
            (rate("limpet_memo_total", "outcome"), "{{outcome}}"),
            stacked=True,
        ),
        lines(
            "Batch size",
            "Commands sent in one write.",
            (quantile(0.5, "limpet_batch_size"), "p50"),
            (quantile(0.99, "limpet_batch_size"), "p99"),
            unit=COUNT,
        ),
        lines(
            "Error budget burn",
            "1 spends the budget exactly in its time; the alerts fire at 14.4, 6 and 3.",
            ("limpet:turns_bad:ratio_rate1h / 0.001", "turns 1h"),
            ("limpet:turns_bad:ratio_rate6h / 0.001", "turns 6h"),
            ("limpet:gateway_bad:ratio_rate1h / 0.001", "gateway 1h"),
            ("limpet:gateway_bad:ratio_rate6h / 0.001", "gateway 6h"),
            unit=COUNT,
        ),
    ],
    "Workers and bindings": [
        lines(
            "Binds by outcome",
            "What callers were told, and what became of their claims.",
            (rate("limpet_binds_total", "outcome"), "{{outcome}}"),
            stacked=True,
        ),
        lines(
            "Bindings by worker",
            "Live bindings of the 20 busiest.",
            (f"topk(20, max by (worker) (limpet_bindings{OURS}))", "{{worker}}"),
            unit=COUNT,
        ),
        lines("Workers", "Registered, by state.", (f"max by (state) (limpet_workers{OURS})", "{{state}}"), unit=COUNT),
    ],
    "Guarantees": [
        lines(
            "Rollbacks and clocks",
            "Advances that the store had lost, and calls that met a clock set back.",
            (rate("limpet_rollbacks_total"), "rollbacks"),
            (rate("limpet_clock_behind_total"), "clock behind"),
        ),
        lines(
            "Undurable and degraded",
            "Decisions without an acknowledgement, turns without the store.",
            (rate("limpet_undurable_total"), "undurable"),
            (rate("limpet_degraded_total"), "degraded"),
        ),
        lines(
            "Claims and fences",
            "Claims that ran out unconfirmed, and calls refused for an old fence.",
            (rate("limpet_claim_timeouts_total"), "claims run out"),
            (rate("limpet_fence_rejections_total", "operation"), "old fence: {{operation}}"),
        ),
    ],
    "Store": [
        lines("Store latency", "Of all commands.", (quantile(0.5, STORE), "p50"), (quantile(0.99, STORE), "p99"), unit=SECONDS),
        lines("Store latency by command, p99", "By script.", (quantile(0.99, STORE, "command"), "{{command}}"), unit=SECONDS),
        lines("Store errors", "By kind; noscript heals itself.", (rate("limpet_store_errors_total", "kind"), "{{kind}}")),
        lines(
            "Checks of the store",
            "0 ok, 1 a warning, 2 failed: `limpet doctor` says what to do.",
            (f"max by (check) (limpet_health{OURS})", "{{check}}"),
            unit=COUNT,
            width=12,
        ),
        lines(
            "Releases",
            "Replicas by version.",
            (f"count by (version) (limpet_build_info{OURS})", "{{version}}"),
            unit=COUNT,
            width=12,
            stacked=True,
        ),
    ],
    "Gateway": [
        lines(
            "Requests",
            "By the status sent; none: the client went away before.",
            (rate("limpet_gateway_requests_total", "status"), "{{status}}"),
            stacked=True,
        ),
        lines(
            "Time to the first byte",
            "From dispatch to the upstream's first byte.",
            (quantile(0.5, FIRST_BYTE, "route"), "p50 {{route}}"),
            (quantile(0.99, FIRST_BYTE, "route"), "p99 {{route}}"),
            unit=SECONDS,
        ),
        lines(
            "In flight",
            "Requests being served.",
            (f"sum by (instance) (limpet_gateway_in_flight{OURS})", "{{instance}}"),
            unit=COUNT,
        ),
        lines(
            "Retries and rebinds",
            "Requests sent once more, conversations moved, by why.",
            (rate("limpet_gateway_retries_total", "reason"), "retry: {{reason}}"),
            (rate("limpet_gateway_rebinds_total", "reason"), "rebind: {{reason}}"),
            width=12,
        ),
        lines("Cut short", "By the side that did.", (rate("limpet_gateway_aborted_streams_total", "side"), "{{side}}"), width=12),
    ],
}


def build() -> Dashboard:
    """The dashboard."""
    board = variables(Dashboard("Limpet").uid("limpet").description(ABOUT).tags(["limpet"]).editable())
    board = board.tooltip(DashboardCursorSync.CROSSHAIR).time("now-1h", "now").refresh("30s").timezone("browser")
    ids = count(1)
    for title, panels in ROWS.items():
        board = board.with_row(Row(title).id(next(ids)))
        for panel in panels:
            board = board.with_panel(panel.id(next(ids)))
    return board


if __name__ == "__main__":
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    out.write_text(JSONEncoder(sort_keys=True, indent=2).encode(build().build()) + "\n", encoding="utf-8")
    print(f"wrote {out}")
