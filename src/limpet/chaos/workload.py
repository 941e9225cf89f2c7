"""What one caller does: random turns, resets, claims and all that follows from them, with a random amount of diligence."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from limpet.chaos.history import Call
from limpet.chaos.recording import Recorder
from limpet.coordinator import Kind

__all__ = ["Caller", "Pool", "Workload"]

CLAIM_TTLS_MS: Final = (200, 500, 1500, 3000)
BIND_TTLS_MS: Final = (1000, 2000, 5000)
FORKS: Final[tuple[Kind, ...]] = ("fork", "delegate", "tool", "background")


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """``keys`` conversations are spoken to at a time, replaced every ``generation_s`` by new ones, so that first turns race.
    ``think_ms``: the mean pause of a caller. ``forgets``: also forget keys (of their own)."""

    keys: int = 24
    generation_s: float = 20.0
    think_ms: float = 60.0
    forgets: bool = True


class Pool:
    """What the callers of one process know in common: what a fleet's gateway would."""

    def __init__(self, recorders: list[Recorder], workload: Workload) -> None:
        self.recorders = recorders
        self.workload = workload
        self.epochs: dict[str, int] = {}
        self.fences: dict[tuple[str, str], deque[int]] = {}
        self.repeats: deque[Callable[[Recorder], Awaitable[Call]]] = deque(maxlen=16)

    def learn(self, call: Call) -> None:
        """Remembers the largest epoch and the last few fences of a record."""
        answer, target = call.known, call.target
        if answer is None or target is None:
            return
        if answer.epoch is not None:
            self.epochs[target[1]] = max(answer.epoch, self.epochs.get(target[1], 0))
        if answer.fence is not None:
            self.fences.setdefault(target, deque(maxlen=3)).append(answer.fence)
            if len(self.fences) > 512:
                del self.fences[next(iter(self.fences))]


