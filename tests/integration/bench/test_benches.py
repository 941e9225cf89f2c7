"""Each bench runs end to end, small, and reports what it says it measures. What the figures are is not a test's business."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from limpet.bench import durability, gateway, http, library, lua, memory, peers, scale
from limpet.bench.model import Report
from limpet.bench.peers_process import Plan, carry_out
from limpet.bench.peers_ways import WAYS
from limpet.bench.pipe import Pipe
from limpet.bench.place import place, sweep
from limpet.bench.servers import running
from limpet.cli import main
from limpet.embedded.binary import server_binary
from limpet.errors import InvalidRequest
from limpet.scripts import every_script
from tests.support.servers import Server

pytestmark = pytest.mark.timeout(120)


def check(report: Report, *cases: str, loads: tuple[int | None, ...] = (None,)) -> dict[tuple[str, int | None], Any]:
    """Every case is there at every load, with a positive median within its extremes; and the report is JSON."""
    rows = {(row.case, row.load): row for row in report.rows}
    for case in cases:
        for load in loads:
            row = rows[case, load]
            assert 0 < row.low <= row.median <= row.high, row
    assert json.loads(msgspec.json.encode(report))["bench"] == report.bench
    assert report.machine["cores"] >= 1
    assert report.machine["store"]
    return rows


def keys(server: Server, pattern: str = "*") -> list[bytes]:
    with redis.Redis.from_url(server.url) as store:
        return store.keys(pattern)


def test_lua() -> None:
    """Every script's case has a cost beside GET's, at every depth."""
    report = lua.run(calls=2000, depths=[16, 64], rounds=2)
    rows = check(report, "GET", "resolve, bound", "confirm", "advance", loads=(16, 64))
    assert rows["GET", 64].ratio == 1
    assert rows["resolve, bound", 64].ratio > 1
    assert [each.better for each in report.figures] == ["low", "low"]
    assert all(each.name.endswith("depth 64") for each in report.figures)
    assert [each.measured for each in report.figures] == [rows[f"resolve, {kind}", 64].ratio for kind in ("bound", "unbound")]


def test_every_client_facing_script_has_a_case(fresh_server: Callable[..., Server]) -> None:
    """Each case is answered without an error, and together they call all that a client's own calls need."""
    with place(fresh_server().url) as where, Pipe(where.redis) as pipe:
        called = set()
        by_sha = {sha: each.name for each in every_script() for sha in (each.sha, each.flagged_sha)}
        for build, _ in lua.cases_of(where, pipe).values():
            commands = build(3)
            pipe.run(commands, 3)
            called |= {name for sha, name in by_sha.items() if any(sha.encode() in each for each in commands)}
    inner = {"binding_census", "binding_drain", "binding_prune", "config_open", "config_raise", "record_rewrite"}
    workers = {"worker_list", "worker_mark", "worker_register"}
    assert called == {each.name for each in every_script()} - inner - workers


def test_another_server(tmp_path: Path) -> None:
    """The scripts' cost on a server program of one's own; what is no program, or a URL beside it, is refused."""
    report = lua.run(server=server_binary(), calls=100, depths=[8, 4], rounds=1)
    assert report.figures[0].name.endswith("depth 8")
    with pytest.raises(InvalidRequest, match="no program"):
        lua.run(server=tmp_path / "missing")
    with pytest.raises(InvalidRequest, match="not both"):
        lua.run(server=server_binary(), url="redis://127.0.0.1:1")


