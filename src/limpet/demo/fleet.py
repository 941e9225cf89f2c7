"""The driver's side of the gateway processes: start, ask, kill, and never leave one behind."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec

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
from limpet.errors import LimpetError

__all__ = ["DemoFailed", "Fleet", "Gateway"]

START_S: Final = 30.0
END_S: Final = 2.0
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Reply).decode
R = TypeVar("R", TurnDone, Advanced, Confirmed)


class DemoFailed(LimpetError):
    """The demo could not be carried out; that says nothing about the guarantees."""

    code = "demo_failed"


class Gateway:
    """One gateway process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Reply]] = {}
        self._quiet = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, setup: Setup) -> Gateway:
        """Starts the process and waits until its client is connected. Raises DemoFailed."""
        # A process group of its own: Ctrl-C is the driver's, who then ends its gateways in order.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "limpet.demo.gateway",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if os.environ.get("LIMPET_LOG_LEVEL") == "debug" else asyncio.subprocess.DEVNULL,
            process_group=0,
        )
        gateway = cls(setup.name, process)
        try:
            async with asyncio.timeout(START_S):
                await gateway._ask(0, setup)
        except BaseException as error:
            await gateway.close()
            if isinstance(error, TimeoutError):
                raise DemoFailed(f"{setup.name} did not start within {START_S:.0f} s; is the machine very busy?") from None
            raise
        return gateway

    async def turn(self, key: str, session_id: str, *, idle: bool = False, hold: bool = False) -> TurnDone:
        """One request of a conversation; with ``hold`` it ends in mid-claim."""
        number = next(self._ids)
        return self._as(TurnDone, await self._ask(number, Turn(number, key, session_id, idle, hold)))

    async def advance(self, key: str) -> Advanced:
        """``/new``."""
        number = next(self._ids)
        return self._as(Advanced, await self._ask(number, Advance(number, key)))

    async def confirm(self, key: str, fence: int) -> Confirmed:
        """A confirm that comes too late."""
        number = next(self._ids)
        return self._as(Confirmed, await self._ask(number, Confirm(number, key, fence)))

    async def quiet(self) -> None:
        """Returns once everything asked so far is answered."""
        while self._asked:
            self._quiet.clear()
            await self._quiet.wait()

    async def kill(self) -> None:
        """SIGKILL: no goodbye, no clean-up."""
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    async def close(self) -> None:
        """Ends the process: by the end of its stdin, and if that does not help by SIGKILL."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()
        finally:
            if self._process.returncode is None:  # cancelled while it was ending: it is waited for all the same
                self._process.kill()
                await self._process.wait()
            self._reader.cancel()

    def _as(self, kind: type[R], reply: Reply) -> R:
        if isinstance(reply, kind):
            return reply
        raise DemoFailed(f"{self.name}: {reply.message if isinstance(reply, Failed) else 'answered out of turn'}")

    async def _ask(self, number: int, what: Command | Setup) -> Reply:
        stdin = self._process.stdin
        if stdin is None or self._reader.done():
            raise self._lost()
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            stdin.write(_encode(what) + b"\n")
            reply = await future
        finally:
            self._asked.pop(number, None)
            if not self._asked:
                self._quiet.set()
        if isinstance(what, Setup) and isinstance(reply, Failed):
            raise DemoFailed(f"{self.name} could not start: {reply.message}")
        return reply

    async def _read(self) -> None:
        assert self._process.stdout is not None  # it was asked for
        while line := await self._process.stdout.readline():
            reply = _decode(line)
            future = self._asked.get(0 if isinstance(reply, Ready) else reply.id)
            if future is not None and not future.done():
                future.set_result(reply)
        for future in self._asked.values():
            if not future.done():
                future.set_exception(self._lost())

    def _lost(self) -> DemoFailed:
        return DemoFailed(
            f"{self.name} (pid {self.pid}) ended by itself in the middle of the demo; run it again with "
            "LIMPET_LOG_LEVEL=debug to see what it says."
        )


class Fleet:
    """All gateways. ``async with`` it; whatever happens inside, no process is left afterwards."""

    def __init__(self, setups: Sequence[Setup]) -> None:
        self._setups = setups
        self.gateways: list[Gateway] = []

    async def __aenter__(self) -> Self:
        tasks = [asyncio.create_task(Gateway.start(setup)) for setup in self._setups]
        try:
            self.gateways = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            started = await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(each.close() for each in started if isinstance(each, Gateway)))
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.gather(*(gateway.close() for gateway in self.gateways))
