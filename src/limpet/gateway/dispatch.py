"""Sends a request to an upstream and sorts what can go wrong by what it means for the binding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
from aiohttp.tracing import Trace
from multidict import CIMultiDict
from yarl import URL

from limpet.gateway.heads import is_sendable
from limpet.gateway.options import Options
from limpet.gateway.problems import BadGateway, NoUpstream, UpstreamTimeout
from limpet.gateway.upstreams import Upstream

__all__ = ["Dispatcher", "Stale", "read_some"]

CONNECTIONS: Final = 1024
PER_UPSTREAM: Final = 512
KEEP_ALIVE_S: Final = 60
READ_BUFFER: Final = 64 * 1024
MAX_LINE: Final = 64 * 1024
_NO_AUTO: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class Stale(BadGateway):
    """A connection that had been kept alive was closed when we wrote to it: nothing is wrong with the upstream."""


class _Connector(aiohttp.TCPConnector):
    """Never gives out a connection on which something came that nobody asked for: the next request would take it for its answer,
    and that may be another caller's."""

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        """A connection, fresh or reused."""
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol is None or not protocol.should_close:
                return connection
            connection.close()


class _Answer(aiohttp.ClientResponse):
    """A 204 that announces a body ends its connection: that body may still come."""

    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Read the head."""
        protocol = connection.protocol
        await super().start(connection)
        if self.status == 204 and self.headers.get("Content-Length", "0") != "0" and protocol is not None:
            protocol.close()
        return self


class Dispatcher:
    """The client side of the gateway: keep-alive, bounded pools, no redirects, no decompression, no cookies."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            trace: aiohttp.TraceConfig = aiohttp.TraceConfig()
            trace.on_connection_reuseconn.append(_reused)
            self._session = aiohttp.ClientSession(
                connector=_Connector(
                    limit=CONNECTIONS, limit_per_host=PER_UPSTREAM, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=30
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                response_class=_Answer,
                auto_decompress=False,
                skip_auto_headers=_NO_AUTO,
                trust_env=False,
                read_bufsize=READ_BUFFER,
                max_line_size=MAX_LINE,
                max_field_size=MAX_LINE,
                trace_configs=[trace],
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=self._options.connect_timeout_s, sock_read=self._options.read_timeout_s
                ),
            )
        return self._session

    async def close(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def send(
        self,
        upstream: Upstream,
        method: str,
        target: str,
        headers: list[tuple[str, str]],
        body: bytes | AsyncIterable[bytes] | None,
    ) -> aiohttp.ClientResponse:
        """The upstream's answer, its head only.

        Raises:
            NoUpstream: nothing was sent.
            Stale: a kept-alive connection was closed under the request.
            BadGateway: reset, no HTTP, a status that ends no request, or a header that cannot be sent on.
            UpstreamTimeout: silence.
        """
        answer = await self._ask(upstream, method, upstream.url(target), headers, body)
        if not is_sendable(answer.raw_headers):
            answer.close()
            raise BadGateway("The upstream's answer has a header with a control character, which is not passed on.")
        return answer

    async def check(self, upstream: Upstream, path: str) -> int:
        """The status of a GET of ``path`` at the server's root; the body is left unread. Raises as :meth:`send`."""
        answer = await self._ask(upstream, "GET", upstream.base + path, [("accept", "*/*")], None)
        answer.release()
        return answer.status

    async def _ask(
        self,
        upstream: Upstream,
        method: str,
        url: str,
        headers: list[tuple[str, str]],
        body: bytes | AsyncIterable[bytes] | None,
    ) -> aiohttp.ClientResponse:
        fields: CIMultiDict[str] = CIMultiDict(headers)
        if upstream.authorization is not None and "Authorization" not in fields:
            fields["Authorization"] = upstream.authorization
        seen = SimpleNamespace(reused=False)
        try:
            answer = await self._open().request(
                method,
                URL(url, encoded=True),
                headers=fields,
                data=body,
                allow_redirects=False,
                trace_request_ctx=seen,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NoUpstream("The upstream cannot be reached.") from error
        except (TimeoutError, aiohttp.ServerTimeoutError) as error:
            raise UpstreamTimeout("The upstream did not answer in time.") from error
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError) as error:
            kind = Stale if seen.reused else BadGateway
            raise kind("The upstream closed the connection without an answer.") from error
        except aiohttp.ClientError as error:
            raise BadGateway("The upstream's answer is not valid HTTP.") from error
        if not 200 <= answer.status <= 599:
            # 101: nobody asked for another protocol. Beyond 599 nothing is defined, and our server cannot say it.
            answer.close()
            raise BadGateway(f"The upstream answered with status {answer.status}, which is no end of a request.")
        return answer


async def read_some(response: aiohttp.ClientResponse) -> bytes:
    """The next bytes of a body, as they come; empty at its end.

    Raises BadGateway when it ends too early, UpstreamTimeout when nothing comes.
    """
    try:
        return await response.content.readany()
    except (TimeoutError, aiohttp.ServerTimeoutError) as error:
        raise UpstreamTimeout("The upstream fell silent in the middle of its answer.") from error
    except (aiohttp.ClientError, ConnectionError) as error:
        raise BadGateway("The upstream went away in the middle of its answer.") from error
    except asyncio.IncompleteReadError as error:
        raise BadGateway("The upstream's answer ended too early.") from error


async def _reused(_: aiohttp.ClientSession, context: Any, __: aiohttp.TraceConnectionReuseconnParams) -> None:
    context.trace_request_ctx.reused = True
