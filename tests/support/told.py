"""What the code says of its metrics and settings, as rows for the README's tables and for the tests of deploy/."""

from __future__ import annotations

from typing import NamedTuple

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from limpet.gateway.measures import Measures
from limpet.health import Check, Health
from limpet.metrics import Metrics
from limpet.settings import Settings

__all__ = ["Metric", "metrics", "metrics_table", "settings_table"]


class Metric(NamedTuple):
    """One metric as people name it: a counter with its ``_total``."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str

    @property
    def series(self) -> set[str]:
        """The names under which it can be asked for."""
        return {f"{self.name}{suffix}" for suffix in ("_bucket", "_sum", "_count")} if self.kind == "histogram" else {self.name}


def metrics() -> list[Metric]:
    """All of them: those of the core, of the gateway, and those that are made at the scrape."""
    made = Metrics()
    Measures(made.registry)
    found = []
    for collector in list(made.registry._collector_to_names):
        assert isinstance(collector, MetricWrapperBase)
        name = f"{collector._name}_total" if collector._type == "counter" else collector._name
        found.append(Metric(name, collector._type, tuple(collector._labelnames), collector._documentation))
    counted = {each.name.removesuffix("_total") for each in found}
    text = made.render({"w": 1}, {"live": 1}, Health.of((Check("store", "ok", ""),))).decode()
    found += [
        Metric(family.name, family.type, tuple(family.samples[0].labels), family.documentation)
        for family in text_string_to_metric_families(text)
        if family.name not in counted
    ]
    return sorted(found, key=lambda each: (each.name.startswith("limpet_gateway"), each.name))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{_cell(text)}`" if text else ""


def metrics_table() -> str:
    """Markdown."""
    rows = ["| metric | type | labels | what it says |", "|---|---|---|---|"]
    rows += [f"| `{each.name}` | {each.kind} | {', '.join(map(_code, each.labels))} | {_cell(each.help)} |" for each in metrics()]
    return "\n".join(rows)


def settings_table() -> str:
    """Markdown. Neither the environment nor ``.env`` shows in it."""
    rows = ["| variable | type | default | what it does |", "|---|---|---|---|"]
    rows += [
        f"| `{each.name}` | {_cell(each.type)} | {_code(each.default)} | {_cell(each.help)} |"
        for each in Settings.model_construct().describe()
    ]
    return "\n".join(rows)
