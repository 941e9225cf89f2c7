"""The README's generated tables: ``uv run python -m tests.support.readme`` writes them anew."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.told import metrics_table, settings_table

__all__ = ["README", "TABLES", "rewritten"]

README = Path(__file__).resolve().parents[2] / "README.md"
TABLES = {"settings": settings_table, "metrics": metrics_table}


def rewritten(text: str) -> str:
    """The README with its tables as they should be. Raises ValueError when a marker is missing."""
    for name, table in TABLES.items():
        pattern = re.compile(rf"(<!-- generated: {name} -->\n\n).*?(\n\n<!-- end: {name} -->)", re.S)
        if len(pattern.findall(text)) != 1:
            raise ValueError(f"README.md needs one '<!-- generated: {name} -->' and one '<!-- end: {name} -->'")
        body = table()
        text = pattern.sub(lambda found, body=body: found[1] + body + found[2], text)
    return text


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {README}")