class Caller:
    """One caller. ``careful`` ones state the epoch that they remember."""

    def __init__(self, pool: Pool, name: str, rng: random.Random, *, careful: bool) -> None:
        self._pool = pool
        self._name = name
        self._rng = rng
        self._careful = careful
        self._count = 0

    async def run(self, until: Callable[[], bool], now: Callable[[], float]) -> None:
        """Goes on until told to stop."""
        steps = (
            (self._turn, 26),
            (self._claim, 34),
            (self._advance, 8),
            (self._meddle, 10),
            (self._repeat, 7),
            (self._peek, 6),
            (self._fork, 6),
            (self._suspend, 2),
            (self._forget, 1 if self._pool.workload.forgets else 0),
        )
        actions, weights = [each for each, _ in steps], [each for _, each in steps]
        while not until():
            await asyncio.sleep(self._rng.expovariate(1000 / self._pool.workload.think_ms))
            generation = int(now() / self._pool.workload.generation_s)  # the same in every process
            key = f"k{self._rng.randrange(self._pool.workload.keys)}.{generation}"
            await self._rng.choices(actions, weights)[0](key)

    # -- the steps ---------------------------------------------------------------------------------------------------

    def _some(self) -> Recorder:
        return self._rng.choice(self._pool.recorders)

    def _id(self, what: str) -> str:
        self._count += 1
        return f"{what}-{self._name}-{self._count}"

    def _policy(self) -> dict[str, object] | None:
        return {"idle_s": 1} if self._rng.random() < 0.3 else None

    async def _resolve(self, recorder: Recorder, key: str | None, **details: Any) -> Call:
        arguments = {name: details[name] for name in ("seen_epoch", "request_id", "parent_key") if name in details}
        policy, required = details.pop("policy", None), details.pop("require_durable", False)
        worker, kind = details.pop("worker", None), details.get("kind", "turn")
        bind: dict[str, object] | None = None
        if details.get("bind"):
            bind = {name: details[name] for name in ("claim_ttl_ms", "ttl_ms", "wait_ms", "commit") if name in details}
            bind["worker"] = worker

        async def again(who: Recorder) -> Call:
            call = await who.call(
                "resolve",
                lambda: who.client.resolve(
                    key,
                    session_id=details["session_id"],
                    kind=kind,
                    policy=policy,
                    bind=bind,
                    require_durable=required,
                    **arguments,
                ),
                key=key,
                **details,
            )
            self._pool.learn(call)
            return call

        if "request_id" in details:
            self._pool.repeats.append(again)
        return await again(recorder)

    async def _turn(self, key: str) -> None:
        details: dict[str, Any] = {"session_id": self._id("s"), "policy": self._policy()}
        if self._careful and key in self._pool.epochs:
            details["seen_epoch"] = self._pool.epochs[key]
        if self._rng.random() < 0.3:
            details["request_id"] = self._id("t")
        await self._resolve(self._some(), key, **details)

    def _wishes(self) -> dict[str, Any]:
        rng = self._rng
        details: dict[str, Any] = {
            "session_id": self._id("s"),
            "bind": True,
            "worker": f"w{rng.randrange(5)}",
            "claim_ttl_ms": rng.choice(CLAIM_TTLS_MS),
            "ttl_ms": rng.choice(BIND_TTLS_MS),
            "commit": rng.random() < 0.1,
            "require_durable": rng.random() < 0.1,
        }
        if rng.random() < 0.3:
            details["wait_ms"] = rng.choice((50, 300, 800))
        if rng.random() < 0.5:
            details["request_id"] = self._id("b")
        return details

    async def _claim(self, key: str) -> None:
        details = self._wishes()
        details["policy"] = self._policy()
        if self._careful and key in self._pool.epochs:
            details["seen_epoch"] = self._pool.epochs[key]
        recorder = self._some()
        call = await self._resolve(recorder, key, **details)
        await self._follow(recorder, call, {"key": key})

    async def _follow(self, recorder: Recorder, call: Call, name: dict[str, str]) -> None:
        """Having been told to bind: serve, then confirm, abort, or vanish; perhaps too late."""
        answer, rng = call.accepted, self._rng
        if answer is None or answer.action != "bind" or answer.fence is None:
            return
        if rng.random() < 0.1:
            return
        await asyncio.sleep(rng.choice((0.0, 0.02, 0.1, 0.4, 0.8)))
        if rng.random() < 0.3:
            await self._binding(recorder, "renew", name, answer.fence)
        if call.commit:
            return
        await self._binding(recorder, "abort" if rng.random() < 0.2 else "confirm", name, answer.fence)

    async def _binding(self, recorder: Recorder, op: str, name: dict[str, str], fence: int) -> None:
        rng = self._rng
        details: dict[str, Any] = {}
        arguments: dict[str, Any] = {}
        required = rng.random() < 0.1
        if op == "confirm":
            details["ttl_ms"] = rng.choice(BIND_TTLS_MS)
            arguments = {"ttl_ms": details["ttl_ms"], "worker": f"w{rng.randrange(5)}", "require_durable": required}
        elif op == "renew":
            details["ttl_ms"] = arguments["ttl_ms"] = rng.choice(BIND_TTLS_MS)
        elif op == "rebind":
            details["claim_ttl_ms"] = rng.choice(CLAIM_TTLS_MS)
            arguments = {"claim_ttl_ms": details["claim_ttl_ms"], "reason": "lost", "require_durable": required}
        if rng.random() < 0.5:
            details["request_id"] = arguments["request_id"] = self._id(op)

        async def again(who: Recorder) -> Call:
            made = getattr(who.client, op)
            call = await who.call(op, lambda: made(**name, fence=fence, **arguments), fence=fence, **name, **details)  # type: ignore[arg-type]
            self._pool.learn(call)
            return call

        if "request_id" in details:
            self._pool.repeats.append(again)
        call = await again(recorder)
        if op == "rebind":
            await self._follow(recorder, call, name)

    async def _advance(self, key: str) -> None:
        details: dict[str, Any] = {}
        if self._rng.random() < 0.4 and key in self._pool.epochs:
            details["expected_epoch"] = self._pool.epochs[key]
        if self._rng.random() < 0.6:
            details["request_id"] = self._id("a")
        required = self._rng.random() < 0.1

        async def again(who: Recorder) -> Call:
            made = who.client.advance
            call = await who.call("advance", lambda: made(key, "new", require_durable=required, **details), key=key, **details)
            self._pool.learn(call)
            return call

        if "request_id" in details:
            self._pool.repeats.append(again)
        await again(self._some())

    async def _meddle(self, key: str) -> None:
        """A binding call with a fence that somebody once had: the present one, or a stale one."""
        targets = list(self._pool.fences)
        if not targets:
            return
        domain, text = self._rng.choice(targets[-32:])
        fence = self._rng.choice(self._pool.fences[domain, text])
        op = self._rng.choice(("renew", "release", "rebind", "rebind", "confirm", "abort"))
        await self._binding(self._some(), op, {"key" if domain == "conv" else "session_id": text}, fence)

    async def _repeat(self, key: str) -> None:
        """The same request again, perhaps at another replica."""
        if self._pool.repeats:
            await self._rng.choice(self._pool.repeats)(self._some())

    async def _peek(self, key: str) -> None:
        recorder = self._some()
        await recorder.call("peek", lambda: recorder.client.peek(key), key=key)

    async def _fork(self, key: str) -> None:
        """A branch: its own session, sometimes one that is called like its parent's key, bound half of the time."""
        rng = self._rng
        details: dict[str, Any] = self._wishes() if rng.random() < 0.5 else {"session_id": self._id("s")}
        details["session_id"] = rng.choice((f"branch of {key}", key, details["session_id"]))
        details["kind"] = rng.choice(FORKS)
        if rng.random() < 0.5:
            details["parent_key"] = key
        details.pop("request_id", None)
        recorder = self._some()
        call = await self._resolve(recorder, key, **details)
        await self._follow(recorder, call, {"session_id": details["session_id"]})

    async def _suspend(self, key: str) -> None:
        recorder, window = self._some(), self._rng.choice((None, 0.5, 2.0))
        await recorder.call("suspend", lambda: recorder.client.suspend(key, resume_within_s=window), key=key)

    async def _forget(self, key: str) -> None:
        key = f"f{self._rng.randrange(3)}"
        recorder = self._some()
        await self._claim(key)
        await recorder.call("forget", lambda: recorder.client.forget(key), key=key)
