"""Whether the store is fit for the guarantees: each check with one sentence that says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from limpet.errors import LimpetError, StoreUnavailable
from limpet.keys import Keyspace
from limpet.scripts import NAMES, script

if TYPE_CHECKING:
    from limpet.executors.aio import AsyncExecutor

__all__ = ["Check", "Health", "check_health", "parse_info"]


class Check(msgspec.Struct, frozen=True):
    """One check. ``fail``: not ready. ``warn``: works, but with a risk that the message names."""

    name: str
    level: Literal["ok", "warn", "fail"]
    message: str


class Health(msgspec.Struct, frozen=True):
    """``ok`` is False when any check failed."""

    ok: bool
    checks: tuple[Check, ...]

    @staticmethod
    def of(checks: list[Check]) -> Health:
        """The verdict over some checks."""
        return Health(all(check.level != "fail" for check in checks), tuple(checks))

    @staticmethod
    def failed(error: LimpetError) -> Health:
        """Not even the beginning worked."""
        name = "store" if isinstance(error, StoreUnavailable) else "config"
        return Health(False, (Check(name, "fail", str(error)),))


def parse_info(reply: bytes) -> dict[str, str]:
    """The fields of an INFO reply."""
    pairs = (line.split(":", 1) for line in reply.decode("utf-8", "replace").splitlines() if ":" in line)
    return {name: value.strip() for name, value in pairs}


async def check_health(executor: AsyncExecutor, keyspace: Keyspace, timeout_s: float) -> Health:
    """Store reachable, configuration as expected (the caller has verified it), scripts loaded, eviction policy safe."""
    checks: list[Check] = []
    try:
        seconds = await executor.ping(timeout_s)
        checks.append(Check("store", "ok", f"The store answers in {seconds * 1000:.1f} ms."))
        checks.append(
            Check("config", "ok", f"Namespace {keyspace.namespace} has {keyspace.partitions} partitions, as configured.")
        )
        checks.append(await _scripts(executor, timeout_s))
        checks.append(_eviction(parse_info(await executor.command("INFO", "memory", timeout_s=timeout_s))))
    except StoreUnavailable as error:
        checks.append(Check("store", "fail", str(error)))
    return Health.of(checks)


async def _scripts(executor: AsyncExecutor, timeout_s: float) -> Check:
    loaded = 0
    for name in NAMES:
        await executor.command("SCRIPT", "LOAD", script(name).variant(executor.flags_known)[1], timeout_s=timeout_s)
        loaded += 1
    return Check("scripts", "ok", f"All {loaded} scripts are loaded.")


def _eviction(memory: dict[str, str]) -> Check:
    policy = memory.get("maxmemory_policy", "unknown")
    if policy.startswith("allkeys"):
        return Check(
            "eviction",
            "fail",
            f"maxmemory-policy is {policy}, which may drop the partitions' clocks; set it to noeviction or volatile-lru.",
        )
    if policy.startswith("volatile") and memory.get("maxmemory", "0") != "0":
        return Check(
            "eviction",
            "warn",
            f"maxmemory-policy is {policy}: under pressure conversations are dropped before their retention.",
        )
    return Check("eviction", "ok", f"maxmemory-policy is {policy}: no clock can be evicted.")
