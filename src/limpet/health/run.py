"""All checks, in the order in which people read them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from limpet.clock import Clock
from limpet.errors import LimpetError, StoreUnavailable
from limpet.health import clocks, replication, server, setup
from limpet.health.asking import Asking, reason
from limpet.health.model import UNREACHED, Check, Health, Infos, parse_info
from limpet.health.rights import rights

if TYPE_CHECKING:
    from limpet.client_settings import Settings
    from limpet.commands import Commands
    from limpet.executors.aio import AsyncExecutor
    from limpet.executors.durable import Promise

__all__ = ["check_health"]

ORDER: Final = (
    "store", "cluster", "config", "rights", "scripts", "eviction", "writes", "version",
    "persistence", "replicas", "durability", "memory", "clocks", "ticks",
)  # fmt: skip
Found = list[Check]


async def check_health(
    executor: AsyncExecutor,
    commands: Commands,
    settings: Settings,
    timeout_s: float,
    *,
    clock: Clock,
    promise: Callable[[], Promise | None],
    thorough: bool = False,
    trouble: LimpetError | None = None,
) -> Health:
    """Every check, over all primaries. Never raises for a sick store, and ends in time.

    Args:
        executor: asks the store.
        commands: of the namespace.
        settings: what this process is set to.
        timeout_s: for all questions together.
        clock: ours, to hold the store's against.
        promise: what decisions wait for, once replicas have been counted.
        thorough: for ``limpet doctor``: more questions, stricter answers.
        trouble: why the namespace could not be opened.
    """
    asking = Asking(executor, timeout_s)
    took_s = await asking.reach()
    if not asking.primaries:
        error = next(iter(asking.silent.values()), trouble)
        return Health.of([_unreachable(error, trouble)])
    checks = [_store(asking, took_s, thorough)]
    infos, settings_of = await _facts(asking, checks, thorough, settings.durability)
    space, due = commands.keyspace, promise()
    questions: list[tuple[str, Coroutine[Any, Any, Found]]] = [
        ("config", _list(setup.config(asking, space, settings))),
        ("rights", rights(asking, space, due, thorough)),
        ("scripts", _scripts(asking, commands, thorough)),
        ("clocks", _list(clocks.skew(asking, clock, thorough))),
    ]
    if thorough:
        questions.append(("ticks", _list(clocks.ticks(asking, space))))
        questions.append(("cluster", _list(setup.cluster(asking, infos))))
    for found in await asyncio.gather(*(_guarded(name, question) for name, question in questions)):
        checks += found
    if infos:
        checks += [
            server.eviction(infos),
            server.version(infos, thorough),
            server.persistence(infos, thorough, settings_of["save"]),
            replication.replicas(infos),
            replication.durability(infos, due, settings.durability, settings_of["appendfsync"]),
            server.memory(infos),
        ]
    if trouble is not None and not any(check.level == "fail" for check in checks):
        checks.append(Check("config", "fail", str(trouble)))
    return Health.of(sorted(_worst(checks), key=lambda check: ORDER.index(check.name)))


def _unreachable(error: LimpetError | None, trouble: LimpetError | None) -> Check:
    words = reason(error) if error is not None else ""
    if words.startswith("NOPERM"):
        return Check("rights", "fail", f"The store's ACL denies this user +ping ({words}); see deploy/redis/limpet.acl.")
    told = trouble if isinstance(trouble, StoreUnavailable) else error
    text = str(told or error or trouble).removeprefix(UNREACHED).strip()  # what a call is to do about it is no help here
    return Check("store", "fail", text or "The store did not answer in time; check that it runs and can be reached from here.")


def _store(asking: Asking, took_s: float, thorough: bool) -> Check:
    if asking.silent:
        every = len(asking.primaries) + len(asking.silent)
        text = (
            f"{len(asking.silent)} of {every} primaries does not answer ({', '.join(sorted(asking.silent))}); its conversations "
            "degrade until it is back or a replica is promoted."
        )
        return Check("store", "fail" if thorough else "warn", text)
    who = f"All {len(asking.primaries)} primaries answer" if len(asking.primaries) > 1 else "The store answers"
    return Check("store", "ok", f"{who} in {took_s * 1000:.1f} ms.")


async def _facts(
    asking: Asking, checks: Found, thorough: bool, durability: str | None
) -> tuple[Infos, dict[str, dict[str, str] | None]]:
    """INFO of each primary, and for doctor the settings that INFO does not tell, as far as this user may see them."""
    configured: dict[str, dict[str, str] | None] = {"save": None, "appendfsync": None}
    try:
        replies = await asking.everywhere("INFO")
        infos = {name: parse_info(reply) for name, reply in replies.items()}
        if thorough:  # the client has not been opened
            await asking.executor.learn_version(asking.left_s())
            if durability in (None, "replica"):
                await asking.executor.count_replicas(asking.left_s())
    except StoreUnavailable as error:
        checks.append(_silence("rights", error, "+info"))
        return {}, configured
    if thorough:
        for name in configured:
            try:
                found = await asking.everywhere("CONFIG", "GET", name)
            except LimpetError:
                continue  # many a server forbids CONFIG to its users; the checks say what they could not see
            configured[name] = {where: pair[1].decode() if len(pair) > 1 else "" for where, pair in found.items()}
    return infos, configured


async def _scripts(asking: Asking, commands: Commands, thorough: bool) -> Found:
    loaded = await setup.scripts(asking)
    failed = await setup.scripts_run(asking, commands.keyspace) if thorough else None
    return [failed or loaded]


async def _list(question: Coroutine[Any, Any, Check | None]) -> Found:
    found = await question
    return [] if found is None else [found]


async def _guarded(name: str, question: Coroutine[Any, Any, Found]) -> Found:
    try:
        return await question
    except StoreUnavailable as error:
        needs = {"scripts": "+script|load +script|exists", "clocks": "+time", "cluster": "+cluster|info", "config": "+hmget"}
        return [_silence(name, error, needs.get(name, ""))]


def _silence(name: str, error: StoreUnavailable, needs: str) -> Check:
    words = reason(error)
    if words.startswith("NOPERM"):
        return Check("rights", "fail", f"The store's ACL denies this user a command ({words}); give {needs or 'it'} to it.")
    return Check(name, "warn", f"This could not be looked at: {words}")


def _worst(checks: Found) -> Found:
    """One check of a name: the rights may have been found missing in several places, all of which count."""
    found: dict[str, Check] = {}
    for check in checks:
        before = found.get(check.name)
        if before is None or (before.level, check.level) == ("ok", "fail") or (before.level, check.level) == ("ok", "warn"):
            found[check.name] = check
        elif check.level == before.level != "ok" and check.message != before.message:
            found[check.name] = Check(check.name, check.level, f"{before.message} {check.message}")
        elif check.level == "fail":
            found[check.name] = check
    return list(found.values())
