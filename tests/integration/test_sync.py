"""The blocking twin does what the asyncio client does, for threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

import limpet
from limpet import StaleFence, context, sync


@pytest.fixture
def client(store_url: str) -> Iterator[sync.Limpet]:
    # A proposal waits half the deadline for the first look at the workers, which a busy machine may need.
    with sync.Limpet.connect(store_url, touch_granularity_ms=10, deadline_ms=5000) as client:
        yield client


def test_the_same_public_methods() -> None:
    """Whatever the one offers, the other does too."""

    def public(cls: type) -> set[str]:
        return {name for name in dir(cls) if not name.startswith("_")}

    assert public(limpet.Limpet) - public(sync.Limpet) <= {"executor", "commands", "opinion", "resolve_soon", "watch_workers"}


def test_a_conversation(client: sync.Limpet) -> None:
    """Turn, advance, suspend, peek, epoch, forget."""
    first = client.resolve("k", session_id="s")
    advanced = client.advance("k", "new")
    assert advanced.previous_epoch == first.epoch
    assert client.suspend("k").applied
    assert client.resolve("k", session_id="s").reset.reason == "suspended"
    assert client.peek("k").epoch == client.epoch("k")
    assert client.forget("k").applied
    assert client.peek("k") is None
    assert client.namespace == "default"
    assert client.health().ok


def test_a_binding(client: sync.Limpet) -> None:
    """Claim, confirm, renew, rebind, abort, release, and the errors come through as their types."""
    claim = client.resolve("k", session_id="s", bind=True).binding
    client.confirm("k", fence=claim.fence, worker="w1")
    assert client.renew("k", fence=claim.fence).worker == "w1"
    moved = client.rebind("k", fence=claim.fence, reason="lost", worker="w2")
    with pytest.raises(StaleFence):
        client.release("k", fence=claim.fence)
    client.abort("k", fence=moved.fence)
    again = client.resolve("k", session_id="s", bind=True).binding
    assert client.release("k", fence=again.fence).state == "unbound"
    assert client.bindings_by_worker() == {}
    assert client.prune() == 0


def test_a_turn_publishes_in_the_calling_thread(client: sync.Limpet) -> None:
    """Confirmed on success, aborted on failure; the context is that of the thread that uses the turn."""
    with client.turn("k", session_id="s") as turn:
        assert context.published() == turn.scope
        with client.turn(session_id="x") as inner:
            assert context.published() is None
            assert inner.epoch is None
        assert turn.binding.action == "bind"
        assert (turn.session_id, turn.epoch, turn.lost) == ("s", turn.resolution.epoch, False)
        turn.served_by("w1", 3)
    assert context.published() is None
    assert client.peek("k").binding.dp_rank == 3
    client.advance("k", "new")
    with pytest.raises(ValueError, match="boom"), client.turn("k", session_id="s"):
        raise ValueError("boom")
    with client.turn("k", session_id="s") as again:
        assert again.binding.action == "bind"
        assert again.confirm("w2").worker == "w2"
        again.abort()
    assert client.peek("k").binding.worker == "w2"


def test_many_threads_one_bind(client: sync.Limpet) -> None:
    """32 threads share the connection; exactly one is told to bind."""
    actions: list[str] = []
    barrier = threading.Barrier(32)

    def turn() -> None:
        barrier.wait()
        actions.append(client.resolve("k", session_id="s", bind=True).binding.action)

    threads = [threading.Thread(target=turn) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(actions) == ["bind"] + ["wait"] * 31


def test_events(client: sync.Limpet) -> None:
    """A reader in a thread of its own sees what happens."""
    seen: list[str] = []
    listening = threading.Event()

    def read() -> None:
        for event in client.events():
            listening.set()
            seen.append(event.kind)
            if event.kind == "forget":
                return

    reader = threading.Thread(target=read)
    reader.start()
    client.resolve("k", session_id="s")
    while not listening.wait(0.02):  # the subscription comes up in its own time
        client.advance("k", "new")
    client.forget("k")
    reader.join(5)
    assert not reader.is_alive()
    assert seen[-1] == "forget"


def test_workers(client: sync.Limpet) -> None:
    """Register, heartbeat, drain, undrain, remove."""
    client.register("w1", pool="p", address="http://w1", ttl_ms=0)
    assert client.heartbeat("w1").state == "live"
    client.resolve("k", session_id="s", bind={"pool": "p", "commit": True})
    assert client.workers(counts=True)[0].bindings == 1
    *_, last = client.drain("w1")
    assert (last.moved, last.may_stop) == (1, True)
    assert client.mark_draining("w1").state == "draining"
    assert client.undrain("w1").state == "live"
    client.remove_worker("w1")
    assert client.workers() == []


def test_close_twice_and_use_after(store_url: str) -> None:
    """Closing twice is closing once; a closed client opens itself again when it is used."""
    client = sync.Limpet.connect(store_url)
    client.close()
    client.open()
    client.close()
    client.close()
    try:
        assert client.resolve("k", session_id="s").created
    finally:
        client.close()


@pytest.mark.filterwarnings(
    "ignore:This process:DeprecationWarning"
)  # Python 3.12 warns of forks with threads: that is the point
def test_after_a_fork_it_says_so(client: sync.Limpet) -> None:
    """A client from before the fork raises instead of hanging on a loop that is not there."""
    client.resolve("k", session_id="s")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            client.resolve("k", session_id="s")
            os.write(writer, b"answered")
        except RuntimeError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        assert b"before a fork" in said.read()
    os.waitpid(child, 0)
