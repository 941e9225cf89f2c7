"""response_link and response_find: response id -> key, for a day."""

from __future__ import annotations

import pytest

from limpet.errors import StoreCorrupt
from limpet.executors.simple import run

from .rig import Rig


def test_a_chain(rig: Rig) -> None:
    """What is linked is found, for a day; the id appears in no key name."""
    assert run(rig.client, rig.commands.find_response("resp_1")) is None
    assert run(rig.client, rig.commands.link_response("resp_1", "telegram:dm:é"))
    assert run(rig.client, rig.commands.find_response("resp_1")) == "telegram:dm:é"
    (name,) = rig.snapshot()
    assert b"resp_1" not in name
    assert 86_400_000 - 5000 < rig.client.pttl(name) <= 86_400_000


def test_a_later_link_wins(rig: Rig) -> None:
    """An id that comes twice belongs to the later one."""
    for key in ("a", "b"):
        run(rig.client, rig.commands.link_response("resp_1", key))
    assert run(rig.client, rig.commands.find_response("resp_1")) == "b"


def test_wrong_type(rig: Rig) -> None:
    """StoreCorrupt for a reader; a writer puts it right."""
    run(rig.client, rig.commands.link_response("resp_1", "a"))
    (name,) = rig.snapshot()
    rig.client.delete(name)
    rig.client.sadd(name, "x")
    with pytest.raises(StoreCorrupt):
        run(rig.client, rig.commands.find_response("resp_1"))
    run(rig.client, rig.commands.link_response("resp_1", "a"))
    assert run(rig.client, rig.commands.find_response("resp_1")) == "a"
