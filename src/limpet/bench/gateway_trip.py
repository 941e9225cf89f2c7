"""``python -m limpet.bench.gateway_trip``: a gateway that asks the store for a key, by redis-py, before it passes a turn on.

What it adds to passing through is what one round trip to the store costs in this stack, so the unit for what a turn adds. A round
trip of a process that has nothing else to do takes half of it: there nothing has grown cold, and nobody else wants the core.
"""

from __future__ import annotations

import sys
from typing import Final

import redis.asyncio
from starlette.types import Receive, Scope, Send

from limpet.gateway.app import Gateway
from limpet.gateway.build import Parts, build
from limpet.gateway.run import GATEWAY
from limpet.service.server import run
from limpet.settings import Settings

__all__ = ["PATH", "main"]

PATH: Final = "/v1/passed/through"
KEY: Final = "limpet bench gateway"
"""A key that nobody has written: the reply is as short as one can be."""


class _Asking:
    """The gateway behind a GET."""

    def __init__(self, gateway: Gateway, url: str) -> None:
        self._gateway = gateway
        self._redis = redis.asyncio.Redis.from_url(url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["path"] == PATH:
            await self._redis.get(KEY)
        await self._gateway(scope, receive, send)


def _build(settings: Settings) -> Parts:
    parts = build(settings)
    assert settings.redis_url is not None
    return parts._replace(app=_Asking(parts.app, settings.redis_url.get_secret_value()))  # type: ignore[arg-type]


def main() -> int:
    """Serves until it is terminated; everything is set by the environment."""
    return run(Settings.load(), GATEWAY._replace(make=_build))


if __name__ == "__main__":
    sys.exit(main())
