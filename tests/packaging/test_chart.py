"""deploy/helm/limpet, rendered by a real helm: what Kubernetes takes, what Limpet understands, and no secret in the open."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from limpet.settings import Settings
from tests.packaging.tools import helm, missing
from tests.support.readme import SCHEMA, schema

HASH = hashlib.sha256(b"a token that only this test has").hexdigest()
CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "limpet"
OLDEST, NEWEST = "1.30", "1.37"
LEAST: dict[str, Any] = {
    "store": {"existingSecret": "my-store"},
    "auth": {"existingSecret": "my-auth"},
    "gateway": {"upstreams": ["http://frontend-1:8000", "http://frontend-2:8000"], "profile": "dynamo"},
}
ALL: dict[str, Any] = {
    "fullnameOverride": "lim",
    "image": {"repository": "registry.example/limpet", "digest": "sha256:" + "0" * 64},
    "store": {"url": "rediss://:hunter2@store:6379"},
    "auth": {
        "tokens": [{"sha256": HASH, "namespace": "prod", "rights": ["resolve", "admin"]}],
        "metricsTokenSecret": "scrape",
        "scopeSecret": "scope",
    },
    "settings": {"DEADLINE_MS": 200, "RETENTION_S": 2_592_000, "GATEWAY_HEADERS": False},
    "serve": {
        "settings": {"DEADLINE_MS": 300, "WORKERS": 2, "QUOTA_PER_S": 0.5},
        "autoscaling": {"enabled": True},
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "podAnnotations": {"a": "b"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
    },
    "gateway": {
        "upstreams": ["http://vllm:8000"],
        "profile": "mine",
        "settings": {"PROFILES": {"mine": {"writes": [{"body": "x", "value": "scope"}]}}},
        "autoscaling": {"enabled": True},
    },
    "imagePullSecrets": [{"name": "pull"}],
    "serviceAccount": {"annotations": {"a": "b"}},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prom"}},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {"matchLabels": {"team": "llm"}}}]},
}


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A helm."""
    return helm(tmp_path_factory.mktemp("helm"))


class Helm:
    """Renders the chart with some values."""

    def __init__(self, binary: str, folder: Path) -> None:
        self._binary = binary
        self._folder = folder

    def run(self, verb: str, values: dict[str, Any], *more: str) -> subprocess.CompletedProcess[str]:
        """One call."""
        path = self._folder / "values.yaml"
        path.write_text(yaml.safe_dump(values))
        where = {"HOME": str(self._folder)}
        words = [self._binary, verb, *(["r"] if verb == "template" else []), str(CHART), "--values", str(path), *more]
        return subprocess.run(words, env=where, capture_output=True, text=True, check=False, timeout=50)

    def render(self, values: dict[str, Any]) -> list[dict[str, Any]]:
        """The resources."""
        done = self.run("template", values, "--namespace", "prod", "--kube-version", NEWEST)
        assert done.returncode == 0, done.stderr
        return [each for each in yaml.safe_load_all(done.stdout) if each]

    def refusal(self, values: dict[str, Any]) -> str:
        """What it says against values that it does not take."""
        done = self.run("template", values)
        assert done.returncode != 0
        return done.stderr


@pytest.fixture
def chart(binary: str, tmp_path: Path) -> Helm:
    """The chart."""
    return Helm(binary, tmp_path)


