"""``limpet config``: the settings as they are, and where each comes from."""

from __future__ import annotations

import difflib
import hashlib
import json
import secrets
import sys
from collections.abc import Sequence
from typing import Final

from pydantic import ValidationError

from limpet.cli.render import console, print_json
from limpet.settings import Setting, Settings, SettingsInvalid, Token
from limpet.settings_text import explain

__all__ = ["config", "new_token"]

WIDE: Final = 120
"""From this many columns on, there is room for the descriptions."""


def config(*, as_json: bool) -> int:
    """Prints them. A LIMPET_* variable that is no setting is pointed out on stderr, with the setting that was meant."""
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


def new_token(*, namespace: str | None, rights: Sequence[str], as_json: bool) -> int:
    """Makes a token, shows it once, and the entry of LIMPET_TOKENS that goes with it, which holds only its hash."""
    plain = f"lim_{secrets.token_urlsafe(32)}"
    chosen = namespace or Settings.load().namespace
    wanted = list(dict.fromkeys(rights)) or ["resolve"]
    digest = hashlib.sha256(plain.encode()).hexdigest()
    try:
        token = Token.model_validate({"sha256": digest, "namespace": chosen, "rights": wanted})
    except ValidationError as error:
        raise SettingsInvalid(explain(error)) from None
    entry = {"sha256": token.sha256, "namespace": token.namespace, "rights": wanted}
    if as_json:
        print_json({"token": plain, "entry": entry})
        return 0
    sys.stdout.write(
        f"token (shown this once; give it to the caller, as LIMPET_TOKEN or Authorization: Bearer):\n  {plain}\n\n"
        f"LIMPET_TOKENS (its hash; add it to the list, and take the old entry out when all callers have the new one):\n"
        f"  [{json.dumps(entry)}]\n"
    )
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
