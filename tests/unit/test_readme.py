"""The README says what is so: its generated tables, and the commands it names."""

from __future__ import annotations

import re

import pytest
import typer

import limpet.cli.bench  # registers its commands
import limpet.cli.gateway
import limpet.cli.upgrade
import limpet.cli.watch
import limpet.cli.workers  # noqa: F401  (registers its command)
from limpet.cli.app import app
from limpet.wire import profile_table
from tests.support.readme import README, rewritten


def test_every_profile_is_in_the_table() -> None:
    """The wire table is that of the code, row by row."""
    text = README.read_text()
    for name, where, limit in profile_table():
        assert f"| {name} | {where} | {limit} |\n" in text


def test_every_command_is_there() -> None:
    """Each command of the program is in the README, and each that the README names is one."""
    known = set(typer.main.get_command(app).commands)
    named = set(re.findall(r"`limpet ([a-z]+)", README.read_text())) | set(
        re.findall(r"^limpet ([a-z]+)", README.read_text(), re.M)
    )
    assert named <= known
    assert known <= named


def test_the_generated_tables_are_current() -> None:
    """Settings and metrics as the code has them; `uv run python -m tests.support.readme` writes them anew."""
    text = README.read_text(encoding="utf-8")
    assert rewritten(text) == text
    assert text.count("| `LIMPET_") > 30
    assert text.count("| `limpet_") > 20


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:deploy|lua|tests)/[\w/]*)`", README.read_text()))))
def test_every_path_exists(path: str) -> None:
    """Paths that the README sends people to."""
    assert (README.parent / path).exists()
