"""``ANY /v1/forward-auth``: for proxies that ask somebody before they pass a request on (design, section 7).

nginx ``auth_request``, Traefik and Caddy forward-auth, Envoy ext_authz, HAProxy. The answer is 200 with where the turn belongs in
its headers. A caller that cannot come back cannot confirm, so a binding is committed at once. A proxy that finds the worker dead
asks again with ``X-Limpet-Lost: <fence>`` (the ``X-Limpet-Fence`` it was given): the conversation moves, by compare-and-set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope, Send

from limpet.bind import Bind
from limpet.errors import InvalidRequest, StaleFence, StoreUnavailable
from limpet.gateway.control import Control, enter
from limpet.gateway.identity import Sources, header_text
from limpet.gateway.upstreams import Upstreams, parse_upstream
from limpet.results import Binding, Resolution
from limpet.service.auth import Guard
from limpet.service.clients import Client, Clients
from limpet.settings import Settings
from limpet.wire.headers import is_safe

__all__ = ["PATH", "ForwardAuth"]

PATH: Final = "/v1/forward-auth"
_LOST: Final = "X-Limpet-Lost"


class ForwardAuth:
    """Answers the question. Workers come from ``LIMPET_POOL`` (the registry) or are the ``LIMPET_UPSTREAMS``; with neither,
    nothing is bound and only the scope is told.

    Raises InvalidRequest for an upstream that is not valid.
    """

    def __init__(self, settings: Settings, guard: Guard, clients: Clients) -> None:
        self._guard = guard
        self._clients = clients
        self._sources = Sources(settings.key_sources)
        self._pool = settings.pool
        # Nothing is ever marked as down here: whoever talks to a worker knows better than whoever is asked about it.
        self._static = Upstreams(parse_upstream(text) for text in settings.upstreams)

    async def __call__(self, scope: Scope, send: Send) -> None:
        """One question: only its headers count.

        Raises LimpetError, which the service answers with a problem document.
        """
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        headers = dict(pairs)
        named = enter(self._guard, headers) if b"x-limpet-token" in headers else self._guard.enter(headers, "resolve")
        entry = self._clients.enter(named)
        entry.active += 1  # so that its client is not closed under us
        try:
            told = await self._answer(entry.client, pairs)
        finally:
            entry.active -= 1
        out = [(b"content-length", b"0"), *((name.encode(), value.encode()) for name, value in told.items() if is_safe(value))]
        await send({"type": "http.response.start", "status": 200, "headers": out})
        await send({"type": "http.response.body", "body": b""})

    async def _answer(self, client: Client, pairs: list[tuple[bytes, bytes]]) -> Mapping[str, str]:
        control = Control.read(pairs)
        found = self._sources.find(pairs, None)
        key = found.key if found is not None else None
        session_id = control.session_id or key
        if session_id is None:
            return {}
        if control.new:
            if key is None:
                raise InvalidRequest("X-Limpet-New needs a conversation key.", field="X-Limpet-New")
            await client.advance(key, "new", request_id=control.retry_id)
        bind = self._bind(key or session_id)
        resolution = await client.resolve(key, session_id=session_id, kind=control.kind, parent_key=control.parent_key, bind=bind)
        binding = resolution.binding
        if bind is not None and binding is not None:
            binding = await self._elsewhere(client, resolution, session_id, binding, _fence(pairs))
        return self._told(resolution, binding)

    def _bind(self, text: str) -> Bind | None:
        if self._pool is not None:
            return Bind(pool=self._pool, commit=True)
        chosen = self._static.choose(text)
        return Bind(worker=chosen.name, commit=True) if chosen is not None else None

    async def _elsewhere(
        self, client: Client, resolution: Resolution, session_id: str, binding: Binding, lost: int | None
    ) -> Binding:
        """The binding, moved if it is to a worker that was found dead, or that is none of ours any more."""
        fence, old = binding.fence, self._static.get(binding.worker)
        gone = self._pool is None and old is None
        if fence is None or not (gone or lost == fence):
            return binding
        others = self._static.choose(resolution.key or session_id, (old,) if old is not None else ())
        if self._pool is None and others is None:
            return binding
        name = (resolution.key, None) if resolution.source == "declared" else (None, session_id)
        worker = others.name if self._pool is None and others is not None else None
        try:
            moved = await client.rebind(name[0], session_id=name[1], fence=fence, reason="lost_worker", worker=worker)
            if worker is None:  # the registry proposes: give the claim back and bind anew
                await client.abort(name[0], session_id=name[1], fence=moved.fence or 0)
                again = await client.resolve(
                    name[0],
                    session_id=session_id,
                    bind=Bind(pool=self._pool, commit=True, exclude=(binding.worker,) if binding.worker else ()),
                )
                return again.binding or binding
            return await client.confirm(name[0], session_id=name[1], fence=moved.fence or 0)
        except StaleFence as stale:
            return stale.binding or binding
        except StoreUnavailable:
            return binding

    def _told(self, resolution: Resolution, binding: Binding | None) -> Mapping[str, str]:
        told = {"x-limpet-scope": resolution.scope}
        if resolution.epoch is not None:
            told["x-limpet-epoch"] = str(resolution.epoch)
        if binding is not None:
            if binding.fence is not None:
                told["x-limpet-fence"] = str(binding.fence)
            if binding.worker is not None:
                told["x-limpet-worker"] = binding.worker
                address = binding.address or self._address(binding.worker)
                if address is not None:
                    told["x-limpet-address"] = address
        return told

    def _address(self, worker: str) -> str | None:
        """``host:port`` of a worker that is one of the upstreams."""
        known = self._static.get(worker)
        if known is None:
            return None
        parts = urlsplit(known.base)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"{parts.netloc.rsplit(':', 1)[0] if parts.port else parts.netloc}:{port}"


def _fence(pairs: list[tuple[bytes, bytes]]) -> int | None:
    text = header_text(pairs, _LOST.lower().encode(), _LOST)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        raise InvalidRequest(f"{_LOST} must be the X-Limpet-Fence of the lost binding.", field=_LOST)
    return int(text)