def pods(resources: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The pod specifications by the name of their container."""
    specs = [each["spec"]["template"]["spec"] if each["kind"] == "Deployment" else each["spec"] for each in resources
             if each["kind"] in ("Deployment", "Pod")]  # fmt: skip
    return {spec["containers"][0]["name"]: spec for spec in specs}


def kinds(resources: list[dict[str, Any]]) -> dict[str, int]:
    """How many of each kind."""
    found = [each["kind"] for each in resources]
    return {kind: found.count(kind) for kind in found}


@pytest.mark.parametrize("values", [LEAST, ALL], ids=["least", "all"])
def test_lint(chart: Helm, values: dict[str, Any]) -> None:
    """`helm lint --strict` finds nothing."""
    done = chart.run("lint", values, "--strict")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 chart(s) failed" in done.stdout


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("values", [LEAST, ALL], ids=["least", "all"])
def test_kubernetes_takes_it(chart: Helm, values: dict[str, Any], version: str) -> None:
    """Every resource against the strict schemas of the oldest and the newest Kubernetes; those of the Prometheus operator are not
    among them."""
    if importlib.util.find_spec("kubernetes_validate") is None:
        missing("kubernetes-validate", "uv run --group helm pytest", "helm")
    validate = importlib.import_module("kubernetes_validate").validate
    resources = [each for each in chart.render(values) if not each["apiVersion"].startswith("monitoring.coreos.com/")]
    assert len(resources) > 6
    for each in resources:
        validate(each, version, strict=True)


def test_what_is_rendered(chart: Helm) -> None:
    """The least: two deployments with a service and a budget each. With all on, the rest."""
    least = {"Deployment": 2, "Service": 2, "PodDisruptionBudget": 2, "ServiceAccount": 1, "Pod": 1}
    assert kinds(chart.render(LEAST)) == least
    more = {
        "HorizontalPodAutoscaler": 2,
        "NetworkPolicy": 2,
        "ServiceMonitor": 2,
        "PrometheusRule": 1,
        "ConfigMap": 1,
        "Secret": 2,
    }
    assert kinds(chart.render(ALL)) == least | more
    alone = chart.render(LEAST | {"gateway": {"enabled": False}})
    assert kinds(alone) == {"Deployment": 1, "Service": 1, "PodDisruptionBudget": 1, "ServiceAccount": 1, "Pod": 1}


def test_every_selector_finds_its_pods(chart: Helm) -> None:
    """Services, budgets, policies and spreads choose the labels that the pods have, and only those of their own component."""
    resources = chart.render(ALL)
    labels = {
        each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]["template"]["metadata"][
            "labels"
        ]
        for each in resources
        if each["kind"] == "Deployment"
    }
    chosen = 0
    for each in resources:
        spec = each.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector") or {}
        selector = selector.get("matchLabels", selector)
        if selector and each["kind"] != "ServiceMonitor":
            finds = [name for name, has in labels.items() if selector.items() <= has.items()]
            assert [each["metadata"]["name"]] == [f"lim-{name}" for name in finds]
            chosen += 1
    assert chosen == 8
    services = {each["metadata"]["name"]: each["metadata"]["labels"] for each in resources if each["kind"] == "Service"}
    for each in resources:
        if each["kind"] == "ServiceMonitor":
            assert each["spec"]["selector"]["matchLabels"].items() <= services[each["metadata"]["name"]].items()
            assert services[each["metadata"]["name"]][each["spec"]["jobLabel"]] == "limpet"  # what LimpetDown looks for
            (endpoint,) = each["spec"]["endpoints"]
            assert endpoint["honorLabels"] is True
            assert endpoint["authorization"]["credentials"] == {"name": "scrape", "key": "metrics-token"}


@pytest.mark.parametrize("values", [LEAST, ALL], ids=["least", "all"])
def test_limpet_takes_what_the_pods_are_told(
    chart: Helm, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every LIMPET_* is a setting, told once, and its value one that the settings take."""
    monkeypatch.chdir(tmp_path)
    resources = chart.render(values)
    secrets = {each["metadata"]["name"]: each["stringData"] for each in resources if each["kind"] == "Secret"}
    others = {
        "my-store": {"redis-url": "redis://x"},
        "my-auth": {"tokens": "[]"},
        "scrape": {"metrics-token": "scrapes-of-this-test"},
    }
    secrets |= others | {"scope": {"scope-secret": "s"}}
    for name, spec in pods(resources).items():
        (container,) = spec["containers"]
        given: dict[str, str] = {}
        for each in container["env"]:
            assert each["name"] not in given
            ref = each.get("valueFrom", {}).get("secretKeyRef")
            given[each["name"]] = secrets[ref["name"]][ref["key"]] if ref else each["value"]
        with monkeypatch.context() as patched:
            for key, value in given.items():
                patched.setenv(key, value)
            settings = Settings.load()
            assert settings.unknown_variables() == []
            assert settings.secret("redis_url") == given["LIMPET_REDIS_URL"]
            if name != "doctor":
                assert settings.host == "0.0.0.0"
                assert settings.port == container["ports"][0]["containerPort"]
            if name == "gateway":
                assert list(settings.upstreams) == values["gateway"]["upstreams"]
            if values is ALL:
                assert settings.deadline_ms == (300 if name == "serve" else 200)
                assert settings.retention_s == 2_592_000
                assert settings.tokens[0].sha256 == HASH


def test_pods_are_locked_down(chart: Helm) -> None:
    """Not root, nothing to write but /tmp, no capability, no token of the cluster, bounded, probed."""
    for name, spec in pods(chart.render(ALL)).items():
        (container,) = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
        assert container["image"] == "registry.example/limpet@sha256:" + "0" * 64
        assert container["command"] == ["limpet"]
        assert container["args"] == [name]
        if name == "doctor":
            continue
        assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]
        assert container["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]
        assert spec["topologySpreadConstraints"][0]["topologyKey"] == "kubernetes.io/hostname"
        grace = int({each["name"]: each.get("value") for each in container["env"]}["LIMPET_SHUTDOWN_GRACE_S"])
        assert spec["terminationGracePeriodSeconds"] > grace + container["lifecycle"]["preStop"]["sleep"]["seconds"]


def test_secrets_stay_in_secrets(chart: Helm) -> None:
    """The store's URL is in its Secret and nowhere else."""
    holding = [each for each in chart.render(ALL) if "hunter2" in json.dumps(each)]
    assert [(each["kind"], each["metadata"]["name"]) for each in holding] == [("Secret", "lim-store")]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"store": {"existingSecret": ""}}, "set store.existingSecret"),
        ({"auth": {"existingSecret": ""}}, "auth.insecure=true behind a NetworkPolicy"),
        ({"gateway": {"upstreams": []}}, "The gateway needs gateway.upstreams"),
        ({"gateway": {"upstreams": ["http://a"], "profile": ""}}, "The gateway needs gateway.profile"),
        ({"settings": {"DEADLIN_MS": 1}}, "DEADLIN_MS"),
        ({"settings": {"HOST": "127.0.0.1"}}, "HOST"),
        ({"serve": {"replica": 3}}, "replica"),
        ({"auth": {"tokens": [{"sha256": "not-a-hash"}]}}, "sha256"),
        ({"store": {"url": "http://x"}}, "url"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(chart: Helm, values: dict[str, Any], says: str) -> None:
    """Before anything is installed, with what to do or the name at fault."""
    assert says in chart.refusal(LEAST | values)


def test_rules_and_dashboard_are_those_of_deploy(chart: Helm) -> None:
    """The PrometheusRule holds the groups of deploy/prometheus, templates of alerts included; the ConfigMap the dashboard."""
    resources = {each["kind"]: each for each in chart.render(ALL)}
    rules = CHART.parents[1] / "prometheus" / "rules"
    groups = [
        group for name in ("rules", "alerts") for group in yaml.safe_load((rules / f"limpet.{name}.yml").read_text())["groups"]
    ]
    assert resources["PrometheusRule"]["spec"]["groups"] == groups
    board = CHART.parents[1] / "grafana" / "dashboards" / "limpet.json"
    assert resources["ConfigMap"]["data"]["limpet.json"] == board.read_text()


def test_the_schema_knows_every_setting_and_value() -> None:
    """`uv run python -m tests.support.readme` writes its settings anew; and each value of values.yaml is in it."""
    text = SCHEMA.read_text(encoding="utf-8")
    assert schema(text) == text
    document = json.loads(text)
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values.keys() <= document["properties"].keys()
    for part in ("serve", "gateway", "auth", "store", "image", "networkPolicy"):
        assert values[part].keys() == document["properties"][part]["properties"].keys()


def test_the_version_is_ours() -> None:
    """appVersion is the release of the package, since images are tagged with it."""
    project = CHART.parents[2] / "pyproject.toml"
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'\nversion = "{chart["appVersion"]}"\n' in project.read_text()
