"""One gateway replica of the demo: ``python -m limpet.demo.gateway``, driven by lines on stdin.

It ends when its stdin does, so that no driver, however it died, leaves one behind.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from contextlib import suppress
from typing import IO, Final

import msgspec
import structlog

from limpet.bind import Bind
from limpet.clock import SystemClock
from limpet.coordinator import Limpet
from limpet.demo.alone import Table
from limpet.demo.protocol import (
    Advance,
    Advanced,
    Command,
    Confirm,
    Confirmed,
    Failed,
    Ready,
    Reply,
    Setup,
    Turn,
    TurnDone,
)
from limpet.errors import LimpetError, StaleFence
from limpet.policy import Policy
from limpet.results import Resolution

__all__ = ["main"]

DEADLINE_MS: Final = 5000
"""Generous: the demo shows coordination, and must not degrade because the machine is busy."""
WAIT_MS: Final = 20_000
DISPATCH_S: Final = (0.005, 0.02)
"""How long the pretended worker takes to its first byte."""

_decode: Final = msgspec.json.Decoder(Command).decode
_encode: Final = msgspec.json.Encoder().encode


class Gateway:
    """The replica: a client of the coordinator beside a table of its own."""

    def __init__(self, setup: Setup, client: Limpet, out: IO[bytes]) -> None:
        self._client = client
        self._out = out
        self._table = Table(setup.workers, setup.idle_s, SystemClock(), setup.seed)
        self._idle = Policy(idle_s=setup.idle_s)
        self._random = random.Random(setup.seed)

    def say(self, reply: Reply) -> None:
        """One line to the driver. Lines are far below a pipe's buffer, and the driver reads all the time."""
        with suppress(BrokenPipeError):  # the driver is gone; so is our stdin, which ends us
            self._out.write(_encode(reply) + b"\n")

    async def handle(self, command: Command) -> None:
        """Carries out one command and answers it."""
        try:
            match command:
                case Turn():
                    self.say(await self._turn(command))
                case Advance():
                    self._table.forget(command.key)
                    advanced = await self._client.advance(command.key, "new")
                    self.say(Advanced(command.id, advanced.epoch, advanced.applied))
                case Confirm():
                    self.say(Confirmed(command.id, await self._refused(command)))
        except LimpetError as error:
            self.say(Failed(command.id, str(error)))

    async def _turn(self, command: Turn) -> TurnDone:
        worker, picked = self._table.pick(command.key, idle=command.idle)
        bind = Bind(worker=worker, wait_ms=WAIT_MS)
        policy = self._idle if command.idle else None
        if command.hold:
            resolution = await self._client.resolve(command.key, session_id=command.session_id, policy=policy, bind=bind)
            return self._done(command, resolution, worker, picked, bound=False)
        turn = self._client.turn(command.key, session_id=command.session_id, policy=policy, bind=bind)
        async with turn:
            resolution = turn.resolution
            claimed = resolution.binding is not None and resolution.binding.action == "bind"
            if claimed:
                await asyncio.sleep(self._random.uniform(*DISPATCH_S))
        bound = claimed and not turn.lost and turn.binding is not None and turn.binding.state == "bound"
        return self._done(command, resolution, worker, picked, bound=bound)

    def _done(self, command: Turn, resolution: Resolution, worker: str, picked: bool, *, bound: bool) -> TurnDone:
        binding = resolution.binding
        return TurnDone(
            id=command.id,
            epoch=resolution.epoch,
            scope=resolution.scope,
            created=resolution.created,
            reset=None if resolution.reset is None else resolution.reset.reason,
            action=None if binding is None else binding.action,
            worker=None if binding is None else binding.worker,
            fence=None if binding is None else binding.fence,
            bound=bound,
            degraded=resolution.degraded,
            alone_worker=worker,
            alone_picked=picked,
            alone_scope=self._table.scope(command.session_id),
        )

    async def _refused(self, command: Confirm) -> bool:
        try:
            await self._client.confirm(command.key, fence=command.fence)
        except StaleFence:
            return True
        return False


async def _serve(setup: Setup, lines: asyncio.StreamReader, out: IO[bytes]) -> int:
    client = Limpet.connect(
        setup.url,
        namespace=setup.namespace,
        partitions=setup.partitions,
        touch_granularity_ms=setup.touch_granularity_ms,
        claim_ttl_ms=setup.claim_ttl_ms,
        deadline_ms=DEADLINE_MS,
        retention_s=3600,
        holder=setup.name,
    )
    gateway = Gateway(setup, client, out)
    try:
        await client.open()
    except LimpetError as error:
        gateway.say(Failed(0, str(error)))
        await client.close()
        return 1
    gateway.say(Ready(os.getpid()))
    try:
        async with asyncio.TaskGroup() as group:
            tasks: set[asyncio.Task[None]] = set()
            while line := await lines.readline():
                task = group.create_task(gateway.handle(_decode(line)))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            for task in tasks:  # whoever asked is gone
                task.cancel()
    finally:
        await client.close()
    return 0


async def _run(out: IO[bytes]) -> int:
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    first = await lines.readline()
    return await _serve(msgspec.json.decode(first, type=Setup), lines, out) if first else 0


def main() -> int:
    """Until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which then ends us
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    sys.stdout = sys.stderr  # whatever prints must not end up between the lines
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    return asyncio.run(_run(out))


if __name__ == "__main__":
    sys.exit(main())
