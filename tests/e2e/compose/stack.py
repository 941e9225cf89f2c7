"""The stack of ``docker-compose.yml`` under a project name and ports of its own, driven as an operator drives it.

Needs Docker with Compose; DOCKER_HOST counts. ``LIMPET_E2E_BUILD``: further words for ``docker build``.
``LIMPET_E2E_OVERRIDES``: files of this folder, by commas, that go on top (``without-grafana.yml``).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.conftest import free_port
from tests.packaging.tools import missing, program
from tests.support.servers import wait_until

__all__ = ["ROOT", "Stack", "compose_command"]

ROOT = Path(__file__).resolve().parents[3]
IMAGE = "limpet:0.1.0"


def docker(*words: str, timeout_s: float = 120, check: bool = True, **environ: str) -> str:
    """Runs docker; its output. Fails the test with what it said."""
    return _run(["docker", *words], timeout_s, check, environ)


def _run(command: list[str], timeout_s: float, check: bool, environ: dict[str, str]) -> str:
    env = os.environ | environ
    done = subprocess.run(
        command, cwd=ROOT, env=env, timeout=timeout_s, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert not check or done.returncode == 0, f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}"
    return done.stdout


def compose_command() -> list[str]:
    """``docker compose`` or ``docker-compose``. Skips where there is none, or no daemon answers."""
    program("docker", "docker.io")
    answer = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=20)
    if answer.returncode != 0:
        missing("a Docker daemon", f"start one, or set DOCKER_HOST ({answer.stderr.strip()[-300:]})", "docker")
    if subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=20).returncode == 0:
        return ["docker", "compose"]
    return [program("docker-compose", "docker-compose")]


class Stack:
    """One running stack. ``topology``: ``single``, or the name of an env file in ``deploy/docker``."""

    def __init__(self, topology: str, environ: dict[str, str]) -> None:
        self.ports = {name: free_port() for name in ("SERVE_PORT", "GATEWAY_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")}
        self.project = f"limpet-e2e-{topology}-{os.getpid()}"
        self._environ = environ | {name: str(port) for name, port in self.ports.items()}
        folder = Path(__file__).parent
        files = [ROOT / "docker-compose.yml"]
        files += [folder / name for name in os.environ.get("LIMPET_E2E_OVERRIDES", "").split(",") if name]
        self._command = [*compose_command(), "-p", self.project, "--project-directory", str(ROOT)]
        if topology != "single":
            self._command += ["--env-file", str(ROOT / "deploy" / "docker" / f"{topology}.env")]
        for file in files:
            self._command += ["-f", str(file)]
        self.serve = f"http://127.0.0.1:{self.ports['SERVE_PORT']}"
        self.gateway = f"http://127.0.0.1:{self.ports['GATEWAY_PORT']}"
        self.prometheus = f"http://127.0.0.1:{self.ports['PROMETHEUS_PORT']}"

    def compose(self, *words: str, timeout_s: float = 180, check: bool = True) -> str:
        """Runs Compose on this stack."""
        return _run([*self._command, *words], timeout_s, check, self._environ)

    def up(self) -> None:
        """All of it, and until the balancer answers for both."""
        self.compose("up", "-d", "--no-build")
        for url in (self.serve, self.gateway):
            wait_until(lambda url=url: self.answers(f"{url}/readyz"), 90, f"{url}/readyz\n{self.compose('ps')}")  # type: ignore[misc]

    def down(self) -> None:
        """Nothing stays, volumes included."""
        self.compose("down", "-v", "--timeout", "5", check=False)

    def answers(self, url: str) -> bool:
        """Whether it answers 200."""
        try:
            return httpx.get(url, timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def container(self, service: str) -> str:
        """The id of a service's container, also of one that is down."""
        name = f"label=com.docker.compose.service={service}"
        (found,) = docker("ps", "-aq", "-f", f"label=com.docker.compose.project={self.project}", "-f", name).split()
        return found

    def kill(self, service: str) -> None:
        """SIGKILL, and it stays down (Docker takes it for our wish)."""
        docker("kill", self.container(service))

    def start(self, service: str) -> None:
        """Up again, and healthy."""
        found = self.container(service)
        docker("start", found)
        wait_until(lambda: self.health(service) == "healthy", 60, f"{service} to be healthy")

    def health(self, service: str) -> str:
        """``starting``, ``healthy`` or ``unhealthy``."""
        return docker("inspect", "-f", "{{.State.Health.Status}}", self.container(service)).strip()

    def execute(self, service: str, *command: str, timeout_s: float = 60) -> str:
        """Runs a command in a service's container."""
        return docker("exec", self.container(service), *command, timeout_s=timeout_s)

    def targets(self) -> list[dict[str, Any]]:
        """What Prometheus scrapes."""
        found: list[dict[str, Any]] = httpx.get(f"{self.prometheus}/api/v1/targets", timeout=5).json()["data"]["activeTargets"]
        return found


def build() -> None:
    """The image, from this checkout."""
    compose_command()
    more = shlex.split(os.environ.get("LIMPET_E2E_BUILD", ""))
    docker("build", "-f", "deploy/docker/Dockerfile", "-t", IMAGE, *more, ".", timeout_s=600, DOCKER_BUILDKIT="1")


class Traffic:
    """Turns of some conversations through the gateways until it is stopped; who served each, and what failed."""

    def __init__(self, url: str, keys: list[str]) -> None:
        self._url, self._keys = url, keys
        self.served: dict[str, list[str]] = {key: [] for key in keys}
        self.failed: list[str] = []
        self.turns = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._drive, name="traffic")

    def _drive(self) -> None:
        while not self._stop.is_set():
            for key in self._keys:
                self.turn(key)

    def turn(self, key: str) -> None:
        """One request."""
        body = {"model": "echo", "messages": [{"role": "user", "content": "again"}]}
        self.turns += 1
        try:
            answer = httpx.post(f"{self._url}/v1/chat/completions", json=body, headers={"X-Limpet-Key": key}, timeout=40)
        except httpx.HTTPError as error:
            self.failed.append(repr(error))
            return
        if answer.status_code == 200:
            self.served[key].append(answer.json()["served_by"])
        else:
            self.failed.append(f"{answer.status_code} {answer.text[:200]}")

    def more(self, count: int) -> None:
        """Waits for so many further turns."""
        goal = self.turns + count
        wait_until(lambda: self.turns >= goal, 90, f"{count} more turns")

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
