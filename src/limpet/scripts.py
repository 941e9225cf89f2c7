"""Loads the Lua of ``lua/``: assembles each command with the shared functions it includes, and pins its SHA1.

The wheel carries the folder as ``limpet/lua``; an editable install does not see forced includes, so there the checkout's
own folder is read (a packaging test compares the two byte for byte).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from limpet.schema import NEW_NAMESPACE, NEWEST, OLDEST

__all__ = ["NAMES", "Script", "assemble", "every_script", "script", "scripts_root"]

_INCLUDE = re.compile(r"^-- @include (?P<name>[a-z_]+)$", re.MULTILINE)

NAMES: tuple[str, ...] = (
    "binding_abort",
    "binding_census",
    "binding_confirm",
    "binding_drain",
    "binding_prune",
    "binding_rebind",
    "binding_release",
    "binding_renew",
    "config_open",
    "config_raise",
    "conversation_advance",
    "conversation_forget",
    "conversation_peek",
    "conversation_resolve",
    "conversation_suspend",
    "conversation_touch",
    "record_rewrite",
    "response_find",
    "response_link",
    "worker_heartbeat",
    "worker_list",
    "worker_mark",
    "worker_register",
)
"""Every command, by its file name. A test holds the list against the folder."""


@dataclass(frozen=True, slots=True)
class Script:
    """One command. ``flagged`` is the text for servers that know script flags (7.0 and later), equal to ``text`` where
    the header declares none."""

    name: str
    text: str
    flagged: str
    sha: str
    flagged_sha: str

    def variant(self, flags_known: bool) -> tuple[str, str]:
        """(SHA1, text) for a server that knows script flags, or does not."""
        return (self.flagged_sha, self.flagged) if flags_known else (self.sha, self.text)


def scripts_root() -> Traversable:
    """The folder of the Lua files: inside the installed package, else the checkout's."""
    packaged = files("limpet") / "lua"
    if packaged.is_dir():
        return packaged
    return Path(__file__).resolve().parents[2] / "lua"


def assemble(name: str, root: Traversable | None = None, writes: int = NEW_NAMESPACE) -> str:
    """The text of a command with its includes in place, each once, where it is first asked for.

    ``writes``: the schema in which it writes records. The writers of later schemas stand beside the first's, as
    ``lib/<name>_<schema>.lua``, and which one is in the text is all the difference: nothing is decided while a script runs.

    Raises:
        ValueError: an include is missing, circular, or asked for twice by one file.
    """
    folder = scripts_root() if root is None else root
    return _expand(folder, f"{name}.lua", writes, done=set(), path=())


def _expand(folder: Traversable, file: str, writes: int, *, done: set[str], path: tuple[str, ...]) -> str:
    source = folder.joinpath(*file.split("/"))
    if not source.is_file():
        raise ValueError(f"{path[-1] if path else 'a command'} includes {file}, which is not there.")
    text = source.read_text(encoding="utf-8")
    wanted = _INCLUDE.findall(text)
    if len(wanted) != len(set(wanted)):
        raise ValueError(f"{file} includes the same file twice.")

    def replace(match: re.Match[str]) -> str:
        included = _shared(folder, match["name"], writes)
        if included in path or included == file:
            raise ValueError(f"{file} includes {included}, which includes it: a circle.")
        if included in done:
            return ""
        done.add(included)
        return _expand(folder, included, writes, done=done, path=(*path, file)).rstrip("\n")

    return _INCLUDE.sub(replace, text)


def _shared(folder: Traversable, name: str, writes: int) -> str:
    later = (f"{name}_{schema}.lua" for schema in range(writes, 1, -1))
    return "lib/" + next((file for file in later if folder.joinpath("lib", file).is_file()), f"{name}.lua")


@cache
def script(name: str, writes: int = NEW_NAMESPACE) -> Script:
    """The assembled command of that name that writes records in that schema; read and hashed once per process."""
    text = assemble(name, writes=writes)
    declared = re.search(r"^-- Flags -> (?P<flags>[a-z, -]+)$", text, re.MULTILINE)
    flagged = f"#!lua flags={declared['flags'].replace(' ', '')}\n{text}" if declared else text
    return Script(name, text, flagged, _sha1(text), _sha1(flagged))


@cache
def every_script() -> tuple[Script, ...]:
    """All that this release may call, whatever schema ``config`` allows."""
    found = (script(name, writes) for name in NAMES for writes in range(OLDEST, NEWEST + 1))
    return tuple({each.sha: each for each in found}.values())


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
