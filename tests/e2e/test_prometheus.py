"""A real Prometheus, set up as in deploy/ (only addresses and intervals differ), over a real service and gateway."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
import yaml

from tests.e2e.conftest import Launch, free_port
from tests.packaging.test_grafana import QUERIES
from tests.packaging.test_prometheus import FOLDER, RULES, rules
from tests.packaging.tools import program
from tests.support.servers import Server, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
WORKER = str(Path(__file__).parent / "worker.py")


class Rig:
    """Limpet, a worker, Prometheus, and traffic."""

    def __init__(self, serve: int, gateway: int, prometheus: int, store: Server) -> None:
        self.serve = httpx.Client(base_url=f"http://127.0.0.1:{serve}", timeout=20)
        self.gateway = httpx.Client(base_url=f"http://127.0.0.1:{gateway}", timeout=20)
        self.prometheus = httpx.Client(base_url=f"http://127.0.0.1:{prometheus}", timeout=20)
        self.store = store
        self._keys = map(str, itertools.count())

    def query(self, text: str) -> list[dict[str, Any]]:
        """What Prometheus answers."""
        answer = self.prometheus.post("/api/v1/query", data={"query": text})
        assert answer.status_code == 200, (text, answer.text)
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def resolve(self, key: str, **body: Any) -> Any:
        """One turn at the service."""
        return self.serve.post("/v1/resolve", json={"key": key, "session_id": "s", **body}).raise_for_status().json()

    def traffic(self) -> None:
        """A little of everything: turns, resets, binds, old fences, lost scripts; turns and errors at the gateway."""
        key = next(self._keys)
        fence = self.resolve(key, bind={"worker": "w1"})["binding"]["fence"]
        self.serve.post("/v1/bindings/confirm", json={"key": key, "fence": fence}).raise_for_status()
        assert self.serve.post("/v1/bindings/confirm", json={"key": key, "fence": fence - 1}).status_code == 409
        self.resolve(key, bind=True)
        self.serve.post("/v1/advance", json={"key": key, "reason": "new"}).raise_for_status()
        with redis.Redis.from_url(self.store.url) as direct:
            direct.script_flush()
        body = {"messages": [{"role": "user", "content": "hi"}]}
        for path in ("/v1/chat/completions", "/v1/embeddings"):
            self.gateway.post(path, json=body, headers={"X-Limpet-Key": key}).raise_for_status()

    def close(self) -> None:
        """Its clients."""
        for client in (self.serve, self.gateway, self.prometheus):
            client.close()


@pytest.fixture
def rig(launch: Launch, limpet_command: list[str], fresh_server: Callable[..., Server], tmp_path: Path) -> Iterator[Rig]:
    """All of it, with traffic."""
    binary = program("prometheus", "prometheus")
    store = fresh_server()
    serve, gateway, worker, port = (free_port() for _ in range(4))
    launch(sys.executable, WORKER, str(worker), "w", port=worker)
    environ = {"LIMPET_REDIS_URL": store.url, "LIMPET_MEMO_TTL_MS": "1000", "LIMPET_METRICS_TOKEN": "scrapes-of-this-test"}
    launch(*limpet_command, "serve", "--port", str(serve), "--workers", "2", port=serve, **environ)
    ours = ("--upstream", f"http://127.0.0.1:{worker}", "--profile", "openai-chat")
    launch(*limpet_command, "gateway", "--port", str(gateway), *ours, port=gateway, **environ)

    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
    config["rule_files"] = [str(path) for path in RULES]
    ports = {"limpet-serve": serve, "limpet-gateway": gateway, "prometheus": port}
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [f"127.0.0.1:{ports[job['job_name']]}"]}]
        if job["job_name"] != "prometheus":
            job["authorization"] = {"credentials": "scrapes-of-this-test"}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    data = f"--storage.tsdb.path={tmp_path / 'data'}"
    launch(binary, f"--config.file={tmp_path / 'prometheus.yml'}", data, f"--web.listen-address=127.0.0.1:{port}", port=port)
    made = Rig(serve, gateway, port, store)
    with contextlib.closing(made):
        yield made


def test_prometheus_sees_all_of_it(rig: Rig) -> None:
    """Every target is up, every recorded rule and every query of the dashboard has an answer, no rule fails; and a lost advance
    raises its alert, whose words are complete."""
    pause = threading.Event()

    def until(condition: Callable[[], bool], what: str) -> None:
        def tried() -> bool:
            rig.traffic()
            pause.wait(0.2)
            return condition()

        wait_until(tried, 40, what)

    until(lambda: {each["value"][1] for each in rig.query("up")} == {"1"} and len(rig.query("up")) == 3, "three targets up")
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    missing: set[str] = set()

    def all_recorded() -> bool:
        missing.clear()
        missing.update(name for name in recorded if not rig.query(name))
        return not missing

    until(all_recorded, f"an answer for each recorded rule; {missing} are missing")
    silent = [query for query in QUERIES if not rig.query(query)]
    # Nothing was rebound, retried or cut short here.
    assert all("gateway_re" in query or "gateway_aborted" in query for query in silent)
    assert len(silent) < 5

    groups = rig.prometheus.get("/api/v1/rules").json()["data"]["groups"]
    assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}

    epoch = rig.resolve("lost")["epoch"]
    rig.resolve("lost", seen_epoch=epoch + 1_000_000)

    def alerts() -> dict[str, dict[str, Any]]:
        found = rig.prometheus.get("/api/v1/alerts").json()["data"]["alerts"]
        return {each["labels"]["alertname"]: each for each in found if each["state"] == "firing"}

    wait_until(lambda: "LimpetRollback" in alerts(), 15, "the alert of a lost advance")
    assert alerts().keys() == {"LimpetRollback"}
    text = json.dumps(alerts()["LimpetRollback"]["annotations"])
    assert "{{" not in text
    assert "<error" not in text
