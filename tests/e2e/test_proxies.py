"""Forward-auth behind the real nginx and the real HAProxy, with the configurations of deploy/ (only ports are changed)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import Launch, Process, free_port
from tests.packaging.tools import program
from tests.support.servers import wait_until

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
WORKER = str(Path(__file__).parent / "worker.py")
Rig = tuple[httpx.Client, dict[str, Process], dict[str, int]]


def ports_in(text: str, ports: dict[str, int]) -> str:
    """The configuration with a test's ports."""
    for old, new in ports.items():
        text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
    return text


def start_common(launch: Launch, limpet_command: list[str], store_url: str) -> tuple[dict[str, int], dict[str, Process]]:
    ports = {"5467": free_port(), "8001": free_port(), "8002": free_port(), "8080": free_port()}
    workers = {name: launch(sys.executable, WORKER, str(ports[name]), name, port=ports[name]) for name in ("8001", "8002")}
    upstreams = ",".join(f"http://127.0.0.1:{ports[name]}" for name in ("8001", "8002"))
    launch(
        *limpet_command,
        "serve",
        "--port",
        str(ports["5467"]),
        port=ports["5467"],
        LIMPET_REDIS_URL=store_url,
        LIMPET_UPSTREAMS=upstreams,
    )
    return ports, workers


@pytest.fixture
def nginx(launch: Launch, limpet_command: list[str], store_url: str, tmp_path: Path) -> Iterator[Rig]:
    """nginx with deploy/nginx/limpet.conf."""
    binary = program("nginx", "nginx")
    ports, workers = start_common(launch, limpet_command, store_url)
    (tmp_path / "limpet.conf").write_text(ports_in((ROOT / "deploy/nginx/limpet.conf").read_text(), ports))
    temporary = "".join(f"{kind}_temp_path {tmp_path}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (tmp_path / "nginx.conf").write_text(
        f"daemon off;\nworker_processes 1;\npid {tmp_path}/pid;\nerror_log {tmp_path}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary}include {tmp_path}/limpet.conf;\n}}\n"
    )
    launch(binary, "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path), "-e", str(tmp_path / "error.log"), port=ports["8080"])
    with httpx.Client(base_url=f"http://127.0.0.1:{ports['8080']}", timeout=20) as http:
        yield http, workers, ports


@pytest.fixture
def haproxy(launch: Launch, limpet_command: list[str], store_url: str, tmp_path: Path) -> Iterator[Rig]:
    """HAProxy with deploy/haproxy/haproxy.cfg."""
    binary = program("haproxy", "haproxy")
    ports, workers = start_common(launch, limpet_command, store_url)
    (tmp_path / "haproxy.cfg").write_text(ports_in((ROOT / "deploy/haproxy/haproxy.cfg").read_text(), ports))
    shutil.copy(ROOT / "deploy/haproxy/limpet.lua", tmp_path)
    launch(binary, "-f", str(tmp_path / "haproxy.cfg"), port=ports["8080"])
    with httpx.Client(base_url=f"http://127.0.0.1:{ports['8080']}", timeout=20) as http:
        yield http, workers, ports


def turn(http: httpx.Client, key: str) -> tuple[str, str]:
    """Who served, and the scope that the worker saw."""
    got = http.post("/v1/chat/completions", json={"messages": []}, headers={"X-Limpet-Key": key})
    assert got.status_code == 200, got.text
    return got.json()["served_by"], got.json()["scope"]


def sticks(rig: Rig) -> dict[str, tuple[str, str]]:
    """Many conversations, several turns: each at one worker, both workers used, no key at any worker."""
    http, _, ports = rig
    first = {f"tel:+4915{n}": turn(http, f"tel:+4915{n}") for n in range(20)}
    assert {who for who, _ in first.values()} == {"8001", "8002"}
    assert len({scope for _, scope in first.values()}) == 20
    for _ in range(3):
        assert {key: turn(http, key) for key in first} == first
    for name in ("8001", "8002"):
        seen = httpx.get(f"http://127.0.0.1:{ports[name]}/seen").text
        assert "+4915" not in seen
        assert "gwk_" in seen
    assert http.post("/x", json={}).status_code == 200  # no conversation: served all the same
    return first


def moves(rig: Rig, first: dict[str, tuple[str, str]], settled: Callable[[], bool]) -> None:
    """A worker dies: its conversations move and stay where they went; the others do not."""
    http, workers, _ = rig
    workers["8001"].stop()
    wait_until(settled, 20, "the proxy to notice")
    after = {key: turn(http, key) for key in first}
    assert {who for who, _ in after.values()} == {"8002"}
    assert {key: scope for key, (_, scope) in after.items()} == {key: scope for key, (_, scope) in first.items()}
    assert {key: turn(http, key) for key in first} == after


def test_nginx(nginx: Rig) -> None:
    """auth_request sticks conversations to workers, and a dead worker costs no request."""
    first = sticks(nginx)
    moves(nginx, first, lambda: True)


def test_haproxy(haproxy: Rig) -> None:
    """HAProxy sticks conversations to workers; its health checks tell when one is lost."""
    first = sticks(haproxy)
    http = haproxy[0]

    def noticed() -> bool:
        return all(http.post("/x", json={}).status_code == 200 for _ in range(4))

    moves(haproxy, first, noticed)


def test_nginx_streams_and_refuses(nginx: Rig) -> None:
    """A key that is no key is an error at nginx too."""
    http = nginx[0]
    assert http.post("/v1/chat/completions", json={}, headers={"X-Limpet-Key": "x" * 257}).status_code == 500
    bad = http.post("/v1/chat/completions", json={}, headers={"X-Limpet-Key": "k", "X-Limpet-Kind": "spoon"})
    assert bad.status_code == 500
