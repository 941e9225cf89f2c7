"""Reads what a script says about itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "lua"
_LABEL = re.compile(r"^(?P<label>(?:KEYS|ARGV)\[[^\]]+\]|Returns|Errors|Flags|Complexity) -> (?P<text>.+)$")
_INDEX = re.compile(r"(?P<kind>KEYS|ARGV)\[(?P<first>\d+)(?:\.\.(?P<last>\d+))?\]")


@dataclass(frozen=True)
class Header:
    """The comment that opens a script. ``keys`` and ``argv``: by the highest index each entry covers."""

    title: str
    keys: dict[int, str]
    argv: dict[int, str]
    returns: tuple[str, ...]
    errors: frozenset[str]
    flags: frozenset[str]
    complexity: str


def own_text(name: str) -> str:
    """The script's own file, its includes left as they are."""
    return (FOLDER / f"{name}.lua").read_text(encoding="utf-8")


def body_of(text: str) -> str:
    """The code: everything that is no comment."""
    return "\n".join(line.split(" -- ")[0] for line in text.splitlines() if not line.lstrip().startswith("--"))


def read_header(name: str) -> Header:
    """Raises AssertionError where a line is neither a label nor the continuation of one."""
    lines = []
    for line in own_text(name).splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--"))
    entries: list[tuple[str, str]] = []
    title: list[str] = []
    for line in lines:
        found = _LABEL.match(line.strip())
        if found:
            entries.append((found["label"], found["text"]))
        elif entries and line.startswith("   "):
            label, text = entries[-1]
            entries[-1] = (label, f"{text} {line.strip()}")
        elif not entries:
            title.append(line.strip())
        else:
            assert line.strip() in ("", "--"), f"{name}: a stray header line: {line!r}"
    keys: dict[int, str] = {}
    argv: dict[int, str] = {}
    for label, text in entries:
        index = _INDEX.fullmatch(label)
        if index:
            (keys if index["kind"] == "KEYS" else argv)[int(index["last"] or index["first"])] = text
    only = {label: text for label, text in entries if not _INDEX.fullmatch(label)}
    return Header(
        title=" ".join(title).strip(),
        keys=keys,
        argv=argv,
        returns=tuple(text for label, text in entries if label == "Returns"),
        errors=frozenset(_words(only.get("Errors", ""))),
        flags=frozenset(_words(only.get("Flags", ""))),
        complexity=only.get("Complexity", ""),
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
