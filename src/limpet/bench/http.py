"""``limpet bench http``: the service in a process of its own, beside the same server without a store, and beside FastAPI."""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from limpet.bench.alternate import alternate
from limpet.bench.http_load import Load, Loaded
from limpet.bench.http_servers import fastapi_is_there
from limpet.bench.model import SILENT, Figure, Report, Row, Sample, Tell, figure, machine, rows_of
from limpet.bench.place import Place, place, version
from limpet.bench.processes import command, gather, listening
from limpet.bench.servers import running

__all__ = ["run"]

CONCURRENCIES: Final = (8, 64, 256)
KEYS: Final = 200
CONSTANT, STORELESS, LIMPET, FASTAPI = "constant answer", "service, no store", "limpet serve", "FastAPI + redis-py"
BODY: Final = '{"key":"conversation %d","session_id":"resp_%d","bind":true}'
COMMITTED: Final = '{"key":"conversation %d","session_id":"resp_%d","bind":{"worker":"w","commit":true}}'
FRESH: Final = '{"key":"new %d","session_id":"resp_%d","bind":true}'
PATH: Final = "/v1/resolve"
CONTINUE: Final = '"action":"continue"'
HEADERS: Final = {"content-type": "application/json"}
_numbers = itertools.count(0, 10_000_000)


def run(
    *,
    url: str | None = None,
    requests: int = 20_000,
    concurrencies: Sequence[int] = CONCURRENCIES,
    rounds: int = 3,
    tell: Tell = SILENT,
) -> Report:
    """``requests``: per round and contender. Bind and continue are paced at half their own saturation rate afterwards."""
    rows: list[Row] = []
    figures: list[Figure] = []
    notes = ["Two cores: the server has one, the load generator and the store share the other."]
    with place(url) as where, contextlib.ExitStack() as stack:
        servers = _contenders(where, stack)
        if FASTAPI not in servers:
            notes.append("FastAPI is not installed: uv sync --group bench.")
        for connections in concurrencies:
            cases = {name: _asking(server, connections, requests) for name, server in servers.items()}
            found = alternate(cases, rounds, tell, f"{connections} connections")
            rows += rows_of(found, baseline=CONSTANT, unit="/s", group="resolve, bound", load=connections)
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
        notes=notes,
        machine=machine(told),
    )


def _contenders(where: Place, stack: contextlib.ExitStack) -> dict[str, str]:
    environ = {"LIMPET_REDIS_URL": where.url, "LIMPET_NAMESPACE": where.namespace, "LIMPET_PORT": "0"}
    module = ("-m", "limpet.bench.http_servers")
    servers = {
        CONSTANT: stack.enter_context(listening(*module, "constant", **environ)),
        STORELESS: stack.enter_context(listening(*module, "storeless", **environ)),
        LIMPET: stack.enter_context(listening(*command("serve"), **environ)),
    }
    if fastapi_is_there():
        servers[FASTAPI] = stack.enter_context(listening(*module, "fastapi", **environ))
    _load(_binding(servers[LIMPET]))
    return servers


def _binding(server: str) -> Load:
    """Every conversation gets its worker."""
    return Load(url=server, path=PATH, headers=HEADERS, body=COMMITTED, numbers=KEYS, count=KEYS, connections=1)


def _load(load: Load) -> Loaded:
    return gather("limpet.bench.http_load", [load], Loaded)[0]


def _sample(loaded: Loaded) -> Sample:
    return Sample(loaded.per_second, loaded.p50_us, loaded.p99_us)


def _asking(server: str, connections: int, requests: int) -> Callable[[], Sample]:
    load = Load(
        url=server,
        path=PATH,
        headers=HEADERS,
        body=BODY,
        numbers=KEYS,
        count=requests,
        connections=connections,
        expects=CONTINUE,
    )
    return lambda: _sample(_load(load))


def _figures(rows: Sequence[Row], concurrencies: Sequence[int]) -> Iterator[Figure]:
    busiest = 64 if 64 in concurrencies else concurrencies[-1]
    found = {row.case: row.ratio or 0.0 for row in rows if row.load == busiest}
    yield figure("HTTP resolve against a constant answer", found[LIMPET], 0.6, 0.8)
    yield figure("the same against the service without a store", found[LIMPET] / found[STORELESS], 0.6, 0.8)
    if FASTAPI in found:
        yield figure("HTTP resolve against FastAPI + redis-py", found[LIMPET] / found[FASTAPI], 4, 8)


def _paced(url: str, namespace: str, wait: str, requests: int, rounds: int, tell: Tell, figures: list[Figure]) -> Iterator[Row]:
    """p99 of continue and of bind at half the rate at which each saturates."""
    environ = {"LIMPET_REDIS_URL": url, "LIMPET_NAMESPACE": namespace, "LIMPET_PORT": "0"}
    with listening(*command("serve"), **environ) as server:

        def asking(body: str, expects: str, numbers: int = 0) -> Load:
            first = 0 if numbers else next(_numbers)
            return Load(
                url=server, path=PATH, headers=HEADERS, body=body, numbers=numbers, first=first, count=requests, expects=expects
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
