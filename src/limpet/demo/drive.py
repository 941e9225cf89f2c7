"""Sends a plan through the gateways, kills one of them on the way, and writes down what is answered."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, Protocol

from limpet.clock import Clock
from limpet.demo.fleet import Gateway
from limpet.demo.ledger import Handover, Kill, Ledger, Replaced, Seen
from limpet.demo.plan import Burst, Conversation, New, Pause, Plan, Step
from limpet.demo.protocol import TurnDone

__all__ = ["Driver", "Watcher"]

AT_ONCE: Final = 24
"""Conversations that are spoken at the same moment."""


class Watcher(Protocol):
    """Is told what happens while it happens."""

    def ready(self, pids: Sequence[int]) -> None:
        """The gateways are up."""

    def progress(self, done: int, total: int, turns: int) -> None:
        """So many conversations are over, so many requests answered."""

    def killed(self, kill: Kill) -> None:
        """A gateway was killed in mid-claim."""

    def handed_over(self, handovers: Sequence[Handover]) -> None:
        """Its conversations were bound by others."""


class Driver:
    """One run of a plan.

    Args:
        gateways: at least two; the last one is killed.
        idle_s: the idle policy; ``pause_s``: a silence that is longer than it, granularity included.
    """

    def __init__(
        self, plan: Plan, gateways: Sequence[Gateway], clock: Clock, watcher: Watcher, *, idle_s: float, pause_s: float
    ) -> None:
        self._plan = plan
        self._rotation = list(gateways)
        self._doomed = gateways[-1]
        self._clock = clock
        self._watcher = watcher
        self._idle_s = idle_s
        self._pause_s = pause_s
        self._next = itertools.count()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._half = asyncio.Event()
        self._strike_at = 0
        self._done = 0
        self._answered = 0
        self.ledger = Ledger()

    async def run(self) -> Ledger:
        """Everything, to the end. Raises DemoFailed when a gateway ends by itself or answers with an error."""
        victims = [each for each in self._plan.conversations if each.victim]
        others = [each for each in self._plan.conversations if not each.victim]
        self._strike_at = len(others) // 2
        if not self._strike_at:
            self._half.set()
        try:
            async with asyncio.TaskGroup() as group:
                for conversation in others:
                    group.create_task(self._converse(conversation, conversation.steps))
                group.create_task(self._strike(victims))
        except* Exception as errors:  # noqa: BLE001  (re-raised: the first one tells it all)
            failure: BaseException = errors
            while isinstance(failure, BaseExceptionGroup):
                failure = failure.exceptions[0]
            raise failure from None
        return self.ledger

    async def _converse(self, conversation: Conversation, steps: Sequence[Step], chapter: int = 0) -> None:
        """Speaks a conversation; a pause makes room for others meanwhile."""
        for silent, group in groupby(steps, key=lambda step: isinstance(step, Pause)):
            if not silent:
                async with self._slots:
                    chapter = await self._speak(conversation, group, chapter)
                continue
            for _ in group:
                await asyncio.sleep(self._pause_s)
                chapter += 1
                self.ledger.replaced.append(Replaced(conversation.key, chapter, "idle"))
        self._done += 1
        self._watcher.progress(self._done, len(self._plan.conversations), self._answered)
        if self._done >= self._strike_at:
            self._half.set()

    async def _speak(self, conversation: Conversation, steps: Iterable[Step], chapter: int) -> int:
        """Steps without a pause between them; the chapter that they end in."""
        began = self._clock.monotonic()
        for step in steps:
            if isinstance(step, New):
                chapter += 1
                await self._new(conversation, chapter)
            elif isinstance(step, Burst):
                await self._burst(conversation, chapter, step)
        if conversation.idle and self._clock.monotonic() - began > self._idle_s:
            self.ledger.stalled.add(conversation.key)
        return chapter

    async def _new(self, conversation: Conversation, chapter: int) -> None:
        advanced = await self._gateway().advance(conversation.key)
        self.ledger.replaced.append(Replaced(conversation.key, chapter, "new", advanced.epoch if advanced.applied else None))

    async def _burst(self, conversation: Conversation, chapter: int, burst: Burst) -> list[TurnDone]:
        """All requests of a burst at the same moment, each at another gateway as far as there are enough."""
        return await asyncio.gather(*(self._turn(conversation, chapter, session_id) for session_id in burst.session_ids))

    async def _turn(self, conversation: Conversation, chapter: int, session_id: str, holder: Gateway | None = None) -> TurnDone:
        """One request: at the next gateway, or at ``holder``, which will not live to serve it.

        The gateway is chosen here, in the same step in which it is asked: one that was chosen earlier may be doomed by now.
        """
        hold = holder is not None
        gateway = holder or self._gateway()
        answer = await gateway.turn(conversation.key, session_id, idle=conversation.idle, hold=hold)
        self._answered += not hold
        self.ledger.turns.append(Seen(gateway.name, conversation.key, chapter, answer, hold))
        return answer

    def _gateway(self) -> Gateway:
        """As a load balancer does it: the next one."""
        return self._rotation[next(self._next) % len(self._rotation)]

    async def _strike(self, victims: Sequence[Conversation]) -> None:
        """Half-way through: the doomed gateway claims the victims' conversations, and is killed before it can confirm."""
        if not victims:
            return
        await self._half.wait()
        doomed = self._doomed
        self._rotation.remove(doomed)
        await doomed.quiet()
        firsts = [self._first(victim) for victim in victims]
        held = await asyncio.gather(
            *(self._turn(victim, 0, first.session_ids[0], doomed) for victim, first in zip(victims, firsts, strict=True))
        )
        await doomed.kill()
        killed_at = self._clock.monotonic()
        self.ledger.kill = Kill(doomed.name, doomed.pid, sum(answer.action == "bind" for answer in held))
        self._watcher.killed(self.ledger.kill)
        self.ledger.handovers.extend(
            await asyncio.gather(
                *(
                    self._inherit(victim, first, answer, killed_at)
                    for victim, first, answer in zip(victims, firsts, held, strict=True)
                )
            )
        )
        self._watcher.handed_over(self.ledger.handovers)
        await asyncio.gather(*(self._converse(victim, victim.steps[1:]) for victim in victims))

    @staticmethod
    def _first(victim: Conversation) -> Burst:
        first = victim.steps[0]
        assert isinstance(first, Burst)  # every conversation begins with requests
        return first

    async def _inherit(self, victim: Conversation, first: Burst, held: TurnDone, killed_at: float) -> Handover:
        """The other requests of the first burst, and a retry of the lost one: they wait, until one of them is told to bind."""
        answers = await self._burst(victim, 0, first)
        seconds = self._clock.monotonic() - killed_at
        heirs = [answer.fence for answer in answers if answer.action == "bind"]
        refused = False
        if held.fence is not None:
            refused = (await self._gateway().confirm(victim.key, held.fence)).refused
        return Handover(victim.key, held.fence, heirs[0] if len(heirs) == 1 else None, seconds, refused)
