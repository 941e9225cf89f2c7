"""``limpet bench gateway``: what the gateway adds to a request, over passing it through, in round trips to the store."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable
from typing import Any, Final

import msgspec

from limpet.bench.alternate import alternate
from limpet.bench.gateway_trip import PATH
from limpet.bench.http_load import Load, Loaded
from limpet.bench.model import SILENT, Report, Row, Sample, Tell, figure, machine, rows_of
from limpet.bench.place import Place, place, version
from limpet.bench.processes import command, gather, listening

__all__ = ["run"]

CONVERSATIONS: Final = 200
CONNECTIONS: Final = (1, 32)
DIRECT, PASSED, TURN, MEMO = "direct", "pass-through", "turn", "turn, memo on"
TRIP: Final = "pass-through after a GET"
"""The unit: :mod:`limpet.bench.gateway_trip`."""
BODY: Final = msgspec.json.encode(
    {"model": "mock", "messages": [{"role": "user", "content": "a question of some length, " * 40}], "temperature": 0.2}
).decode()
HEADERS: Final = {"content-type": "application/json"}
KEYED: Final = HEADERS | {"x-limpet-key": "conversation %d"}


def run(
    *,
    url: str | None = None,
    requests: int = 4000,
    connections: tuple[int, ...] = CONNECTIONS,
    rounds: int = 3,
    tell: Tell = SILENT,
) -> Report:
    """``requests``: per way, round and number of connections."""
    rows: list[Row] = []
    added: list[float] = []
    with place(url) as where, contextlib.ExitStack() as stack:
        upstream = stack.enter_context(listening("-m", "limpet.bench.upstream"))
        plain, memo = (stack.enter_context(_gateway(where, upstream, memo_ms)) for memo_ms in (0, 1000))
        asking = stack.enter_context(_gateway(where, upstream, 0, "-m", "limpet.bench.gateway_trip"))
        ways: dict[str, tuple[str, str, dict[str, str]]] = {
            DIRECT: (upstream, "/v1/chat/completions", HEADERS),
            PASSED: (plain, PATH, HEADERS),
            TRIP: (asking, PATH, HEADERS),
            TURN: (plain, "/v1/chat/completions", KEYED),
            MEMO: (memo, "/v1/chat/completions", KEYED),
        }
        for server in (plain, memo):  # every conversation gets its binding
            _load((server, "/v1/chat/completions", KEYED), 1, 2 * CONVERSATIONS)
        for many in connections:
            cases = {name: _way(way, many, requests) for name, way in ways.items()}
            found = alternate(cases, rounds, tell, f"{many} connections")
            more = {name: _over(found[name], found[PASSED]) for name in (TRIP, TURN, MEMO)}
            rows += rows_of(found, baseline=PASSED, unit="/s", load=many, more=more)
            if many == 1:
                added = [more[name]["p50 added us"] / max(more[TRIP]["p50 added us"], 1e-3) for name in (TURN, MEMO)]
        figures = [
            figure(f"gateway: p50 added over a pass-through, in store round trips ({name})", value, 1.5, 1.1, "low")
            for name, value in zip(("memo off", "memo on"), added, strict=False)
        ]
        return Report(
            bench="gateway",
            title="Requests a second through the gateway; ratio to passing through; what a turn adds to it",
            rows=rows,
            figures=figures,
            notes=[
                "A store round trip: what a GET by redis-py adds to passing through, in the same stack and with one connection."
            ],
            machine=machine(version(where.redis)),
            axes={"": "connections at once"},
        )


def _gateway(where: Place, upstream: str, memo_ms: int, *program: str) -> contextlib.AbstractContextManager[str]:
    return listening(
        *(program or command("gateway")),
        LIMPET_REDIS_URL=where.url,
        LIMPET_NAMESPACE=where.namespace,
        LIMPET_PORT="0",
        LIMPET_UPSTREAMS=upstream,
        LIMPET_PROFILE="openai-chat",
        LIMPET_MEMO_TTL_MS=str(memo_ms),
    )


def _load(way: tuple[str, str, dict[str, str]], connections: int, count: int) -> Loaded:
    server, path, headers = way
    load = Load(
        url=str(server), path=path, headers=headers, body=BODY, numbers=CONVERSATIONS, count=count, connections=connections
    )
    return gather("limpet.bench.http_load", [load], Loaded)[0]


def _way(way: tuple[str, str, dict[str, str]], connections: int, count: int) -> Callable[[], Sample]:
    def once() -> Sample:
        loaded = _load(way, connections, count)
        return Sample(loaded.per_second, loaded.p50_us, loaded.p99_us)

    return once


def _over(turns: list[Sample], passed: list[Sample]) -> dict[str, Any]:
    """How many microseconds more."""
    pairs = list(zip(turns, passed, strict=True))
    return {
        "p50 added us": round(statistics.median((turn.p50_us or 0) - (other.p50_us or 0) for turn, other in pairs), 1),
        "p99 added us": round(statistics.median((turn.p99_us or 0) - (other.p99_us or 0) for turn, other in pairs), 1),
    }
