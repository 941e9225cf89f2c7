"""The loader: assembles, hashes, and gives each server the variant that it understands (the scripts themselves: tests/lua)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from limpet.scripts import NAMES, Script, assemble, script


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lib").mkdir()
    return tmp_path


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        where = folder / (f"lib/{name[4:]}.lua" if name.startswith("lib_") else f"{name}.lua")
        where.write_text(text, encoding="utf-8")


def test_an_include_takes_its_place(folder: Path) -> None:
    """The line is replaced by the file, without its last line break."""
    write(folder, main="-- head\n-- @include one\nreturn one()\n", lib_one="local function one()\nend\n")
    assert assemble("main", folder) == "-- head\nlocal function one()\nend\nreturn one()\n"


def test_an_include_of_an_include_comes_once(folder: Path) -> None:
    """Where it is first asked for."""
    write(
        folder,
        main="-- @include a\n-- @include b\nreturn 1\n",
        lib_a="-- @include c\nlocal a\n",
        lib_b="-- @include c\nlocal b\n",
        lib_c="local c\n",
    )
    assert assemble("main", folder) == "local c\nlocal a\n\nlocal b\nreturn 1\n"


@pytest.mark.parametrize(
    "line", ["--@include one", " -- @include one", "-- @include one two", "-- @include One", "-- @includes one"]
)
def test_only_the_exact_line_includes(folder: Path, line: str) -> None:
    """Prose that speaks of an include is left alone."""
    write(folder, main=f"{line}\nreturn 1\n", lib_one="local one\n")
    assert assemble("main", folder) == f"{line}\nreturn 1\n"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"main": "-- @include gone\n"}, "includes lib/gone.lua, which is not there"),
        ({}, "a command includes main.lua, which is not there"),
        ({"main": "-- @include a\n-- @include a\n", "lib_a": ""}, "twice"),
        ({"main": "-- @include a\n", "lib_a": "-- @include a\n"}, "circle"),
        ({"main": "-- @include a\n", "lib_a": "-- @include b\n", "lib_b": "-- @include a\n"}, "circle"),
        (
            {"main": "-- @include a\n", "lib_a": "-- @include b\n", "lib_b": "-- @include c\n", "lib_c": "-- @include a\n"},
            "circle",
        ),
    ],
)
def test_what_is_refused(folder: Path, files: dict[str, str], said: str) -> None:
    """Missing, doubled, circular: with a sentence that names the file."""
    write(folder, **files)
    with pytest.raises(ValueError, match=said):
        assemble("main", folder)


def test_each_command_is_read_once() -> None:
    """The same object, with the SHA1 of its text."""
    for name in NAMES:
        found = script(name)
        assert found is script(name)
        assert found.name == name
        assert found.sha == hashlib.sha1(found.text.encode(), usedforsecurity=False).hexdigest()
        assert found.flagged_sha == hashlib.sha1(found.flagged.encode(), usedforsecurity=False).hexdigest()
        assert "-- @include" not in found.text


def test_variants() -> None:
    """Servers before 7.0 do not know the flags line; those from 7.0 on get it where the header declares flags."""
    made = Script("x", "text", "#!lua flags=no-writes\ntext", "1", "2")
    assert made.variant(flags_known=False) == ("1", "text")
    assert made.variant(flags_known=True) == ("2", "#!lua flags=no-writes\ntext")
    assert script("conversation_peek").variant(True)[1].startswith("#!lua flags=no-writes\n--")
    plain = script("conversation_resolve")
    assert plain.variant(True) == plain.variant(False)


def test_an_unknown_command() -> None:
    """Says so."""
    with pytest.raises(ValueError, match="not there"):
        script("no_such")
