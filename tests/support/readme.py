"""What is generated from the code: the README's tables and the settings that the chart takes.

``uv run python -m tests.support.readme`` writes them anew.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from limpet.settings import Settings
from tests.support.told import metrics_table, settings_table

__all__ = ["OF_THE_CHART", "README", "SCHEMA", "TABLES", "rewritten", "schema"]

README = Path(__file__).resolve().parents[2] / "README.md"
SCHEMA = README.parent / "deploy" / "helm" / "limpet" / "values.schema.json"
OF_THE_CHART = {
    *("REDIS_URL", "TOKENS", "METRICS_TOKEN", "SCOPE_SECRET", "INSECURE", "SHUTDOWN_GRACE_S", "HOST", "PORT"),
    *("UPSTREAMS", "PROFILE"),
    *("DATA_DIR", "URL", "TOKEN"),
}
"""What the chart sets from values of its own, and what means nothing in a pod."""
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


def schema(text: str) -> str:
    """The schema of the chart's values with the settings as they are now."""
    document = json.loads(text)
    names = {each.name.removeprefix("LIMPET_") for each in Settings.model_construct().describe()}
    document["definitions"]["settings"]["propertyNames"]["enum"] = sorted(names - OF_THE_CHART)
    return json.dumps(document, indent=2) + "\n"


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text(encoding="utf-8")), encoding="utf-8")
    SCHEMA.write_text(schema(SCHEMA.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {README} and {SCHEMA}")
