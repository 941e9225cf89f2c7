"""A process of a bench that has much to say: a number on stdin, as many letters on stdout."""

from __future__ import annotations

import asyncio
import sys

import msgspec
import uvloop

from limpet.bench.processes import answer


async def _text(count: int) -> str:
    await asyncio.sleep(0)
    return "x" * count


if __name__ == "__main__":
    answer(uvloop.run(_text(msgspec.json.decode(sys.stdin.buffer.read(), type=int))))
