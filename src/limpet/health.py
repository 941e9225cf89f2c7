"""Whether the store is fit for the guarantees: each check with one sentence that says what to do.

Readiness fails only for what makes a guarantee void: unreachable, set up otherwise, an eviction policy that may drop the clocks,
missing rights. All else warns. ``limpet doctor`` asks for more and is stricter: it is read by somebody who can mend it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from limpet.clock import EPOCH_UNIX_S, Clock
from limpet.errors import LimpetError, StoreUnavailable
from limpet.keys import Keyspace
from limpet.scripts import NAMES, script

if TYPE_CHECKING:
    from limpet.executors.aio import AsyncExecutor
    from limpet.executors.durable import Promise

__all__ = ["Check", "Health", "check_health", "parse_info"]

Info = dict[str, str]
SKEW_S: Final = 1.0
HOPELESS_SKEW_S: Final = 60.0
SAMPLED_CLOCKS: Final = 16
FEW_PARTITIONS: Final = 32


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


def parse_info(reply: bytes) -> Info:
    """The fields of an INFO reply."""
    pairs = (line.split(":", 1) for line in reply.decode("utf-8", "replace").splitlines() if ":" in line)
    return {name: value.strip() for name, value in pairs}


async def check_health(
    executor: AsyncExecutor,
    keyspace: Keyspace,
    timeout_s: float,
    *,
    clock: Clock,
    promise: Promise | None = None,
    thorough: bool = False,
) -> Health:
    """Every check, over all primaries; the caller has verified the configuration.

    Args:
        executor: asks the store.
        keyspace: the namespace's.
        timeout_s: of each question.
        clock: ours, to hold the store's against.
        promise: what decisions wait for.
        thorough: for ``limpet doctor``: more questions, stricter answers.
    """
    checks: list[Check] = []
    try:
        seconds = await executor.ping(timeout_s)
        checks.append(Check("store", "ok", f"The store answers in {seconds * 1000:.1f} ms."))
        checks.append(
            Check("config", "ok", f"Namespace {keyspace.namespace} has {keyspace.partitions} partitions, as configured.")
        )
        checks.append(await _scripts(executor, timeout_s))
        infos = [parse_info(reply) for reply in (await executor.ask_all("INFO", timeout_s=timeout_s)).values()]
        checks.append(_eviction(infos))
        checks.append(_version(infos, thorough))
        checks.append(_persistence(infos, thorough))
        checks.append(_replicas(infos, promise))
        checks.append(_memory(infos))
        checks.append(await _skew(executor, timeout_s, clock, thorough))
        if thorough:
            checks.append(await _clocks(executor, keyspace, timeout_s))
    except StoreUnavailable as error:
        checks.append(Check("rights" if "NOPERM" in str(error) or "ACL" in str(error) else "store", "fail", str(error)))
    return Health.of(checks)


async def _scripts(executor: AsyncExecutor, timeout_s: float) -> Check:
    """Loaded where they are missing: on a new node, after a SCRIPT FLUSH, on a primary that was just promoted."""
    variants = [script(name).variant(executor.flags_known) for name in NAMES]
    present = await executor.ask_all("SCRIPT", "EXISTS", *(sha for sha, _ in variants), timeout_s=timeout_s)
    missing = {text for found in present.values() for (_, text), there in zip(variants, found, strict=True) if not there}
    for text in missing:
        await executor.ask_all("SCRIPT", "LOAD", text, timeout_s=timeout_s)
    nodes = f" on {len(present)} primaries" if len(present) > 1 else ""
    return Check("scripts", "ok", f"All {len(variants)} scripts are loaded{nodes}.")


def _eviction(infos: list[Info]) -> Check:
    policies = {info.get("maxmemory_policy", "unknown") for info in infos}
    unsafe = sorted(policy for policy in policies if policy.startswith("allkeys"))
    if unsafe:
        return Check(
            "eviction",
            "fail",
            f"maxmemory-policy is {unsafe[0]}, which may drop the partitions' clocks; set it to noeviction or volatile-lru.",
        )
    pressed = any(info.get("maxmemory", "0") != "0" for info in infos)
    if pressed and any(policy.startswith("volatile") for policy in policies):
        text = (
            "maxmemory-policy is volatile: under pressure conversations are dropped before their retention; give it more memory."
        )
        return Check("eviction", "warn", text)
    return Check("eviction", "ok", f"maxmemory-policy is {', '.join(sorted(policies))}: no clock can be evicted.")


def _version(infos: list[Info], thorough: bool) -> Check:
    names = set()
    for info in infos:
        valkey = info.get("valkey_version")
        version = valkey or info.get("redis_version", "0")
        names.add(f"{'Valkey' if valkey else 'Redis'} {version}")
        major, minor = (int(part) if part.isdigit() else 0 for part in [*version.split("."), "0"][:2])
        if (major, minor) < ((7, 2) if valkey else (6, 2)):
            text = (
                f"{'Valkey' if valkey else 'Redis'} {version} is older than what is tested; upgrade to Redis 6.2 or Valkey 7.2."
            )
            return Check("version", "fail" if thorough else "warn", text)
    return Check("version", "ok", f"{', '.join(sorted(names))}.")


def _persistence(infos: list[Info], thorough: bool) -> Check:
    bare = [info for info in infos if info.get("aof_enabled") == "0"]
    if not bare:
        return Check("persistence", "ok", "The append-only file is on.")
    if any(int(info.get("connected_slaves", "0")) for info in bare):
        text = (
            "A primary without an append-only file has replicas: if it restarts by itself, its old snapshot wipes them; "
            "set appendonly yes, or do not let it restart before a failover."
        )
        return Check("persistence", "fail" if thorough else "warn", text)
    text = "No append-only file: a restart loses what was decided since the last snapshot; set appendonly yes."
    return Check("persistence", "warn", text)


def _replicas(infos: list[Info], promise: Promise | None) -> Check:
    counts = [int(info.get("connected_slaves", "0")) for info in infos]
    if promise is not None and promise.mode == "replica" and min(counts) < promise.replicas:
        text = (
            f"Decisions wait for {promise.replicas} replica(s) and a primary has {min(counts)}, so they are not durable: add one."
        )
        return Check("replicas", "warn", text)
    if not any(counts):
        return Check("replicas", "ok", "No replicas: nothing to fail over to, nobody to wait for.")
    if any("min_slaves_good_slaves" not in info for info in infos):
        text = (
            "min-replicas-to-write is 0: a primary that is cut off goes on deciding what a failover undoes; "
            "set it to 1 with min-replicas-max-lag 10."
        )
        return Check("replicas", "warn", text)
    return Check("replicas", "ok", f"{min(counts)} replica(s), and min-replicas-to-write is set.")


def _memory(infos: list[Info]) -> Check:
    bounded = [info for info in infos if int(info.get("maxmemory", "0") or 0) and "used_memory" in info]
    shares = [int(info["used_memory"]) / int(info["maxmemory"]) for info in bounded]
    if shares and max(shares) > 0.9:
        return Check("memory", "warn", f"The store uses {max(shares):.0%} of its maxmemory; raise it before writes are refused.")
    return Check("memory", "ok", f"Up to {max(shares):.0%} of maxmemory is used." if shares else "No maxmemory is set.")


async def _skew(executor: AsyncExecutor, timeout_s: float, clock: Clock, thorough: bool) -> Check:
    times = await executor.ask_all("TIME", timeout_s=timeout_s)
    ours = clock.now().timestamp()
    stamps = [int(seconds) + int(micros) / 1_000_000 for seconds, micros in times.values()]
    between, apart = max(stamps) - min(stamps), max(abs(stamp - ours) for stamp in stamps)
    worst = max(between, apart)
    if worst < SKEW_S:
        return Check("clocks", "ok", f"The clocks of the store and of this machine are within {max(worst, 0.001) * 1000:.0f} ms.")
    whose = "the primaries" if between >= SKEW_S else "the store and this machine"
    text = f"The clocks of {whose} are {worst:.1f} s apart; synchronise them (NTP): after a failover that much order may be lost."
    return Check("clocks", "fail" if thorough and between > HOPELESS_SKEW_S else "warn", text)


async def _clocks(executor: AsyncExecutor, keyspace: Keyspace, timeout_s: float) -> Check:
    """Ticks run ahead of a clock that was set back, and of one that a partition outruns."""
    step = max(1, keyspace.partitions // SAMPLED_CLOCKS)
    ahead_s = 0.0
    for partition in range(0, keyspace.partitions, step):
        key = keyspace.clock(partition)
        tick = await executor.command("GET", key, timeout_s=timeout_s, key=key)
        seconds, micros = await executor.command("TIME", timeout_s=timeout_s, key=key)
        now = (int(seconds) - EPOCH_UNIX_S) * 1_000_000 + int(micros)
        if tick is not None and tick.isdigit():
            ahead_s = max(ahead_s, (int(tick) - now) / 1_000_000)
    if ahead_s > SKEW_S:
        text = (
            f"Ticks run {ahead_s:.1f} s ahead of the clock, which was set back; until then a loss of data may take epochs back."
        )
        return Check("ticks", "warn", text)
    if keyspace.partitions < FEW_PARTITIONS:
        text = f"{keyspace.partitions} partitions are few: above about 2,000 decisions a second in one, ticks outrun the clock."
        return Check("ticks", "warn", text)
    return Check("ticks", "ok", "No partition's ticks run ahead of the clock.")
