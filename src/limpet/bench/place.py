"""Where a bench works: a throw-away store of its own, or a namespace of its own on somebody's store, tidied up afterwards."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any, NamedTuple

import redis

from limpet.embedded import EmbeddedStore
from limpet.errors import InvalidRequest
from limpet.executors.urls import parse_store_url

__all__ = ["Place", "cpu_us", "place", "sweep", "version"]


class Place(NamedTuple):
    """``redis`` is a blocking redis-py client on the same server. ``ours``: nobody else uses the server."""

    url: str
    namespace: str
    redis: redis.Redis
    ours: bool


@contextlib.contextmanager
def place(url: str | None = None) -> Iterator[Place]:
    """Raises InvalidRequest for a URL of more than one server."""
    namespace = f"bench-{secrets.token_hex(4)}"
    if url is None:
        with EmbeddedStore.acquire(ephemeral=True) as store, redis.Redis.from_url(store.url) as client:
            yield Place(store.url, namespace, client, True)
        return
    if parse_store_url(url).kind != "standalone":
        raise InvalidRequest("A bench measures one server; name it as redis:// or unix://.", field="url")
    with redis.Redis.from_url(url) as client:
        try:
            yield Place(url, namespace, client, False)
        finally:
            sweep(client, namespace)


def sweep(client: redis.Redis, namespace: str) -> int:
    """Takes away what a bench left in a namespace of its own, in small steps; never more. Returns the number of keys."""
    gone, chunk = 0, []
    for name in client.scan_iter(match=f"limpet:{{{namespace}[:}}]*", count=1000):
        chunk.append(name)
        if len(chunk) == 500:
            gone += int(client.unlink(*chunk))
            chunk.clear()
    return gone + (int(client.unlink(*chunk)) if chunk else 0)


def cpu_us(client: redis.Redis) -> float:
    """Microseconds of CPU that the server's main thread has used so far."""
    info: dict[str, Any] = client.info("cpu")
    if "used_cpu_user_main_thread" in info:
        return float(info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"]) * 1e6
    return float(info["used_cpu_user"] + info["used_cpu_sys"]) * 1e6


def version(client: redis.Redis) -> str:
    """Which server."""
    info: dict[str, Any] = client.info("server")
    return f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"
