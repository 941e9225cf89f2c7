"""binding_abort: the claimer failed (what it shares with a release is in test_binding_release)."""

from __future__ import annotations

from .rig import Rig


def test_the_failed_first_request(rig: Rig) -> None:
    """Exactly one of those that waited is told to bind next, at once and not after the claim's ttl (G4)."""
    key = rig.key()
    fence = rig.claim(key, request_id="r1")
    assert rig.action(key, request_id="r2") == "wait"
    rig.do("abort", key, fence)
    told = [rig.action(key, request_id=rid) for rid in ("r2", "r3", "r4")]
    assert told == ["bind", "wait", "wait"]


def test_the_failed_one_may_try_again(rig: Rig) -> None:
    """Its own retry with the same request id is a new claim, with a larger fence: the old one is over."""
    key = rig.key()
    fence = rig.claim(key, request_id="r1")
    rig.do("abort", key, fence)
    answer = rig.resolve(key, bind=True, request_id="r1")
    assert answer.result.binding.action == "bind"
    assert answer.fence > fence


def test_a_binding_that_does_not_serve(rig: Rig) -> None:
    """A confirmed one goes too: whoever holds its fence says that the backend does not serve it."""
    key = rig.key()
    fence = rig.bind(key)
    rig.do("abort", key, fence)
    assert rig.action(key) == "bind"
