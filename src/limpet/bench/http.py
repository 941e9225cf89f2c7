"""``limpet bench http``: the service in a process of its own, beside the same server without a store, and beside FastAPI."""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from limpet.bench.alternate import alternate
from limpet.bench.http_cpu import cpu_us
from limpet.bench.http_load import Load, Loaded
from limpet.bench.http_servers import fastapi_is_there
from limpet.bench.model import SILENT, Figure, Report, Row, Sample, Tell, figure, machine, rows_of
from limpet.bench.place import Place, place, version
from limpet.bench.processes import Listening, command, gather, listening
from limpet.bench.servers import running

__all__ = ["run"]

CONCURRENCIES: Final = (8, 64, 256)
KEYS: Final = 200
CONSTANT, STORELESS, LIMPET, FASTAPI = "constant answer", "short way, no store", "limpet serve", "FastAPI + redis-py"
BODY: Final = '{"key":"conversation %d","session_id":"resp_%d","bind":true}'
COMMITTED: Final = '{"key":"conversation %d","session_id":"resp_%d","bind":{"worker":"w","commit":true}}'
FRESH: Final = '{"key":"new %d","session_id":"resp_%d","bind":true}'
PATH: Final = "/v1/resolve"
CONTINUE: Final = '"action":"continue"'
HEADERS: Final = {"content-type": "application/json"}
NO_FASTAPI: Final = "FastAPI is not installed, so it is missing here: pip install fastapi (in a checkout: uv sync --group bench)."
PATIENT: Final = {"LIMPET_DEADLINE_MS": "5000"}
"""A machine that is busy with something else makes a figure worse, and no answer a degraded one."""
_numbers = itertools.count(0, 10_000_000)


def run(
    *,
    url: str | None = None,
    requests: int = 20_000,
    concurrencies: Sequence[int] = CONCURRENCIES,
    workers: int = 1,
    rounds: int = 3,
    tell: Tell = SILENT,
) -> Report:
    """``requests``: per round and contender. ``workers``: above 1, a service of so many processes is measured too. Bind and
    continue are paced at half their own saturation rate afterwards.

    FastAPI is left out, with a note, where it is not installed.
    """
    rows: list[Row] = []
    figures: list[Figure] = []
    with place(url) as where, contextlib.ExitStack() as stack:
        servers = _contenders(where, stack, workers)
        for connections in concurrencies:
            spent: dict[str, list[float]] = {name: [] for name in servers}
            cases = {name: _asking(server, connections, requests, spent[name]) for name, server in servers.items()}
            found = alternate(cases, rounds, tell, f"{connections} connections")
            more = _cpu_columns(spent)
            rows += rows_of(found, baseline=CONSTANT, unit="/s", group="resolve, bound", load=connections, more=more)
        figures += _figures(rows, concurrencies)
        rows += _paced(where.url, where.namespace, "WAIT off", requests, rounds, tell, figures)
        told = version(where.redis)
    with running((), ()) as (primary, replica):
        replica.replicate(primary)
        rows += _paced(primary.url, "default", "WAIT on", requests, rounds, tell, figures)
    return Report(
        bench="http",
        title="HTTP resolves a second; ratio to the same server answering a constant",
        rows=rows,
        figures=figures,
        notes=[
            "cpu us: of the server's processes, per request; cpu ratio: the baseline's by it. On few cores, which the load "
            "generator and the store share with the server, that is the ratio that says what a core can serve.",
            "constant answer: uvicorn as limpet serve runs it, with an ASGI application that reads the body and answers that. "
            "short way, no store: the service itself, whose way past ASGI is answered at once.",
            "p99 counts from the instant at which a request was due, at a fixed rate: half of what the service does at most.",
            *(() if fastapi_is_there() else (NO_FASTAPI,)),
        ],
        machine=machine(told),
        axes={"": "connections at once"},
    )


def _contenders(where: Place, stack: contextlib.ExitStack, workers: int) -> dict[str, Listening]:
    environ = {"LIMPET_REDIS_URL": where.url, "LIMPET_NAMESPACE": where.namespace, "LIMPET_PORT": "0"} | PATIENT
    module = ("-m", "limpet.bench.http_servers")
    servers = {
        CONSTANT: stack.enter_context(listening(*module, "constant", **environ)),
        STORELESS: stack.enter_context(listening(*module, "storeless", **environ)),
        LIMPET: stack.enter_context(listening(*command("serve"), **environ)),
    }
    if fastapi_is_there():
        servers[FASTAPI] = stack.enter_context(listening(*module, "fastapi", **environ))
    if workers > 1:
        serve = command("serve", "--workers", str(workers))
        servers[f"{LIMPET}, {workers} workers"] = stack.enter_context(listening(*serve, **environ))
    _load(_binding(servers[LIMPET]))
    return servers


