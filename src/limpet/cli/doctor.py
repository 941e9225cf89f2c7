"""``limpet doctor``: whether the store is fit for the guarantees, and what to do where it is not."""

from __future__ import annotations

import asyncio
from typing import Final

from limpet.cli.chosen import chosen_store, client_settings
from limpet.cli.render import console, print_json
from limpet.health import Health
from limpet.settings import Settings

__all__ = ["doctor"]

MARKS: Final = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}


def doctor(*, as_json: bool) -> int:
    """Asks the store of the settings, or the embedded one, and prints each check. 1 when one failed."""
    settings = Settings.load()
    with chosen_store(settings) as (url, note):
        health = asyncio.run(_examine(url, settings))
    if as_json:
        checks = [{"name": each.name, "level": each.level, "message": each.message} for each in health.checks]
        print_json({"ok": health.ok, "embedded": note is not None, "checks": checks})
    else:
        _table(health, note)
    return 0 if health.ok else 1


async def _examine(url: str, settings: Settings) -> Health:
    from limpet.coordinator import Limpet

    client = Limpet.connect(url, **client_settings(settings))
    try:
        return await client.health(thorough=True)
    finally:
        await client.close()


def _table(health: Health, note: str | None) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    if note is not None:
        out.print(Text(note, style="dim"))
        out.print()
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for check in health.checks:
        word, colour = MARKS[check.level]
        table.add_row(Text(word, style=f"bold {colour}"), Text(check.name, style="bold"), Text(check.message))
    out.print(table)
    counts = {level: sum(check.level == level for check in health.checks) for level in MARKS}
    parts = [f"{counts['fail']} failed"] if counts["fail"] else []
    parts += [f"{counts['warn']} to look at"] if counts["warn"] else []
    parts.append(f"{counts['ok']} ok" if parts else "All is well")
    out.print()
    out.print(Text(f"{', '.join(parts)}.", style="dim"))