@pytest.mark.parametrize(("bench", "case"), [("durability", "none"), ("lua", "heartbeat")])
def test_quick(bench: str, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One round of little work, so no spread and no verdict."""
    assert main(["bench", bench, "--quick", "--json"]) == 0
    report = msgspec.json.decode(capsys.readouterr().out, type=Report)
    assert report.bench == bench
    assert all(row.low == row.high for row in report.rows)
    assert report.figures == []
    assert "no figure is judged" in report.notes[-1]
    assert len([row for row in report.rows if row.case == case]) == 2


def test_library() -> None:
    """Limpet and redis-py at each concurrency, the memo's hit, and the blocking twins."""
    report = library.run(calls=400, concurrencies=[1, 8], rounds=1)
    rows = check(report, library.ONE, library.PIPELINE, library.LIMPET, loads=(1, 8))
    assert rows["memo hit", None].median < 1000
    assert rows[library.LIMPET, 16].p99_us >= rows[library.LIMPET, 16].p50_us > 0
    assert [each.name for each in report.figures if "memo" in each.name] == ["memo hit, us"]


def test_memory() -> None:
    """Bytes of conversations and of memo entries; and nothing but clocks is left by conversations that are over."""
    report = memory.run(n=2000)
    rows = check(report, "conversation", "bound conversation", "memo entry")
    alone = [rows[case, None].more["the record alone"] for case in ("conversation", "bound conversation")]
    assert 100 < alone[0] < alone[1] < rows["bound conversation", None].median
    left = {each.name: each for each in report.figures}["records left once the short conversations expired"]
    assert (left.measured, left.bar, left.met) == (0, 0, "bar")
    assert rows["first half, most", None].low > 0
    keys_at_once = [row for row in report.rows if row.unit == "keys"]
    assert [row.case for row in keys_at_once] == ["first half, most", "second half, most"]
    assert all(0 < row.median < 2000 + 1024 for row in keys_at_once)


def test_memory_notices_a_record_that_stays(fresh_server: Callable[..., Server]) -> None:
    """A record without an expiry is counted, once those with one had their time."""
    server = fresh_server()
    with redis.Redis.from_url(server.url) as store:
        store.set("limpet:{ns:1}:conv:stays", "x")
        store.set("limpet:{ns:1}:conv:goes", "x", px=30)
        store.set("limpet:{ns:1}:clock", "1")
        store.set("limpet:{other:1}:conv:stays", "x")
        assert memory.remaining(store, "ns", 0.5) == {"conv": 1, "clock": 1}


def test_durability() -> None:
    """Every way of keeping a decision, with its ratio to keeping nothing."""
    report = durability.run(calls=100, tasks=(1, 8), rounds=1)
    rows = check(report, *durability.WAYS, loads=(1, 8))
    assert rows["none", 8].ratio == 1
    assert rows["a replica, waited for", 8].ratio > 0


def test_scale() -> None:
    """Cost by conversations stored, and throughput by primaries of a real cluster."""
    report = scale.run(n=2000, calls=512, primaries=(1, 2), rounds=1)
    rows = check(report, "GET", "resolve, bound", scale.HOT, loads=(1000, 2000))
    cost = [rows[scale.CPU, many] for many in (1, 2)]
    assert [row.unit for row in cost] == ["us", "us"]
    assert cost[0].ratio == 1
    assert cost[1].ratio == pytest.approx(cost[1].median / cost[0].median, abs=0.01)
    assert len(report.figures) == 1


def test_peers() -> None:
    """Processes that meet the same sessions: Limpet lets nothing through, a table per process splits them all."""
    report = peers.run(sessions=20, rounds=1, processes=2, ways=(peers.LIMPET, peers.DICT))
    calm = {row.case: row.more for row in report.rows if row.group.startswith("calm")}
    hard = {row.case: row for row in report.rows if row.group.startswith("callers")}
    assert calm["limpet"] == {"splits": 0, "double binds": 0}
    assert calm["a dict per process"]["splits"] == 20
    assert (hard["limpet"].more, hard["limpet"].median) == ({"splits": 0, "double binds": 0}, 0)
    assert report.figures[0].met == "bar"


@pytest.mark.parametrize("way", [way for way in WAYS if way != peers.DICT])
async def test_ways(way: str) -> None:
    """Whoever shares a store agrees as long as nobody dies or is slow; if somebody is, only fences keep it so."""

    async def both(*, faults: bool, sessions: int) -> peers.Count:
        plans = [
            Plan(way=way, urls=[server.url for server in servers], number=number, processes=2,
                 sessions=sessions, prefix=f"{faults}", turns=2, tasks=8, ttl_s=0.3, faults=faults)
            for number in range(2)
        ]  # fmt: skip
        return peers.count(await asyncio.gather(*(carry_out(plan) for plan in plans)))

    with running((), (), ()) as servers:
        assert await both(faults=False, sessions=20) == peers.Count(0, 0, 0)
        hard = await both(faults=True, sessions=8)
    assert (hard.splits + hard.double + hard.orphans == 0) == (way == "limpet")


def test_http() -> None:
    """The service and what it is held against; then bind and continue at half their saturation rates, waited for and not."""
    report = http.run(requests=200, concurrencies=[8], rounds=1)
    rows = check(report, http.CONSTANT, http.STORELESS, http.LIMPET, loads=(8,))
    assert rows[http.CONSTANT, 8].ratio == 1
    for kind in ("continue, WAIT off", "bind, WAIT off", "continue, WAIT on", "bind, WAIT on"):
        assert rows[kind, 64].p99_us > 0


def test_gateway() -> None:
    """Direct, passed through, and as a turn, with what a turn adds in store round trips."""
    report = gateway.run(requests=100, connections=(1,), rounds=1)
    rows = check(report, gateway.DIRECT, gateway.PASSED, gateway.TURN, gateway.MEMO, gateway.TRIP, loads=(1,))
    assert "p50 added us" in rows[gateway.TURN, 1].more
    assert len(report.figures) == 2


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path, fresh_server: Callable[..., Server]) -> None:
    """A table for people, one document with --json, a picture with --plot; on a store of the user's own nothing is left."""
    server = fresh_server()
    picture = tmp_path / "lua.svg"
    words = ["bench", "lua", "--calls", "100", "--rounds", "1", "--depth", "1", "--depth", "16", "--redis-url", server.url]
    assert main([*words, "--plot", str(picture)]) == 0
    told = capsys.readouterr().out
    assert "resolve, bound" in told
    assert "ratio" in told
    assert picture.read_text().startswith("<svg")
    assert main([*words, "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=Report).bench == "lua"
    assert keys(server, "limpet:*") == []


def test_a_store_of_many_servers_is_refused(fresh_server: Callable[..., Server]) -> None:
    """CPU per call means one server; and what a bench leaves elsewhere is swept in steps."""
    with pytest.raises(InvalidRequest, match="one server"), place("redis+cluster://127.0.0.1:1"):
        raise AssertionError("not reached")
    server = fresh_server()
    with place(server.url) as where:
        for number in range(1100):
            where.redis.set(f"limpet:{{{where.namespace}:1}}:conv:{number}", "x")
        where.redis.set("somebody's", "own")
        assert sweep(where.redis, where.namespace) == 1100
    assert keys(server) == [b"somebody's"]