def _cpu_columns(spent: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    """Medians without the first, which warmed up."""
    known = {name: statistics.median(each[1:] or each) for name, each in spent.items() if each}
    base = known.get(CONSTANT, 0.0)
    return {name: {"cpu us": round(cpu, 1), "cpu ratio": round(base / cpu, 2) if cpu else None} for name, cpu in known.items()}


def _binding(server: str) -> Load:
    """Every conversation gets its worker."""
    return Load(url=str(server), path=PATH, headers=HEADERS, body=COMMITTED, numbers=KEYS, count=KEYS, connections=1)


def _load(load: Load) -> Loaded:
    return gather("limpet.bench.http_load", [load], Loaded)[0]


def _sample(loaded: Loaded) -> Sample:
    return Sample(loaded.per_second, loaded.p50_us, loaded.p99_us)


def _asking(server: Listening, connections: int, requests: int, spent: list[float]) -> Callable[[], Sample]:
    load = Load(
        url=str(server),
        path=PATH,
        headers=HEADERS,
        body=BODY,
        numbers=KEYS,
        count=requests,
        connections=connections,
        expects=CONTINUE,
    )

    def ask() -> Sample:
        before = cpu_us(server.pid)
        sample = _sample(_load(load))
        after = cpu_us(server.pid)
        if before is not None and after is not None:
            spent.append((after - before) / requests)
        return sample

    return ask


def _figures(rows: Sequence[Row], concurrencies: Sequence[int]) -> Iterator[Figure]:
    busiest = 64 if 64 in concurrencies else concurrencies[-1]
    at = {row.case: row for row in rows if row.load == busiest}

    def ratio(ours: str, theirs: str) -> float:
        return (at[ours].ratio or 0.0) / (at[theirs].ratio or 1.0)

    def cpu(ours: str, theirs: str) -> float:
        return float(at[theirs].more.get("cpu us") or 0.0) / float(at[ours].more.get("cpu us") or 1.0)

    # STORELESS has no bar: it is our own way past ASGI, with no store behind it, and says what the rest of a resolve costs.
    for theirs, bar, aim in ((CONSTANT, 0.6, 0.8), (FASTAPI, 4, 8)):
        if theirs not in at:
            continue
        yield figure(f"HTTP resolve against {theirs}, requests a second", ratio(LIMPET, theirs), bar, aim)
        yield figure(f"HTTP resolve against {theirs}, server CPU", cpu(LIMPET, theirs), bar, aim)


def _paced(url: str, namespace: str, wait: str, requests: int, rounds: int, tell: Tell, figures: list[Figure]) -> Iterator[Row]:
    """p99 of continue and of bind at half the rate at which each saturates."""
    environ = {"LIMPET_REDIS_URL": url, "LIMPET_NAMESPACE": namespace, "LIMPET_PORT": "0"} | PATIENT
    with listening(*command("serve"), **environ) as server:

        def asking(body: str, expects: str, numbers: int = 0) -> Load:
            first = 0 if numbers else next(_numbers)
            return Load(
                url=str(server),
                path=PATH,
                headers=HEADERS,
                body=body,
                numbers=numbers,
                first=first,
                count=requests,
                expects=expects,
            )

        _load(_binding(server))
        kinds: dict[str, Callable[[], Load]] = {
            "continue": lambda: asking(BODY, CONTINUE, KEYS),
            "bind": lambda: asking(FRESH, '"action":"bind"'),
        }
        for kind, load in kinds.items():
            rate = statistics.median(_load(load()).per_second for _ in range(max(rounds, 1))) / 2
            paced = [_sample(_load(_at(load(), rate))) for _ in range(rounds)]
            tell(f"{kind}, {wait}", 1, 1)
            (row,) = rows_of({f"{kind}, {wait}": paced}, baseline=None, unit="/s", group="at half the saturation rate", load=64)
            figures.append(figure(f"p99 of {kind} over HTTP, {wait}, ms", (row.p99_us or 0) / 1000, 2, 1, "low"))
            yield row


def _at(load: Load, rate: float) -> Load:
    return msgspec.structs.replace(load, rate=rate)
