"""A replica in a process of its own, of whichever release PYTHONPATH names: a line of JSON in, a line of JSON out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys

import msgspec
import structlog

import limpet
from limpet import Limpet, plumbing
from limpet.errors import LimpetError

plumbing.WATCH_EVERY_S = 0.05
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


async def main(url: str) -> None:
    """Answers until its input ends."""
    loop = asyncio.get_running_loop()
    client = Limpet.connect(url, partitions=4, deadline_ms=3000)
    print(json.dumps(limpet.__file__), flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        name, arguments, options = json.loads(line)
        try:
            if name == "writes":
                answer = client.commands.writes
            elif name == "drain":
                answer = msgspec.to_builtins([each async for each in client.drain(*arguments)][-1])
            else:
                answer = msgspec.to_builtins(await getattr(client, name)(*arguments, **options))
            print(json.dumps({"answer": answer}), flush=True)
        except LimpetError as error:
            print(json.dumps({"error": error.code, "words": str(error)}), flush=True)
    with contextlib.suppress(LimpetError):
        await client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
