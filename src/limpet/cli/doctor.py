"""``limpet doctor``: whether the store is fit for the guarantees, and what to do where it is not."""

from __future__ import annotations

import asyncio
from typing import Final

from limpet.cli.render import console, print_json
from limpet.embedded import EmbeddedStore
from limpet.health import Health
from limpet.settings import Settings

__all__ = ["doctor"]

MARKS: Final = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


def doctor(*, as_json: bool) -> int:
    """Asks the store of the settings, or the embedded one, and prints each check. 1 when one failed."""
    settings = Settings.load()
    url = settings.secret("redis_url")
    if url is not None:
        return _report(asyncio.run(_examine(url, settings)), as_json, None)
    with EmbeddedStore.acquire(settings.data_dir) as store:
        note = f"No LIMPET_REDIS_URL is set: this is the embedded store in {store.data_dir}."
        return _report(asyncio.run(_examine(store.url, settings)), as_json, note)


async def _examine(url: str, settings: Settings) -> Health:
    from limpet.coordinator import Limpet

    client = Limpet.connect(
        url,
        namespace=settings.namespace,
        partitions=settings.partitions,
        touch_granularity_ms=settings.touch_granularity_ms,
        durability=settings.durability,
        durable_replicas=settings.durable_replicas,
        deadline_ms=5000,  # a person waits, and a slow store is worth a look
    )
    try:
        return await client.health(thorough=True)
    finally:
        await client.close()


def _report(health: Health, as_json: bool, note: str | None) -> int:
    if as_json:
        print_json(
            {
                "ok": health.ok,
                "checks": [{"name": each.name, "level": each.level, "message": each.message} for each in health.checks],
            }
        )
        return 0 if health.ok else 1
    from rich.table import Table
    from rich.text import Text

    out = console()
    if note is not None:
        out.print(Text(note, style="dim"))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for check in health.checks:
        mark, colour = MARKS[check.level]
        table.add_row(Text(mark, style=f"bold {colour}"), Text(check.name, style="bold"), Text(check.message))
    out.print(table)
    failed = sum(check.level == "fail" for check in health.checks)
    warned = sum(check.level == "warn" for check in health.checks)
    verdict = f"{failed} failed, " if failed else ""
    out.print(Text(f"{verdict}{warned} to look at, {len(health.checks) - failed - warned} well.", style="dim"))
    return 0 if health.ok else 1
