"""deploy/grafana: the dashboard is what its generator makes, fits Grafana's own model, and asks for what exists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.packaging.test_prometheus import promtool, unknown_in

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "grafana"
BOARD = FOLDER / "dashboards" / "limpet.json"
TEXT = BOARD.read_text(encoding="utf-8")
DOCUMENT: dict[str, Any] = json.loads(TEXT)
PANELS = [panel for panel in DOCUMENT["panels"] if panel["type"] != "row"]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def plain(query: str) -> str:
    """With Grafana's variables put in, as Prometheus gets it."""
    return query.replace("$__rate_interval", "1m").replace("$namespace", ".*").replace("$instance", ".*")


QUERIES = [plain(target["expr"]) for panel in PANELS for target in panel["targets"]]


def test_the_dashboard_is_what_the_generator_makes(tmp_path: Path) -> None:
    """`uv run python deploy/grafana/generate.py` writes it anew."""
    subprocess.run([sys.executable, FOLDER / "generate.py", tmp_path / "out.json"], check=True, capture_output=True)
    assert (tmp_path / "out.json").read_text(encoding="utf-8") == TEXT


def test_it_fits_grafanas_model() -> None:
    """Read into the types that Grafana generates from its own schemas and written again, nothing of it is lost."""
    model = Dashboard.from_json(DOCUMENT)
    assert json.loads(JSONEncoder(sort_keys=True).encode(model)) == DOCUMENT


def test_panels_lie_beside_each_other() -> None:
    """On the grid of 24 columns, without overlap, each with an id of its own."""
    taken: set[tuple[int, int]] = set()
    for panel in DOCUMENT["panels"]:
        at = panel["gridPos"]
        assert 0 <= at["x"] < at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in DOCUMENT["panels"]]
    assert len(set(ids)) == len(ids)
    assert 0 not in ids


def test_variables() -> None:
    """Those that are used are defined, and namespace and instance can be chosen; every query goes to the chosen Prometheus."""
    defined = {each["name"] for each in DOCUMENT["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z_]+)", TEXT)) - {"__rate_interval", "__all"}
    assert used == defined == {"datasource", "namespace", "instance"}
    assert all(
        panel["datasource"] == SOURCE and target["datasource"] == SOURCE for panel in PANELS for target in panel["targets"]
    )


@pytest.mark.parametrize("query", QUERIES)
def test_each_query_asks_for_what_exists(query: str) -> None:
    """Every metric, recording rule and label."""
    assert unknown_in(query) == set()


def test_each_legend_names_a_label_that_is_left() -> None:
    """A legend over a label that the query has summed away would be empty."""
    for panel in PANELS:
        for target in panel["targets"]:
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert re.search(rf"by \([^)]*\b{label}\b", target["expr"]), target["expr"]


def test_promtool_reads_each_query(tmp_path: Path) -> None:
    """Prometheus' own parser, by way of a rule file."""
    made = [{"record": f"dashboard:query:{number}", "expr": query} for number, query in enumerate(QUERIES)]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": made}]}))
    assert f"SUCCESS: {len(QUERIES)} rules found" in promtool("check", "rules", str(path))


def test_the_provisioning_points_at_what_is_there() -> None:
    """A Prometheus as the default source, and the folder that the dashboards are mounted at."""
    sources = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yml").read_text())
    (source,) = sources["datasources"]
    assert (source["type"], source["isDefault"], source["url"]) == ("prometheus", True, "http://prometheus:9090")
    providers = yaml.safe_load((FOLDER / "provisioning/dashboards/limpet.yml").read_text())
    (provider,) = providers["providers"]
    assert (provider["type"], provider["options"]["path"]) == ("file", "/etc/grafana/dashboards")
    assert list((FOLDER / "dashboards").glob("*.json")) == [BOARD]
