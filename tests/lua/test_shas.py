"""The SHA manifest: nobody changes a script unnoticed.

After a change that is meant: ``uv run python -m tests.lua.test_shas`` from the checkout rewrites ``shas.json``. Look at the
layout in ``lua/README.md`` before, since replicas of the release before run beside it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import redis

from limpet.scripts import NAMES, script

MANIFEST = Path(__file__).parent / "shas.json"


def current() -> dict[str, str]:
    return {name: script(name).sha for name in NAMES}


def test_the_manifest_is_current(server: redis.Redis) -> None:
    """A script's SHA1 as the server sees it is the one in the manifest."""
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
    assert current() == manifest, "a script changed: if that was meant, write the manifest anew (see this file's head)"
    assert {name: server.script_load(script(name).text) for name in NAMES} == manifest


def test_the_sha_is_that_of_the_text() -> None:
    """SHA1 of the UTF-8 text, as EVALSHA has it."""
    for name in NAMES:
        assert script(name).sha == hashlib.sha1(script(name).text.encode(), usedforsecurity=False).hexdigest()


if __name__ == "__main__":
    MANIFEST.write_text(json.dumps(current(), indent=2) + "\n", encoding="utf-8")
