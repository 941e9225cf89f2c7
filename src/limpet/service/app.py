"""The ASGI application: hot routes first, everything else after (design, section 7).

A hot request costs one dict lookup for the route, one for the namespace's client, a typed decode, the library's call
and an encode. It is not logged. The commonest does not come here at all: see :mod:`limpet.service.shortcut`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

from limpet.errors import InvalidRequest, LimpetError, UnknownConversation
from limpet.service import forward_auth, problems
from limpet.service.answers import name_of, query_of
from limpet.service.auth import Guard, Right
from limpet.service.body import Disconnected, read_body
from limpet.service.clients import Clients, Entry
from limpet.service.forward_auth import ForwardAuth
from limpet.service.logs import log_unexpected
from limpet.service.media import JSON, accepted, declared
from limpet.service.messages import Batch
from limpet.service.operations import HOT, Context, Operation
from limpet.service.problems import MethodNotAllowed, NotFound
from limpet.service.quota import Quota
from limpet.service.shortcut import Shortcut
from limpet.validate import check_text

__all__ = ["CONVERSATIONS", "Service", "no_such_route", "send_problem"]

CONVERSATIONS: Final = b"/v1/conversations/"
_TRUE: Final = frozenset({b"1", b"true"})
_FALSE: Final = frozenset({b"", b"0", b"false"})
HeaderMap: TypeAlias = Mapping[bytes, bytes]


class Service:
    """The application.

    Args:
        guard: who may do what.
        clients: the library, by namespace.
        pages: an ASGI application for all other routes and for the lifespan.
        forward_auth: answers proxies that ask.
        more: finds the application of a route that is neither hot nor a page (workers, events ...), or None.
        quota: the guard's, which the other items of a batch are charged to, or None.
        end_readers: ends the streams that would go on for ever; the server calls it when it is about to stop.
    """

    def __init__(
        self,
        guard: Guard,
        clients: Clients,
        pages: ASGIApp,
        forward_auth: ForwardAuth,
        *,
        more: Callable[[Scope], ASGIApp | None] = lambda _: None,
        quota: Quota | None = None,
        end_readers: Callable[[], None] = lambda: None,
    ) -> None:
        self._more = more
        self._quota = quota
        self.shortcut = Shortcut(guard, clients, quota)
        self.end_readers = end_readers
        self._forward_auth = forward_auth
        self._guard = guard
        self._clients = clients
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._pages(scope, receive, send)
            return
        operation = HOT.get(scope["path"])
        try:
            if operation is not None:
                await self._hot(operation, scope, receive, send)
            elif scope["raw_path"].startswith(CONVERSATIONS):
                await self._conversation(scope, receive, send)
            elif scope["path"] == forward_auth.PATH:
                await self._forward_auth(scope, send)
            else:
                await (self._more(scope) or self._pages)(scope, receive, send)
        except LimpetError as error:
            await send_problem(send, error)
        except Disconnected:
            return
        except Exception as error:  # noqa: BLE001  (the last line of defence: logged, and answered with 500)
            log_unexpected(f"{scope['method']} {'hot route' if operation else 'route'}", error)
            await send_problem(send, problems.unexpected())

    def _enter(self, headers: HeaderMap, right: Right) -> Entry:
        return self._clients.enter(self._guard.enter(headers, right))

    async def _hot(self, operation: Operation, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            raise MethodNotAllowed(f"{operation.path} takes POST.", allow="POST")
        headers: dict[bytes, bytes] = dict(scope["headers"])
        entry = self._enter(headers, operation.right)
        media = declared(headers.get(b"content-type"))
        answer = accepted(headers.get(b"accept"), media)
        durable = headers.get(b"x-limpet-require-durable")
        context = Context(
            entry.client,
            media,
            _request_id(headers),
            durable is not None and _flag(durable, "X-Limpet-Require-Durable"),
        )
        entry.active += 1  # so that its client is not closed under us
        try:
            request = operation.decode[media](await read_body(receive, headers, operation.limit))
            if self._quota is not None and type(request) is Batch:
                self._quota.charge(entry.namespace, len(request.requests) - 1)
            result = await operation.run(context, request)
        finally:
            entry.active -= 1
        body = answer.encode(result)
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", answer.header), (b"content-length", b"%d" % len(body))],
            }
        )
        await send({"type": "http.response.body", "body": body})

    async def _conversation(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``GET`` looks and touches nothing; ``DELETE`` forgets (``?expected_epoch=``)."""
        method = scope["method"]
        if method not in ("GET", "HEAD", "DELETE"):
            raise MethodNotAllowed("A conversation takes GET and DELETE.", allow="GET, HEAD, DELETE")
        headers: dict[bytes, bytes] = dict(scope["headers"])
        entry = self._enter(headers, "admin" if method == "DELETE" else "resolve")
        key = name_of(scope["raw_path"][len(CONVERSATIONS) :], "key")
        query = query_of(scope, *(("expected_epoch",) if method == "DELETE" else ()))
        if await read_body(receive, headers, 64 * 1024):
            raise InvalidRequest(f"{method} takes no body; put what it needs into the query.")
        entry.active += 1
        try:
            if method == "DELETE":
                result: Any = await entry.client.forget(
                    key, expected_epoch=_integer(query, "expected_epoch"), request_id=_request_id(headers)
                )
            else:
                result = await entry.client.peek(key)
        finally:
            entry.active -= 1
        if result is None:
            raise UnknownConversation("There is no record of that key: never seen, forgotten, or past its retention.")
        media = accepted(headers.get(b"accept"), JSON)
        await _send(send, 200, media.header, media.encode(result))


def _request_id(headers: HeaderMap) -> str | None:
    raw = headers.get(b"idempotency-key")
    if raw is None:
        return None
    try:
        return check_text(raw.decode(), "Idempotency-Key")
    except UnicodeDecodeError:
        raise InvalidRequest("Idempotency-Key is not valid UTF-8.", field="Idempotency-Key") from None


def _flag(raw: bytes, name: str) -> bool:
    value = raw.strip().lower()
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise InvalidRequest(f"{name} must be 1 or 0.", field=name)


def _integer(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 16):
        raise InvalidRequest(f"{name} must be an integer from 1 to {2**53 - 1}.", field=name)
    return int(text)


async def _send(send: Send, status: int, content_type: bytes, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    fields = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def send_problem(send: Send, error: LimpetError) -> None:
    """Answer with the problem document of an error."""
    await _send(
        send,
        error.status,
        problems.CONTENT_TYPE,
        problems.encode(problems.problem_of(error)),
        problems.headers_of(error),
    )


def no_such_route(path: str) -> NotFound:
    """404, as a problem."""
    return NotFound(f"There is no route {path[:80]}; see /docs.")
