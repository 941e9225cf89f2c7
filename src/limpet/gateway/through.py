"""Everything that needs no stamp: passed on as it comes, both ways, without being held in memory."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Final

import aiohttp

from limpet.gateway.client_side import ClientSide
from limpet.gateway.dispatch import Dispatcher, Stale, read_some
from limpet.gateway.fleet import Fleet
from limpet.gateway.heads import answer_headers
from limpet.gateway.problems import BadGateway, NoUpstream, UpstreamTimeout
from limpet.gateway.upstreams import Upstream
from limpet.gateway.vitals import Vitals

__all__ = ["pass_through", "relay_bytes"]

_TURN: Final = itertools.count()


async def pass_through(
    dispatcher: Dispatcher,
    fleet: Fleet,
    vitals: Vitals,
    client: ClientSide,
    *,
    method: str,
    target: str,
    headers: list[tuple[str, str]],
    key: str | None,
    length: str | None,
    has_body: bool,
) -> None:
    """One request, to the upstream of its key if it has one, else to each in turn. A dead upstream is passed over.

    Raises NoUpstream, AllDrained, BadGateway, UpstreamTimeout before anything was sent, Disconnected.
    """
    if length is not None:
        headers = [*headers, ("content-length", length)]
    async with client.watching():
        text = key if key is not None else str(next(_TURN))
        answer = await _first(dispatcher, fleet, vitals, client, method, target, headers, text, has_body)
        try:
            await relay_bytes(client, answer, answer_headers(answer.raw_headers, status=answer.status))
        except BaseException:
            answer.close()
            raise
        answer.release()


async def _first(
    dispatcher: Dispatcher,
    fleet: Fleet,
    vitals: Vitals,
    client: ClientSide,
    method: str,
    target: str,
    headers: list[tuple[str, str]],
    text: str,
    has_body: bool,
) -> aiohttp.ClientResponse:
    tried: list[Upstream] = []
    again = not has_body
    while True:
        upstream = fleet.require(text, tried)
        body: AsyncIterator[bytes] | None = client.body() if has_body else None
        try:
            answer = await dispatcher.send(upstream, method, target, headers, body)
        except NoUpstream:
            vitals.unreachable(upstream.name)
            tried.append(upstream)
        except Stale:
            if not again:
                raise
            again = False
        except UpstreamTimeout:
            vitals.failed(upstream.name, "timeout")
            raise
        except BadGateway:
            vitals.failed(upstream.name, "reset")
            raise
        else:
            vitals.worked(upstream.name)
            return answer


async def relay_bytes(client: ClientSide, answer: aiohttp.ClientResponse, headers: list[tuple[bytes, bytes]]) -> None:
    """The answer, bit for bit, as it comes."""
    data = await read_some(answer)
    await client.start(answer.status, headers)
    while data:
        await client.write(data)
        data = await read_some(answer)
    await client.finish()
