"""What the store refuses a script: each server has words of its own for it, the caller meets one error and one sentence."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from limpet import Limpet, StoreUnavailable
from limpet.errors import StoreCorrupt
from tests.support.servers import Server


@pytest.fixture
async def client(each_server: Server) -> AsyncIterator[Limpet]:
    """A client of a user that may do everything, until the test takes something away."""
    each_server.cli("ACL", "SETUSER", "u", "on", ">p", "allkeys", "allchannels", "+@all")
    async with Limpet.connect(f"unix://u:p@{each_server.socket}", partitions=4) as client:
        await client.resolve("k", session_id="s")
        yield client


@pytest.mark.parametrize(
    ("cause", "cure", "words"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "out of memory"),
        (
            ("REPLICAOF", "127.0.0.1", "1"),
            ("REPLICAOF", "NO", "ONE"),
            "did not answer|could not be reached",
        ),  # it may pass: retried
    ],
    ids=["memory", "replica"],
)
async def test_no_writes(each_server: Server, client: Limpet, cause: tuple[str, ...], cure: tuple[str, ...], words: str) -> None:
    """Out of memory; a primary that has become a replica: a turn is degraded, a /new that did not happen says why. Once that is
    over, all is as before."""
    before = await client.peek("k")
    each_server.cli(*cause)
    assert (await client.resolve("another", session_id="s")).degraded
    with pytest.raises(StoreUnavailable, match=words):
        await client.advance("k", "new")
    each_server.cli(*cure)
    assert await client.peek("k") == before
    assert not (await client.resolve("another", session_id="s")).degraded


@pytest.mark.parametrize("right", ["-set", "-time", "resetchannels"])
async def test_a_right_that_a_script_needs(each_server: Server, client: Limpet, right: str) -> None:
    """A command or a channel that only the script uses: no corrupt store, but an ACL that can be mended."""
    each_server.cli("ACL", "SETUSER", "u", right)
    with pytest.raises(StoreUnavailable, match=r"ACL denies this user .*limpet doctor"):
        await client.advance("k", "new")
    each_server.cli("ACL", "SETUSER", "u", "+@all", "allchannels")
    assert (await client.advance("k", "new")).epoch


async def test_a_key_of_another_type(each_server: Server, client: Limpet) -> None:
    """That is corruption, everywhere."""
    for name in each_server.cli("KEYS", "limpet:*conv:*"):
        each_server.cli("DEL", name)
        each_server.cli("RPUSH", name, "x")
    with pytest.raises(StoreCorrupt, match=r"^Operation against a key holding the wrong kind of value"):
        await client.advance("k", "new")
