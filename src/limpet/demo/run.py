"""The whole demo: a store, the gateways, the traffic, the count."""

from __future__ import annotations

import asyncio
import secrets
import signal
from typing import Final

import msgspec

from limpet.clock import Clock, SystemClock
from limpet.demo.count import Tally, count, verdict
from limpet.demo.drive import Driver, Watcher
from limpet.demo.fleet import DemoFailed, Fleet
from limpet.demo.plan import Plan
from limpet.demo.protocol import Setup
from limpet.errors import StoreUnavailable
from limpet.keys import Keyspace, digest

__all__ = ["CLAIM_TTL_MS", "GATEWAYS", "VICTIMS", "Killed", "Report", "fresh_namespace", "run", "sweep"]

GATEWAYS: Final = 4
WORKERS: Final = 3
VICTIMS: Final = 8
IDLE_S: Final = 1.0
CLAIM_TTL_MS: Final = 2000
PARTITIONS: Final = 16
GRANULARITY_MS: Final = 50
PAUSE_S: Final = IDLE_S + GRANULARITY_MS / 1000 + 0.25
"""A silence that is longer than the idle policy and the touch granularity together."""
SWEEP_S: Final = 2.0
LIMIT_S: Final = 180.0
"""Whatever hangs, ends."""


class Killed(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway that was killed. ``seconds``: the longest that one of its conversations waited for its new claim."""

    gateway: str
    pid: int
    claims: int
    handed_over: int
    late_confirms_refused: int
    seconds: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What ``limpet demo --json`` prints. ``failures``: one sentence for each guarantee that did not hold."""

    ok: bool
    source: str
    gateways: int
    keys: int
    seconds: float
    killed: Killed | None
    failures: list[str]
    counted: Tally


def fresh_namespace() -> str:
    """A namespace that nobody else uses."""
    return f"demo-{secrets.token_hex(4)}"


def run(plan: Plan, url: str, namespace: str, watcher: Watcher, clock: Clock | None = None) -> Report:
    """Carries the plan out on the store at ``url``, in a fresh namespace.

    Raises:
        DemoFailed: it could not be carried out.
        KeyboardInterrupt: Ctrl-C or SIGTERM. No process is left then either.
    """
    return asyncio.run(_run(plan, url, namespace, watcher, clock or SystemClock()))


async def sweep(url: str, namespace: str, plan: Plan) -> None:
    """Removes what a run has left in a store that is not its own: no name but those of its namespace is touched.

    What cannot be removed any more runs out after an hour, but for the few clocks of the namespace.
    """
    from limpet.coordinator import Limpet

    space = Keyspace(namespace, PARTITIONS)
    names = [space.record("conv", digest(conversation.key)) for conversation in plan.conversations]
    names += [name for number in range(PARTITIONS) for name in (space.clock(number), space.bound(number))]
    names += [space.config, space.workers]
    client = Limpet.connect(url, namespace=namespace, partitions=PARTITIONS)
    try:
        await asyncio.gather(*(client.executor.command("UNLINK", name, timeout_s=SWEEP_S, key=name) for name in names))
    except StoreUnavailable:
        return  # the run itself has said that the store is gone
    finally:
        await client.close()


async def _run(plan: Plan, url: str, namespace: str, watcher: Watcher, clock: Clock) -> Report:
    setups = [
        Setup(
            name=f"gateway-{number}",
            url=url,
            namespace=namespace,
            partitions=PARTITIONS,
            workers=[f"worker-{letter}" for letter in "abcdefgh"[:WORKERS]],
            claim_ttl_ms=CLAIM_TTL_MS,
            touch_granularity_ms=GRANULARITY_MS,
            idle_s=IDLE_S,
            seed=number,
        )
        for number in range(1, GATEWAYS + 1)
    ]
    main = asyncio.current_task()
    assert main is not None  # we run in one
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main.cancel)
    try:
        async with asyncio.timeout(LIMIT_S), Fleet(setups) as fleet:
            watcher.ready([gateway.pid for gateway in fleet.gateways])
            began = clock.monotonic()
            driver = Driver(plan, fleet.gateways, clock, watcher, idle_s=IDLE_S, pause_s=PAUSE_S)
            ledger = await driver.run()
            seconds = clock.monotonic() - began
    except TimeoutError:
        raise DemoFailed(f"The demo did not end within {LIMIT_S:.0f} s; the machine is too busy for it.") from None
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    failures = verdict(ledger)
    handovers = ledger.handovers
    killed = (
        None
        if ledger.kill is None
        else Killed(
            gateway=ledger.kill.gateway,
            pid=ledger.kill.pid,
            claims=ledger.kill.claims,
            handed_over=sum(each.heir_fence is not None and each.heir_fence > (each.fence or 0) for each in handovers),
            late_confirms_refused=sum(each.late_refused for each in handovers),
            seconds=round(max((each.seconds for each in handovers), default=0.0), 2),
        )
    )
    return Report(
        ok=not failures,
        source=plan.source,
        gateways=len(setups),
        keys=len(plan.conversations),
        seconds=round(seconds, 2),
        killed=killed,
        failures=failures,
        counted=count(ledger),
    )
