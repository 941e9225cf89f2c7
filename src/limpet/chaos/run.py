"""Runs processes of random clients against a store, with or without a nemesis, and judges what they recorded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from limpet.chaos.checker import check
from limpet.chaos.history import Fault, History, Note, Writer, load
from limpet.chaos.process import Plan
from limpet.chaos.recording import now_us
from limpet.chaos.report import Report, make_report
from limpet.chaos.workload import Workload
from limpet.coordinator import Limpet
from limpet.errors import StoreUnavailable
from limpet.keys import Domain, digest

__all__ = ["Nemesis", "Options", "fresh_namespace", "judge", "run", "sweep"]

GRACE_S = 30.0


class Nemesis(Protocol):
    """Does one thing after another until cancelled; every fault, once healed, goes to ``record``."""

    async def torment(self, rng: random.Random, record: Callable[[Fault], None]) -> None:
        """Cancelled when the run is over; it heals what it has broken before it ends."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a run goes. ``settings``: more settings for every client."""

    seconds: float = 60.0
    processes: int = 2
    clients: int = 2
    callers: int = 6
    seed: int = 0
    deadline_ms: int = 250
    partitions: int = 16
    settings: dict[str, Any] = {}
    workload: Workload = Workload()


def fresh_namespace() -> str:
    """A namespace of its own for every run, so that nobody else's conversations are touched."""
    return f"chaos-{secrets.token_hex(4)}"


async def run(
    url: str,
    folder: Path,
    options: Options,
    *,
    topology: str,
    namespace: str | None = None,
    nemesis: Nemesis | None = None,
    progress: Callable[[float], None] | None = None,
    faulted: Callable[[Fault], None] | None = None,
) -> tuple[History, Report]:
    """One run. The histories stay in ``folder``.

    Raises StoreUnavailable when a client process fails by itself, or the store cannot be reached to begin with.
    """
    space = namespace or fresh_namespace()
    settings: dict[str, Any] = {
        "namespace": space,
        "partitions": options.partitions,
        "touch_granularity_ms": 100,
        "retention_s": 3600,
        "deadline_ms": options.deadline_ms,
        "claim_ttl_ms": 1500,
        "bind_ttl_ms": 2000,
        **options.settings,
    }
    async with Limpet.connect(url, **{**settings, "deadline_ms": 2000}):
        pass  # reachable, and the namespace's config is written
    until = now_us() + int(options.seconds * 1_000_000)
    plans = [
        Plan(
            url=url,
            name=f"p{number}",
            seed=options.seed,
            history=str(folder / f"p{number}.jsonl"),
            until_us=until,
            clients=options.clients,
            callers=options.callers,
            settings=settings,
            workload=options.workload,
        )
        for number in range(options.processes)
    ]
    with Writer(folder / "nemesis.jsonl") as writer:
        writer.write(Note(seed=options.seed, namespace=space, topology=topology))
        await _all(plans, options, nemesis, writer, progress, faulted)
    history = await asyncio.to_thread(lambda: load(sorted(folder.glob("*.jsonl"))))
    return history, await asyncio.to_thread(judge, history)


def judge(history: History, *, secret: str | None = None) -> Report:
    """Checks a recorded history and counts it."""
    namespace = history.notes[0].namespace if history.notes else "default"
    return make_report(history, check(history, namespace=namespace, secret=secret))


async def _all(
    plans: list[Plan],
    options: Options,
    nemesis: Nemesis | None,
    writer: Writer,
    progress: Callable[[float], None] | None,
    faulted: Callable[[Fault], None] | None,
) -> None:
    def record(fault: Fault) -> None:
        writer.write(fault)
        if faulted is not None:
            faulted(fault)

    workers = [asyncio.create_task(_process(plan, options.seconds + GRACE_S)) for plan in plans]
    evil = None if nemesis is None else asyncio.create_task(nemesis.torment(random.Random(options.seed), record))
    try:
        began = now_us()
        while any(not worker.done() for worker in workers):
            await asyncio.wait([*workers, *([evil] if evil is not None and not evil.done() else [])], timeout=0.5)
            left = plans[0].until_us - now_us()
            if progress is not None:
                progress(min(1.0, (now_us() - began) / (options.seconds * 1_000_000)))
            if evil is not None and (left < 0 or evil.done()):
                await _end(evil)
                evil = None
        for worker in workers:
            worker.result()
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        if evil is not None:
            await _end(evil)


async def _end(evil: asyncio.Task[None]) -> None:
    evil.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await evil


async def _process(plan: Plan, timeout_s: float) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "limpet.chaos.process",
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    try:
        async with asyncio.timeout(timeout_s):
            _, stderr = await process.communicate(msgspec.json.encode(plan))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        last = (stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise StoreUnavailable(f"A client process of the run failed ({last}); its history is not complete, so run it again.")


async def sweep(url: str, history: History) -> None:
    """Deletes every key of the run's namespace. What is unreachable now expires by itself, but for the partitions' clocks."""
    space = history.notes[0].namespace
    targets = {call.target for call in history.calls if call.target is not None}
    async with Limpet.connect(url, namespace=space, partitions=16, touch_granularity_ms=100, deadline_ms=2000) as client:
        names = client.commands.keyspace
        keys = [names.config]
        for domain, text in targets:
            kind: Domain = domain
            keys.append(names.record(kind, digest(text)))
        for partition in {names.partition(digest(text)) for _, text in targets}:
            keys += [names.clock(partition), names.bound(partition)]
        for key in keys:
            await client.executor.command("DEL", key, timeout_s=2.0, key=key)
