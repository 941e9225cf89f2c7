"""How the panels of the dashboard look; what they show is in ``generate.py``."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.builders.common import ReduceDataOptions, StackingConfig, VizLegendOptions, VizTooltipOptions
from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable, ThresholdsConfig
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

__all__ = ["OURS", "PER_SECOND", "lines", "number", "quantile", "rate", "variables"]

SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
PER_SECOND: Final = "ops"
OURS: Final = '{instance=~"$instance"}'
Target = tuple[str, str]
"""A query and its legend."""


def rate(metric: str, by: str = "", more: str = "") -> str:
    """The sum of a counter's rates over the chosen replicas, at a window that fits the zoom."""
    grouped = f" by ({by})" if by else ""
    return f'sum{grouped} (rate({metric}{{instance=~"$instance"{more}}}[$__rate_interval]))'


def quantile(q: float, metric: str, by: str = "") -> str:
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({q}, {rate(metric + '_bucket', labels)})"


def _query(nth: int, target: Target) -> Dataquery:
    expr, legend = target
    return Dataquery().datasource(SOURCE).expr(expr).legend_format(legend).range().ref_id(chr(ord("A") + nth))


def lines(
    title: str, description: str, *targets: Target, unit: str = PER_SECOND, width: int = 8, stacked: bool = False
) -> timeseries.Panel:
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .height(8)
        .span(width)
        .min(0)
        .fill_opacity(25 if stacked else 8)
        .line_width(1)
        .legend(
            VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM).show_legend(True).calcs([])
        )
        .tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    )
    if stacked:
        panel = panel.stacking(StackingConfig().mode(StackingMode.NORMAL).group("A"))
    for nth, target in enumerate(targets):
        panel = panel.with_target(_query(nth, target))
    return panel


def number(title: str, description: str, expr: str, unit: str, *steps: tuple[float | None, str], width: int = 4) -> stat.Panel:
    """A figure that changes colour at each step: (from, colour), the first from None."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .height(4)
        .span(width)
        .graph_mode(BigValueGraphMode.AREA)
        .color_mode(BigValueColorMode.VALUE)
        .reduce_options(ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
        .thresholds(
            ThresholdsConfig()
            .mode(ThresholdsMode.ABSOLUTE)
            .steps([Threshold(value=value, color=color) for value, color in steps])
        )
        .with_target(_query(0, (expr, "")))
    )


def variables(dashboard: Dashboard) -> Dashboard:
    everything = VariableOption(text="All", value="$__all", selected=True)

    def values(name: str, label: str, query: str) -> QueryVariable:
        return (
            QueryVariable(name)
            .label(label)
            .datasource(SOURCE)
            .query(query)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            .all_value(".*")
            .current(everything)
        )

    return (
        dashboard.with_variable(DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(values("namespace", "Namespace", "label_values(limpet_resolutions_total, namespace)"))
        .with_variable(values("instance", "Instance", "label_values(limpet_build_info, instance)"))
    )
