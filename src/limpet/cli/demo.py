"""``limpet demo``: finds a store, runs the demo, shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from limpet.cli.demo_view import Live, Silent, show
from limpet.cli.render import console, print_json
from limpet.demo import run as demos
from limpet.demo.plan import Plan, generate
from limpet.demo.replay import read
from limpet.settings import Settings

__all__ = ["demo"]


def demo(*, conversations: int, replay: Path | None, as_json: bool) -> int:
    """Runs it. 1 if a guarantee did not hold."""
    settings = Settings.load()
    plan = _plan(conversations, replay, settings)
    namespace = demos.fresh_namespace()
    if as_json:
        with _store(settings, namespace, plan) as (url, _):
            report = demos.run(plan, url, namespace, Silent())
        print_json(report)
        return 0 if report.ok else 1
    out = console()
    with Live(out) as live:
        live.begin(plan)
        with _store(settings, namespace, plan) as (url, what):
            live.store(what)
            report = demos.run(plan, url, namespace, live)
    show(out, report)
    return 0 if report.ok else 1


def _plan(conversations: int, replay: Path | None, settings: Settings) -> Plan:
    if replay is None:
        return generate(conversations, gateways=demos.GATEWAYS, victims=demos.VICTIMS)
    return read(replay, settings.key_sources, victims=demos.VICTIMS)


@contextmanager
def _store(settings: Settings, namespace: str, plan: Plan) -> Iterator[tuple[str, str]]:
    """The URL of the store to use, and what to call it: an embedded one that ends with us, unless the settings name one."""
    url = settings.secret("redis_url")
    if url is None:
        from limpet.embedded import EmbeddedStore

        with EmbeddedStore.acquire(ephemeral=True) as store:
            yield store.url, f"a throw-away Valkey of its own is up (pid {store.pid})"
        return
    try:
        yield url, f"your store (LIMPET_REDIS_URL) is used, in a namespace that goes afterwards ({namespace})"
    finally:
        asyncio.run(demos.sweep(url, namespace, plan))
