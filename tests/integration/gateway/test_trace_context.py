"""W3C trace context and baggage pass through the gateway unchanged, so that a trace goes on at the worker."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.gateway.conftest import Start

TRACE = [
    ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("tracestate", "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"),
    ("tracestate", "vendor@tenant=opaque%20value"),
    ("baggage", "userId=Am%C3%A9lie;p=1,serverNode=DF%2028"),
]


def traced(request: Any) -> list[tuple[str, str]]:
    """What arrived of it, in order."""
    return [(name, value) for name, value in request.pairs if name in {"traceparent", "tracestate", "baggage"}]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/embeddings"])
async def test_trace_headers_arrive_as_they_were_sent(gateway: Start, upstreams: Any, path: str) -> None:
    """Names, values, number and order, on stamped routes and on those that are passed through; none is made up."""
    (up,) = await upstreams(1)
    gate = await gateway(up)
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "input": "hi"}
    await gate.http.post(path, json=body, headers=[*TRACE, ("X-Limpet-Key", "k")])
    await gate.http.post(path, json=body, headers={"X-Limpet-Key": "k"})
    first, second = up.requests
    assert traced(first) == TRACE
    assert traced(second) == []


async def test_a_trace_outlives_a_retry(gateway: Start, upstreams: Any) -> None:
    """The same headers reach the worker that the turn is sent to once more."""
    first, second = await upstreams(2)
    gate = await gateway(first, second)
    await gate.chat("k")
    served, other = (first, second) if first.requests else (second, first)
    await served.stop()
    answer = await gate.chat("k", headers=dict(TRACE[:1]))
    assert answer.status_code == 200
    assert traced(other.requests[-1]) == TRACE[:1]
