"""Makes a copy of the package that knows a schema 2: its ring comes first, so that schema 1's reader cannot make sense of it."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["plant"]

ROOT = Path(__file__).resolve().parents[3]


def plant(folder: Path) -> Path:
    """The folder to put on PYTHONPATH."""
    package = folder / "limpet"
    shutil.copytree(ROOT / "src" / "limpet", package, ignore=shutil.ignore_patterns("__pycache__", "lua", "static"))
    shutil.copytree(ROOT / "lua", package / "lua")
    _change(package / "schema.py", ("NEWEST: Final = 1\n", "NEWEST: Final = 2\n"))
    _change(
        package / "record.py",
        (
            "self.body = _body.decode(raw[_PREFIX.size + size :])",
            "body = msgspec.msgpack.decode(raw[_PREFIX.size + size :])\n"
            "            body = body[1:] + body[:1] if schema == 2 else body\n"
            "            self.body = _body.decode(msgspec.msgpack.encode(body))",
        ),
    )
    library = package / "lua" / "lib"
    _change(
        library / "record_unpack.lua",
        ("schema > 1", "schema > 2"),
        (
            "  if mark % 8 > 2 or not read or",
            "  if read and schema == 2 then\n    table.insert(body, table.remove(body, 1))\n  end\n"
            "  if mark % 8 > 2 or not read or",
        ),
    )
    later = library / "record_write_2.lua"
    shutil.copy(library / "record_write.lua", later)
    _change(
        later,
        ("I2', 1, mark", "I2', 2, mark"),
        ("cmsgpack.pack({\n", "cmsgpack.pack({ record.ring,\n"),
        ("record.suspend, record.ring,", "record.suspend,"),
    )
    _change(package / "lua" / "conversation_resolve.lua", ("schema == 1 and", "schema <= 2 and"))
    return folder


def _change(path: Path, *pairs: tuple[str, str]) -> None:
    text = path.read_text()
    for before, after in pairs:
        assert text.count(before) == 1, (path, before)
        text = text.replace(before, after)
    path.write_text(text)
