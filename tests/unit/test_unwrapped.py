"""What servers make of a refusal inside a script, in the words of each generation, and what is read out of it."""

from __future__ import annotations

import pytest

from limpet.errors import StoreCorrupt, error_for_word, unwrapped

CALLED = "Error running script (call to f_1f8f4cfba6f3375f8c4ec02b9de4361a5dea5c64): @user_script:1: "
SAID = [
    # Redis 6.2: the command's own answer, and what the script interpreter answers for it
    (f"ERR {CALLED}WRONGTYPE Operation against a key", "WRONGTYPE Operation against a key"),
    (f"ERR {CALLED}@user_script: 1: -READONLY You can't write.", "READONLY You can't write."),
    (f"ERR {CALLED}@user_script: 1: -OOM command not allowed: x - y", "OOM command not allowed: x - y"),
    (f"{CALLED}@user_script: 1: -NOREPLICAS Not enough.", "NOREPLICAS Not enough."),  # as redis-py tells it
    (
        f"ERR {CALLED}@user_script: 1: The user executing the script can't run this command or subcommand",
        "NOPERM The user executing the script can't run this command or subcommand",
    ),
    (f"ERR {CALLED}attempt to index a nil value", f"ERR {CALLED}attempt to index a nil value"),  # its place helps
    # Redis 7.0
    (
        "ERR The user executing the script can't publish. script: f, on",
        "NOPERM The user executing the script can't publish. script: f, on",
    ),
    # Redis 7.2 and later, Valkey
    ("ERR ACL failure in script: No permissions. script: on", "NOPERM ACL failure in script: No permissions. script: on"),
    ("NOPERM No permissions to access a key", "NOPERM No permissions to access a key"),
    ("OOM command not allowed", "OOM command not allowed"),
    ("ERR wrong number of arguments", "ERR wrong number of arguments"),
    ("", ""),
]


@pytest.mark.parametrize(("message", "meant"), SAID)
def test_what_is_meant(message: str, meant: str) -> None:
    """The WORD comes first, whatever the server put around it; twice is once."""
    assert unwrapped(message) == meant
    assert unwrapped(meant) == meant


@pytest.mark.parametrize("prefix", ["", f"ERR {CALLED}", CALLED])
def test_the_typed_error(prefix: str) -> None:
    """The same type and the same sentence from every server."""
    error = error_for_word(f"{prefix}WRONGTYPE Operation against a key: x")
    assert type(error) is StoreCorrupt
    assert str(error) == "Operation against a key: x"
