"""``docker-compose.yml`` and the image's files, read without Docker: pinned, hardened, and naming only what exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from limpet import settings_text
from limpet.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
FILE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
DOCKERFILE = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()
VARIABLES = {variable for name, field in Settings.model_fields.items() for variable in settings_text.variables(name, field)}
each_service = pytest.mark.parametrize("name", SERVICES)


def test_what_the_issue_asks_for_is_there() -> None:
    """A store, two of each replica, two upstreams, a balancer, Prometheus and Grafana without a profile; both profiles."""
    default = {name for name, service in SERVICES.items() if "profiles" not in service}
    assert default == {
        *("store", "serve-1", "serve-2", "gateway-1", "gateway-2", "echo-1", "echo-2", "balancer", "prometheus", "grafana")
    }
    of = {profile: {n for n, s in SERVICES.items() if s.get("profiles") == [profile]} for profile in ("cluster", "sentinel")}
    assert of["cluster"] == {*(f"cluster-{n}" for n in range(2, 7)), "cluster-create"}
    assert of["sentinel"] == {"replica-1", "replica-2", "sentinel-1", "sentinel-2", "sentinel-3"}
    assert default | of["cluster"] | of["sentinel"] == set(SERVICES)


@each_service
def test_every_image_is_pinned(name: str) -> None:
    """By a full version, x.y.z: what comes up tomorrow is what came up today."""
    assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+", SERVICES[name]["image"])


def test_every_base_is_pinned() -> None:
    """No base image of the Dockerfile floats, and a digest can be given for each."""
    arguments = dict(re.findall(r"^ARG (\w+)=(.*)$", DOCKERFILE, re.M))
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.M)
    assert len(bases) == 3
    for base in bases:
        assert base.endswith("_DIGEST}")
        for variable in re.findall(r"\$\{(\w+_VERSION)\}", base):
            assert re.fullmatch(r"\d+\.\d+\.\d+", arguments[variable])


@each_service
def test_every_service_is_hardened(name: str) -> None:
    """Nobody is root, writes to its own image, has a capability or gains one, takes the machine, or fills the disk."""
    service = SERVICES[name]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices"} & set(service)
    assert service["restart"] == ("no" if name == "cluster-create" else "unless-stopped")
    assert {"mem_limit", "cpus", "pids_limit", "stop_grace_period", "logging", "tmpfs"} <= set(service)


@each_service
def test_every_service_says_whether_it_is_well(name: str) -> None:
    """A health check each; only what ends by itself has none."""
    assert ("test" in SERVICES[name]["healthcheck"]) is (name != "cluster-create")


@each_service
def test_ports_are_on_loopback(name: str) -> None:
    """Nothing is published to other machines; the store to nobody."""
    ports = SERVICES[name].get("ports", [])
    assert all(port.startswith("127.0.0.1:") for port in ports)
    if "store" in SERVICES[name]["networks"] and "front" not in SERVICES[name]["networks"]:
        assert not ports
    assert FILE["networks"]["store"]["internal"] is True


@each_service
def test_mounts_exist_and_volumes_are_declared(name: str) -> None:
    """Every path of the checkout that is mounted is in it, and is mounted read-only."""
    for mount in SERVICES[name].get("volumes", []):
        source, *rest = mount.split(":")
        if source.startswith("."):
            assert (ROOT / source).exists(), source
            assert rest[1:] == ["ro"]
        else:
            assert source in FILE["volumes"]


@each_service
def test_it_waits_for_what_exists(name: str) -> None:
    """Whom a service depends on is in the file, and has the health that it waits for."""
    wanted = SERVICES[name].get("depends_on", {})
    for other in wanted:
        assert other in SERVICES
        if isinstance(wanted, dict):
            assert wanted[other] == {"condition": "service_healthy"}
            assert "test" in SERVICES[other]["healthcheck"]


def test_every_setting_exists() -> None:
    """Each LIMPET_* that the compose file and the Dockerfile name is a setting of Limpet; a typing mistake would be ignored."""
    named = set(re.findall(r"LIMPET_[A-Z_]+", TEXT + DOCKERFILE))
    assert "LIMPET_REDIS_URL" in named
    assert named <= VARIABLES


def test_a_stop_outlasts_the_grace_of_the_replicas() -> None:
    """The engine's patience is longer than what Limpet gives the requests in flight."""
    for name in ("serve-1", "gateway-2"):
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > Settings.model_fields["shutdown_grace_s"].default


def test_prometheus_scrapes_each_replica() -> None:
    """Its targets are services of the compose file, every replica is one, and none is reached through the balancer."""
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    targets = {target for job in config["scrape_configs"] for static in job["static_configs"] for target in static["targets"]}
    assert {"serve-1:5467", "serve-2:5467", "gateway-1:5468", "gateway-2:5468"} <= targets
    assert {target.split(":")[0] for target in targets} <= {*SERVICES, "localhost"}


@pytest.mark.parametrize("topology", ["cluster", "sentinel"])
def test_an_env_file_names_nodes_that_exist(topology: str) -> None:
    """It selects the profile of its name, and the nodes in the URL are services of that profile, or ``store``."""
    lines = (ROOT / f"deploy/docker/{topology}.env").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert given["COMPOSE_PROFILES"] == given["STORE_MODE"] == topology
    assert given["STORE_SCHEME"] == f"redis+{topology}"
    for node in given["STORE_NODES"].split("/")[0].split(","):
        service = node.split(":")[0]
        assert service == "store" or SERVICES[service]["profiles"] == [topology]
    assert all(re.search(rf"\$\{{{variable}\b", TEXT) for variable in given if variable != "COMPOSE_PROFILES")


def test_the_context_of_the_build_is_an_allow_list() -> None:
    """Nothing is sent to the builder but what is named; so no .env, no .git. And all that is named is there."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = [line[1:] for line in lines if line.startswith("!")]
    assert all((ROOT / path).exists() for path in allowed)
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M)
    assert {word for words in copied for word in words.split()} == set(allowed)


def test_process_1_is_limpet() -> None:
    """In exec form, as a user with a number, with a health check that needs no shell."""
    for line in ('ENTRYPOINT ["limpet"]', 'CMD ["serve"]', "USER 10001:10001", "STOPSIGNAL SIGTERM"):
        assert f"\n{line}\n" in DOCKERFILE
    assert re.search(r"^HEALTHCHECK .* CMD \[", DOCKERFILE, re.M)
