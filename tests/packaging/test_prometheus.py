"""deploy/prometheus: valid, tested by promtool, each alert told so that somebody can act, each query about what exists."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from tests.packaging.tools import program
from tests.support.told import metrics

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
RULES = sorted((FOLDER / "rules").glob("*.yml"))
TESTS = sorted((FOLDER / "tests").glob("*.yml"))
EVERYBODYS = {"up": {"job", "instance"}}
TARGET_LABELS = {"job", "instance"}


def rules() -> list[dict[str, Any]]:
    """All rules of all groups."""
    return [rule for path in RULES for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


ALERTS = {}
for _rule in rules():
    if "alert" in _rule:
        ALERTS.setdefault(_rule["alert"], []).append(_rule)


def selectors(expr: Any) -> Iterator[Any]:
    """The vector selectors in a parsed query."""
    if isinstance(expr, promql_parser.VectorSelector):
        yield expr
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        part = getattr(expr, name, None)
        if part is not None and not isinstance(part, str | int | float):
            yield from selectors(part)
    for part in getattr(expr, "args", None) or ():
        yield from selectors(part)


def known() -> dict[str, set[str]]:
    """Series name -> its labels: metrics with their target's, recording rules with those that they keep."""
    found = {name: set(each.labels) | TARGET_LABELS for each in metrics() for name in each.series}
    for name in found:
        if name.endswith("_bucket"):
            found[name].add("le")
    for rule in rules():
        if "record" in rule:
            kept = re.match(r"sum by \(([^)]*)\)|max by \(([^)]*)\)|histogram_quantile\([\d.]+, sum by \(([^)]*)\)", rule["expr"])
            names = next(filter(None, kept.groups()), "") if kept else ""
            found[rule["record"]] = {name.strip() for name in names.split(",")} - {"", "le"}
    return found | EVERYBODYS


def unknown_in(query: str) -> set[str]:
    """Metrics and labels that a query names and nobody has."""
    have, missing = known(), set()
    found = list(selectors(promql_parser.parse(query)))
    assert found, f"no selector found in {query}"
    for selector in found:
        if selector.name not in have:
            missing.add(selector.name)
        else:
            missing |= {matcher.name for matcher in selector.matchers.matchers} - have[selector.name] - {"__name__"}
    return missing


def promtool(*words: str) -> str:
    """Its output; it must succeed."""
    command = [program("promtool", "prometheus"), *words]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_configuration_is_valid() -> None:
    """With its rule files and scrape jobs, and without a token file that is somebody else's."""
    assert "SUCCESS" in promtool("check", "config", "prometheus.yml")


def test_the_rules_are_valid() -> None:
    """promtool reads as many as there are."""
    out = promtool("check", "rules", *(str(path) for path in RULES))
    assert sum(map(int, re.findall(r"SUCCESS: (\d+) rules found", out))) == len(rules()) > 40


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_promtool_tests(path: Path) -> None:
    """The alerts' own unit tests."""
    assert "SUCCESS" in promtool("test", "rules", str(path))


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_each_alert_has_a_test_that_fires_and_one_that_does_not(name: str) -> None:
    """For each severity and window that it has."""
    cases = [case for path in TESTS for case in yaml.safe_load(path.read_text())["tests"]]
    mine = [each for case in cases for each in case["promql_expr_test"] if f'"{name}"' in each["expr"]]
    assert any(not each["exp_samples"] for each in mine)
    fired = "".join(sample["labels"] for each in mine for sample in each["exp_samples"])
    for rule in ALERTS[name]:
        assert all(f'{label}="{value}"' in fired for label, value in rule["labels"].items())


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_each_alert_says_what_to_do(name: str) -> None:
    """A severity, a summary, and three sentences at least: what happened, what it means, what to do."""
    for rule in ALERTS[name]:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert 10 < len(rule["annotations"]["summary"]) < 80
        assert len(re.findall(r"[.;:](?: |$)", rule["annotations"]["description"].strip())) >= 3


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("record") or rule["alert"])
def test_each_rule_asks_for_what_exists(rule: dict[str, Any]) -> None:
    """Every metric, recording rule and label in its query."""
    assert unknown_in(rule["expr"]) == set()


def test_a_query_for_what_does_not_exist_is_noticed() -> None:
    """The check itself: a metric, a label, also inside of functions and aggregations."""
    assert unknown_in("sum(rate(limpet_nonsense_total[5m]))") == {"limpet_nonsense_total"}
    assert unknown_in('1 + sum by (x) (rate(limpet_binds_total{reason="x"}[5m]))') == {"reason"}
    assert unknown_in("histogram_quantile(0.5, sum by (le) (rate(limpet_store_second_bucket[5m])))") == {
        "limpet_store_second_bucket"
    }
    assert unknown_in("topk(3, limpet_bindingz)") == {"limpet_bindingz"}
    assert unknown_in("(limpet_a or vector(0)) / (limpet_b > 0)") == {"limpet_a", "limpet_b"}
