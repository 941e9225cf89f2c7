"""response_link and response_find: a response leads to its conversation for a day."""

from __future__ import annotations

from limpet.commands import RESPONSE_TTL_MS
from limpet.executors.simple import run
from limpet.keys import digest

from .rig import Rig


def test_link_and_find(rig: Rig) -> None:
    """What was linked is found, whatever the key holds; what was not is None."""
    key = "telegram:ü\x20🐚"
    run(rig.client, rig.commands.link_response("resp_1", key))
    assert run(rig.client, rig.commands.find_response("resp_1")) == key
    assert run(rig.client, rig.commands.find_response("resp_2")) is None


def test_ttl_and_name(rig: Rig) -> None:
    """The key's name holds a digest and no response id; it lives for a day, and a later link wins and renews it."""
    run(rig.client, rig.commands.link_response("resp_1", "a"))
    name = rig.commands.keyspace.resp(digest("resp_1"))
    assert "resp_1" not in name
    assert 0 < rig.client.pttl(name) <= RESPONSE_TTL_MS
    rig.client.pexpire(name, 1000)
    run(rig.client, rig.commands.link_response("resp_1", "b"))
    assert rig.client.pttl(name) > 1000
    assert run(rig.client, rig.commands.find_response("resp_1")) == "b"
