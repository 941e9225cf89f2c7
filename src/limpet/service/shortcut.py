"""The hottest request past ASGI: a turn's resolve, on a connection that asks the like again.

The heads of a kept-alive client's requests are the same to the byte, so what a head means (format, namespace, length) is
worked out once and remembered. Whatever is unusual, wrong or new is left, untouched, to the ordinary way
(:mod:`limpet.service.app`), which alone knows how to refuse; so a request means the same on both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

import httptools

from limpet.bind import Bind
from limpet.errors import LimpetError
from limpet.policy import NONE, Policy
from limpet.results import Resolution
from limpet.service.auth import Guard
from limpet.service.clients import Clients, Entry
from limpet.service.media import Decode, Media, accepted, declared
from limpet.service.messages import ResolveRequest, as_policy
from limpet.service.operations import HOT, SINGLE_BYTES
from limpet.service.quota import Quota
from limpet.validate import check_text

__all__ = ["START", "Plan", "Shortcut"]

START: Final = b"POST /v1/resolve HTTP/1.1\r\n"
"""How such a request begins."""
MAX_HEAD_BYTES: Final = 2048
HEADS: Final = 1024
"""Heads remembered; then all are forgotten. Clients that put something new into every head are not remembered: a head is
looked into only when it comes the second time."""
_PLAIN: Final = frozenset(
    {b"host", b"content-type", b"content-length", b"accept", b"accept-encoding", b"accept-language", b"user-agent", b"connection"}
    | {b"authorization", b"x-limpet-namespace", b"x-request-id", b"traceparent", b"tracestate", b"x-forwarded-for"}
    | {b"x-forwarded-proto", b"x-forwarded-host", b"x-real-ip", b"via", b"origin", b"referer", b"cookie"}
)
"""Headers that change nothing, or what a plan holds. Any other one goes the ordinary way."""

Done = Callable[[Resolution | Awaitable[Resolution]], None]


class Soon(Protocol):
    """What is asked of a client: :meth:`limpet.Limpet.resolve_soon`."""

    def __call__(self, key: str, session_id: str, policy: Policy, exempt: bool, bind: Bind | None, done: Done) -> bool:
        """Whether it was asked."""


class Plan(NamedTuple):
    """What a head means."""

    length: int
    namespace: str
    decode: Decode[ResolveRequest]
    answer: Media


class _Head:
    """The callbacks of the parser."""

    def __init__(self) -> None:
        self.fields: list[tuple[bytes, bytes]] = []
        self.url = b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), value))


class Shortcut:
    """One per process."""

    def __init__(self, guard: Guard, clients: Clients, quota: Quota | None) -> None:
        self._guard = guard
        self._clients = clients
        self._quota = quota
        self._plans: dict[bytes, Plan | None] = {}
        self._once: set[int] = set()

    def plan(self, head: bytes) -> Plan | None:
        """What a head means, or None for one that the ordinary way is to look at."""
        # With tokens it is a hash that is kept, so that no token is.
        name = head if self._guard.open else hashlib.sha256(head).digest()
        try:
            return self._plans[name]
        except KeyError:
            pass
        number = hash(head)
        if number not in self._once:
            if len(self._once) >= HEADS:
                self._once.clear()
            self._once.add(number)
            return None
        if len(self._plans) >= HEADS:
            self._plans.clear()
        made = self._plans[name] = self._look_into(head)
        return made

    def _look_into(self, head: bytes) -> Plan | None:
        found = _Head()
        parser = httptools.HttpRequestParser(found)
        try:
            parser.feed_data(head)
            headers = dict(found.fields)
            length = int(headers[b"content-length"])
            usual = len(headers) == len(found.fields) and headers.keys() <= _PLAIN and parser.should_keep_alive()
            if not usual or found.url != b"/v1/resolve" or not 0 < length <= SINGLE_BYTES or parser.should_upgrade():
                return None
            namespace = self._guard.admit(headers, "resolve")
            media = declared(headers.get(b"content-type"))
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, KeyError, ValueError, LimpetError):
            return None
        return Plan(length, namespace, HOT["/v1/resolve"].decode[media], accepted(headers.get(b"accept"), media))

    def start(
        self,
        plan: Plan,
        body: bytes,
        done: Callable[[bytes, bytes], None],
        later: Callable[[Entry, Awaitable[Resolution], Plan], None],
    ) -> bool:
        """Asks the store. Returns whether it did; if not, nothing has happened.

        ``done`` gets the content type and the body of the answer. ``later`` gets what is to be awaited instead; it has to see to
        it that ``entry.active`` goes down again.

        """
        try:
            request = plan.decode(body)
            key = request.key
            if key is None or request.kind != "turn" or request.parent_key is not None or request.seen_epoch is not None:
                return False
            if request.require_durable:
                return False
            check_text(key, "key")
            session_id = check_text(request.session_id, "session_id")
            policy = NONE if request.policy is None else as_policy(request.policy)
            bind = Bind.parse(request.bind)
            entry = self._clients.enter(plan.namespace)
            soon: Soon | None = getattr(entry.client, "resolve_soon", None)
            if soon is None:
                return False
            if self._quota is not None:
                self._quota.take(plan.namespace)
        except LimpetError:
            return False  # the ordinary way finds the same, and says it

        def resolved(found: Resolution | Awaitable[Resolution]) -> None:
            if isinstance(found, Resolution):
                entry.active -= 1
                done(plan.answer.header, plan.answer.encode(found))
            else:
                later(entry, found, plan)

        entry.active += 1  # so that its client is not closed under us
        if soon(key, session_id, policy, request.exempt, bind, resolved):
            return True
        entry.active -= 1
        if self._quota is not None:
            self._quota.charge(plan.namespace, -1)  # the ordinary way takes it
        return False
