"""``docker compose up``, for real: traffic through the balancer while its parts are killed, and what has to hold meanwhile.

See ``tests/e2e/compose/stack.py`` for what it needs. ``LIMPET_E2E_KEEP=DIR`` keeps what was seen.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from limpet.scope import physical
from tests.e2e.compose.stack import IMAGE, Stack, Traffic, build, docker
from tests.support.servers import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]
KEYS = [f"e2e:{number}" for number in range(12)]
CALLERS = 12
HEALTH = "{{.State.Health.Status}}"
GATEWAY = ("gateway", "--upstream", "http://127.0.0.1:9", "--profile", "openai-chat")
SHUT = ("--read-only", "--tmpfs", "/tmp", "--tmpfs", "/data:uid=10001,mode=700", "--cap-drop", "ALL")


@pytest.fixture(scope="module")
def image() -> str:
    build()
    return IMAGE


@pytest.fixture
def stack(request: pytest.FixtureRequest, image: str) -> Iterator[Stack]:
    """The stack of the topology that a test is parametrized with."""
    topology: str = getattr(request, "param", "single")
    stack = Stack(topology, {})
    try:
        stack.up()
        yield stack
    finally:
        keep(f"{topology}-logs.txt", stack.compose("logs", "--no-color", "--tail=200", check=False))
        stack.down()


def keep(name: str, text: str) -> None:
    """For whoever wants to see it."""
    if folder := os.environ.get("LIMPET_E2E_KEEP"):
        Path(folder, name).write_text(text)


def post(stack: Stack, path: str, timeout_s: float = 40, **body: Any) -> httpx.Response:
    return httpx.post(f"{stack.serve}{path}", json=body, timeout=timeout_s)


def resolve(stack: Stack, key: str, session: str = "s", **more: Any) -> dict[str, Any]:
    answer = post(stack, "/v1/resolve", key=key, session_id=session, **more)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def at_once(call: Any) -> list[Any]:
    """The same call from many callers; the balancer spreads them over both replicas."""
    with ThreadPoolExecutor(CALLERS) as pool:
        return list(pool.map(call, range(CALLERS)))


def guarantees_hold(stack: Stack, key: str) -> int:
    """G1..G6 on one fresh key, asked through the balancer; the last epoch."""
    claims = at_once(lambda n: resolve(stack, key, f"s{n}", bind={"worker": f"w{n}"}))
    assert len({each["epoch"] for each in claims}) == 1  # G1
    binders = [each["binding"] for each in claims if each["binding"]["action"] == "bind"]
    assert len(binders) == 1  # G4
    fence, epoch = binders[0]["fence"], claims[0]["epoch"]
    assert post(stack, "/v1/bindings/confirm", key=key, fence=fence).status_code == 200
    assert {each["binding"]["worker"] for each in at_once(lambda n: resolve(stack, key, bind=True))} == {binders[0]["worker"]}

    answers = at_once(lambda n: post(stack, "/v1/advance", key=key, reason="new", expected_epoch=epoch))
    advances = [each.json() for each in answers]
    assert [each["applied"] for each in advances].count(True) == 1  # G1, G2
    (later,) = {each["epoch"] for each in advances}
    assert later > epoch  # G3
    stale = post(stack, "/v1/bindings/confirm", key=key, fence=fence)
    assert (stale.status_code, stale.json()["code"]) == (409, "stale_fence")  # G5

    fork = resolve(stack, key, "child", kind="fork", parent_key=key)  # G6
    assert (fork["scope"], fork["parent_scope"]) == (physical("child"), advances[0]["scope"])
    assert resolve(stack, key)["epoch"] == later
    again = resolve(stack, key, bind={"worker": "w", "commit": True})
    assert again["binding"]["fence"] > fence  # G3
    return int(later)


def scraped(stack: Stack) -> bool:
    targets = stack.targets()
    return len(targets) >= 5 and all(each["health"] == "up" for each in targets)


def test_a_stack_that_is_killed_piece_by_piece(stack: Stack) -> None:
    """Two gateways and two services behind one balancer keep every conversation on its worker while one of each is killed;
    with the store killed turns degrade and nothing else pretends; afterwards no epoch comes back."""
    first = guarantees_hold(stack, "e2e:guarantees")
    with Traffic(stack.gateway, KEYS) as traffic:
        traffic.more(60)
        stack.kill("gateway-1")
        traffic.more(60)
        stack.start("gateway-1")
        stack.kill("serve-2")
        guarantees_hold(stack, "e2e:one-service")
        traffic.more(60)
        stack.start("serve-2")
    assert all(len(set(served)) == 1 for served in traffic.served.values()), traffic.served
    assert {worker for served in traffic.served.values() for worker in served} == {"echo-1", "echo-2"}
    assert len(traffic.failed) <= 2, traffic.failed  # what the killed gateway had in its hands

    wait_until(lambda: scraped(stack), 60, f"Prometheus to scrape all: {stack.targets()}")
    running = docker("ps", "-q", "-f", f"label=com.docker.compose.project={stack.project}").split()
    wait_until(lambda: {docker("inspect", "-f", HEALTH, each).strip() for each in running} == {"healthy"}, 60, "all to be well")
    keep("targets.json", json.dumps(stack.targets(), indent=1))

    store_dies(stack)
    assert resolve(stack, "e2e:guarantees")["epoch"] >= first
    after = guarantees_hold(stack, "e2e:after")
    advanced = post(stack, "/v1/advance", key="e2e:guarantees", reason="new").json()
    assert advanced["epoch"] > max(first, after)

    verdict = json.loads(stack.execute("serve-1", "limpet", "chaos", "--minutes", "0.3", "--json", timeout_s=90))
    keep("chaos.json", json.dumps(verdict, indent=1))
    assert verdict["verdict"]["violations"] == []
    assert verdict["decisions"] > 50  # it judged something


def store_dies(stack: Stack) -> None:
    """G7, and the way back."""
    stack.kill("store")
    for number in range(8):
        begun = time.monotonic()
        turn = resolve(stack, "e2e:guarantees", f"alone{number}")
        assert (turn["degraded"], turn["scope"]) == (True, physical(f"alone{number}"))
        assert time.monotonic() - begun < 2.5
    refused = post(stack, "/v1/advance", key="e2e:guarantees", reason="new")
    assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
    alone = Traffic(stack.gateway, [])
    alone.served["e2e:away"] = []
    for _ in range(4):
        alone.turn("e2e:away")
    assert alone.failed == []  # the gateways go on without affinity
    stack.start("store")
    wait_until(lambda: not resolve(stack, "e2e:back")["degraded"], 30, "turns to be whole again")
    wait_until(lambda: stack.answers(f"{stack.gateway}/readyz"), 30, "the gateways to be ready")


@pytest.mark.parametrize(("stack", "primary"), [("cluster", "cluster-2"), ("sentinel", "store")], indirect=["stack"])
def test_a_primary_is_lost(stack: Stack, primary: str) -> None:
    """The profiles come up by themselves; when a primary is killed a replica takes over, no epoch comes back, all goes on."""
    keys = [f"e2e:lost:{number}" for number in range(24)]  # over all primaries
    guarantees_hold(stack, "e2e:before")
    before = {key: post(stack, "/v1/advance", key=key, reason="new").json() for key in keys}
    assert all(each["durable"] for each in before.values()), before
    with Traffic(stack.gateway, KEYS) as traffic:
        traffic.more(40)
        stack.kill(primary)
        wait_until(lambda: not any(resolve(stack, key)["degraded"] for key in keys), 60, "a replica to take over")
        traffic.more(40)
    keep(f"{primary}-served.json", json.dumps({"failed": traffic.failed, "served": traffic.served}, indent=1))
    assert traffic.failed == []
    assert {key: epoch(stack, key) for key in keys} == {key: each["epoch"] for key, each in before.items()}
    for key, each in before.items():
        assert post(stack, "/v1/advance", key=key, reason="new").json()["epoch"] > each["epoch"]
    stack.start(primary)
    wait_until(lambda: role(stack, primary) == "slave", 60, "the old primary to follow the new one")
    guarantees_hold(stack, "e2e:after")


def epoch(stack: Stack, key: str) -> int:
    """The epoch that a turn is told; a degraded one (a busy machine, 250 ms) is told none, and asked again."""
    found: list[int] = []

    def told() -> bool:
        turn = resolve(stack, key)
        if not turn["degraded"]:
            found.append(turn["epoch"])
        return bool(found)

    wait_until(told, 30, f"a turn of {key} that the store answers")
    return found[0]


def role(stack: Stack, node: str) -> str:
    """What a node of the store says that it is."""
    ask = "REDISCLI_AUTH=$STORE_OPERATOR_PASSWORD valkey-cli --no-auth-warning --user operator role"
    return stack.execute(node, "sh", "-c", ask).split()[0]


@pytest.mark.parametrize("number", ["TERM", "INT"])
@pytest.mark.parametrize("command", [("serve",), ("serve", "--workers", "2"), GATEWAY])
def test_process_1_ends_by_itself(image: str, command: tuple[str, ...], number: str) -> None:
    """As process 1, without tini, on a read-only file system: a signal ends it within seconds, with 0, store and workers too."""
    found = docker("run", "-d", *SHUT, image, *command).strip()
    try:
        wait_until(lambda: listens(found), 30, "it to listen")
        docker("exec", found, "python", "-IS", "/opt/limpet/share/alive.py")
        docker("kill", "-s", number, found)
        assert docker("wait", found, timeout_s=30).strip() == "0"
        assert "Traceback" not in docker("logs", found)
    finally:
        docker("rm", "-f", found)


def test_a_signal_before_it_serves_counts(image: str) -> None:
    """A SIGTERM while it is still starting ends it as well, though the kernel ignores it for process 1 by default."""
    found = docker("run", "-d", image).strip()
    try:
        wait_until(lambda: "SigCgt:\t0000000000004" in docker("exec", found, "cat", "/proc/1/status"), 10, "a handler")
        docker("kill", "-s", "TERM", found)
        assert docker("wait", found, timeout_s=20).strip() in ("0", "143")
    finally:
        docker("rm", "-f", found)


def listens(container: str) -> bool:
    """Whether it said so; fails with its log when it has ended."""
    log = docker("logs", container)
    assert docker("inspect", "-f", "{{.State.Running}}", container).strip() == "true", log
    return "listening on" in log


def test_process_1_reaps_and_replaces_a_worker(image: str) -> None:
    """A worker process that is killed leaves no zombie, and another takes its place."""
    found = docker("run", "-d", *SHUT, image, "serve", "--workers", "2").strip()
    try:
        wait_until(lambda: listens(found), 30, "it to listen")
        before = workers(found)
        docker("exec", found, "python", "-IS", "-c", f"import os; os.kill({min(before)}, 9)")

        def whole() -> bool:
            now = workers(found)
            return len(now) == 2 and min(before) not in now and set(now.values()) <= {"R", "S"}

        wait_until(whole, 20, "two workers and no zombie")
    finally:
        docker("rm", "-f", found)


LOOK = """
import pathlib
for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
    pid, rest = stat.parent.name, stat.read_text().rpartition(")")[2].split()
    if rest[1] == "1" and b"_supervisor" not in (stat.parent / "cmdline").read_bytes():
        print(pid, rest[0])
"""


def workers(container: str) -> dict[int, str]:
    """The children of process 1 but for the store's supervisor: process id and state, ``Z`` for a zombie."""
    lines = docker("exec", container, "python", "-IS", "-c", LOOK).splitlines()
    return {int(pid): state for pid, state in (line.split() for line in lines)}
