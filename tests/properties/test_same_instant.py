"""Many callers at the same time, on connections of their own: one of them decides, and the others see what it decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import redis

from limpet.bind import Bind
from limpet.commands import Commands
from limpet.executors.simple import run
from limpet.policy import Policy
from limpet.results import Resolution

CALLERS = 8
ROUNDS = 12
S = 1_000_000
NOON = 200 * 86_400 * S + 43_200 * S
IDLE = Policy.parse({"idle_s": 60})


@pytest.fixture
def callers(store: redis.Redis) -> Iterator[list[redis.Redis]]:
    """Clients with one connection each, of an empty store."""
    store.flushall()
    path = store.connection_pool.connection_kwargs["path"]
    clients = [redis.Redis(unix_socket_path=path) for _ in range(CALLERS)]
    yield clients
    for client in clients:
        client.close()


@pytest.mark.parametrize("commit", [False, True])
def test_of_concurrent_turns_one_resets_and_one_binds(callers: list[redis.Redis], commit: bool) -> None:
    """A reset that is due is made once (G1), and exactly one caller is told to bind (G4), in every round."""
    commands = Commands(namespace="instant", partitions=1)
    target = commands.declared("k")
    barrier = Barrier(CALLERS)
    epochs = []

    def turn(number: int, now_us: int) -> Resolution:
        ask = Bind(holder=f"replica-{number}", commit=commit)
        call = commands.resolve(
            target, session_id=f"s{number}", policy=IDLE, bind=ask, request_id=f"{now_us}-{number}", now_us=now_us
        )
        barrier.wait()
        result = run(callers[number], call).result
        assert isinstance(result, Resolution)
        return result

    with ThreadPoolExecutor(CALLERS) as pool:
        for step in range(ROUNDS):
            now = NOON + step * 3600 * S
            turns = list(pool.map(turn, range(CALLERS), [now] * CALLERS))
            actions = Counter(turn.binding.action for turn in turns if turn.binding)
            assert actions == {"bind": 1, "continue" if commit else "wait": CALLERS - 1}
            assert len({turn.epoch for turn in turns}) == 1
            assert sum(turn.created or turn.reset is not None for turn in turns) == 1
            epochs.append(turns[0].epoch)
    assert epochs == sorted(set(epochs))
