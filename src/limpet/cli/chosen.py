"""The store that the settings mean, for the commands that look at it themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from limpet.settings import Settings

__all__ = ["chosen_store", "client_settings"]


@contextmanager
def chosen_store(settings: Settings) -> Iterator[tuple[str, str | None]]:
    """(the URL, a note where it is the embedded store, which runs meanwhile)."""
    url = settings.secret("redis_url")
    if url is not None:
        yield url, None
        return
    from limpet.embedded import EmbeddedStore

    with EmbeddedStore.acquire(settings.data_dir) as store:
        yield store.url, f"No LIMPET_REDIS_URL is set: this is the embedded store in {store.data_dir}."


def client_settings(settings: Settings, namespace: str | None = None) -> dict[str, Any]:
    """What a client of such a command is made with. A person waits, and a slow store is worth a look: 5 seconds."""
    return {
        "namespace": namespace or settings.namespace,
        "partitions": settings.partitions,
        "touch_granularity_ms": settings.touch_granularity_ms,
        "durability": settings.durability,
        "durable_replicas": settings.durable_replicas,
        "deadline_ms": 5000,
    }
