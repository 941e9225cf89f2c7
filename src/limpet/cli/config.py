"""``limpet config``: the settings as they are, and where each comes from."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from typing import Final

from limpet.cli.render import console, print_json
from limpet.settings import Setting, Settings

__all__ = ["config"]

WIDE: Final = 120
"""From this many columns on, there is room for the descriptions."""


def config(*, as_json: bool) -> int:
    """Prints them. A LIMPET_* variable that is no setting is pointed out on stderr."""
    settings = Settings.load()
    rows = settings.describe()
    if as_json:
        print_json({row.name: {"value": row.value, "default": row.default, "from": row.origin, "help": row.help} for row in rows})
    else:
        _table(rows)
    names = [row.name for row in rows]
    for unknown in settings.unknown_variables():
        close = difflib.get_close_matches(unknown, names, 1)
        hint = f"; did you mean {close[0]}?" if close else "; it is ignored."
        sys.stderr.write(f"limpet: {unknown} is no setting{hint}\n")
    return 0


def _table(rows: Sequence[Setting]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    out = console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("setting", no_wrap=True)
    table.add_column("value", overflow="fold", ratio=2)
    table.add_column("from", overflow="fold")
    wide = out.width >= WIDE
    if wide:
        table.add_column("what it is", style="dim", ratio=3)
    for row in rows:
        chosen = row.origin != "default"
        value = row.value.replace(",", ", ") or "-"
        # The variable's name is in the first column already.
        origin = row.origin.removesuffix(f" {row.name}")
        cells = [
            Text(row.name, "bold" if chosen else ""),
            Text(value, "cyan" if chosen else ""),
            Text(origin, "" if chosen else "dim"),
        ]
        table.add_row(*cells, *([Text(row.help)] if wide else []))
    out.print(table)
