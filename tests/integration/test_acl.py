"""The ACL file with the least rights: with it all works, and nothing else is allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from limpet import Limpet
from tests.support.servers import BINARIES, Server

ACL = Path(__file__).resolve().parents[2] / "deploy" / "redis" / "limpet.acl"
PASSWORD = "change-me-before-use"


@pytest.fixture(params=list(BINARIES))
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A server that knows only the users of the file, and the address for ours."""
    folder = tmp_path_factory.mktemp("acl")
    server = Server(folder, binary=BINARIES[request.param]).start()
    with redis.Redis.from_url(server.url) as admin:  # as the default user, who is switched off by the file
        for line in ACL.read_text().splitlines():
            admin.execute_command("ACL", "SETUSER", *line.split()[1:])
    yield f"unix://limpet:{PASSWORD}@{server.socket}"
    server.kill9()


async def test_all_works(guarded: str, wait_for: Callable) -> None:
    """Every public call, the memo's events and durability too, with the rights of the file alone."""
    async with Limpet.connect(guarded, memo_ttl_ms=1000, partitions=8, durability="replica") as client:
        assert await client._hub.wait_up(5)
        turn = await client.resolve("k", session_id="s", bind=True)
        fence = turn.binding.fence
        await client.confirm("k", fence=fence, worker="w")
        await client.renew("k", fence=fence)
        moved = await client.rebind("k", fence=fence, reason="lost")
        await client.abort("k", fence=moved.fence)
        await client.resolve(session_id="s", bind={"commit": True, "pool": "p"})
        await client.advance("k", "new")
        await client.suspend("k")
        assert await client.epoch("k")
        await client.register("w", pool="p")
        await client.heartbeat("w")
        assert [each async for each in client.drain("w")][-1].may_stop
        await client.undrain("w")
        await client.remove_worker("w")
        await client.link_response("resp_1", "k")
        assert await client.key_of_response("resp_1") == "k"
        await client.prune()
        await client.bindings_by_worker()
        assert (await client.forget("k")).applied
        assert (await client.health()).ok


@pytest.mark.parametrize(
    "command",
    [
        ("FLUSHALL",),
        ("KEYS", "*"),
        ("CONFIG", "GET", "*"),
        ("GET", "other"),
        ("SET", "other", "x"),
        ("DEL", "limpet:{default}:config"),
        ("PUBLISH", "other", "x"),
        ("EVAL", "return 1", "0"),
        ("SHUTDOWN",),
        ("ACL", "LIST"),
        ("SCRIPT", "FLUSH"),
        ("MONITOR",),
    ],
)
def test_nothing_else_is_allowed(guarded: str, command: tuple[str, ...]) -> None:
    """Other keys, other channels, other commands."""
    with redis.Redis.from_url(guarded) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command(*command)


def test_nobody_else_gets_in(guarded: str) -> None:
    """The default user is off."""
    with (
        redis.Redis.from_url("unix://" + guarded.rpartition("@")[2]) as client,
        pytest.raises(redis.exceptions.AuthenticationError),
    ):
        client.ping()
