"""``limpet bench lua``: what one call of a script costs the server, in CPU of its main thread, beside GET and an empty script."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from limpet.bench.alternate import alternate
from limpet.bench.model import ROUNDS, SILENT, Report, Row, Sample, Tell, figure, machine, rows_of
from limpet.bench.pipe import Pipe
from limpet.bench.place import Place, cpu_us, place, version
from limpet.bench.seeding import bound, packed, unbound
from limpet.bench.servers import running
from limpet.bind import Bind
from limpet.calls import Answer, Call, Target
from limpet.commands import Commands
from limpet.errors import InvalidRequest

__all__ = ["cases_of", "run"]

DEPTHS: Final = (1, 64, 256)
QUOTED: Final = 64
"""The depth whose ratios are the figures, where it is measured."""
HOUR_MS: Final = 3_600_000
FEWER: Final = 5
"""A call that writes is made this many times less often."""
Build = Callable[[int], Sequence[bytes]]


def run(
    *,
    url: str | None = None,
    server: Path | None = None,
    calls: int = 20_000,
    depths: Sequence[int] = DEPTHS,
    rounds: int = ROUNDS,
    tell: Tell = SILENT,
) -> Report:
    """``calls``: of each kind, per round and depth. ``server``: the program of a server to start instead of the bundled one.

    Raises InvalidRequest for both a URL and a program.
    """
    if server is not None and url is not None:
        raise InvalidRequest("Name a server that runs (--redis-url) or one to start (--server), not both.", field="server")
    with contextlib.ExitStack() as stack:
        if server is not None:
            (started,) = stack.enter_context(running((), binary=server))
            url = started.url
        where = stack.enter_context(place(url))
        pipe = stack.enter_context(Pipe(where.redis))
        rows: list[Row] = []
        builds = cases_of(where, pipe)
        for depth in depths:
            cases = {
                name: _measured(where, pipe, build, max(calls // fewer, depth), depth) for name, (build, fewer) in builds.items()
            }
            rows += rows_of(alternate(cases, rounds, tell, f"depth {depth}"), baseline="GET", unit="us", load=depth)
        quoted = QUOTED if QUOTED in depths else max(depths)
        costs = {row.case: row.ratio or 0 for row in rows if row.load == quoted}
        figures = [
            figure(f"server CPU of an unchanged resolve ({name}) against GET, depth {quoted}", costs[case], 5, 3.5, "low")
            for name, case in (("bound", "resolve, bound"), ("unbound", "resolve, unbound"))
        ]
        return Report(
            bench="lua",
            title="CPU of the store's main thread per call, by pipeline depth; ratio to GET (less is better)",
            rows=rows,
            figures=figures,
            notes=["At depth 1 the system calls of one command are most of it. Times are from INFO cpu, before and after."],
            machine=machine(version(where.redis)),
            axes={"": "calls in flight (pipeline depth)"},
        )


def _measured(where: Place, pipe: Pipe, build: Build, calls: int, depth: int) -> Callable[[], Sample]:
    def once() -> Sample:
        commands = build(calls)
        before = cpu_us(where.redis)
        pipe.run(commands, depth)
        return Sample((cpu_us(where.redis) - before) / calls)

    return once


def cases_of(where: Place, pipe: Pipe) -> dict[str, tuple[Build, int]]:
    calm = Commands(namespace=where.namespace, granularity_ms=HOUR_MS)
    busy = Commands(namespace=where.namespace, granularity_ms=0)  # every turn is an activity to be written
    numbers = itertools.count()
    held, plain, touched = (calm.declared(name) for name in ("bound", "unbound", "touched"))
    bound(pipe, calm, [held])
    bound(pipe, busy, [touched])
    pipe.run([packed(calm.resolve(plain, session_id="s", request_id="first"))], 1)
    record = calm.resolve(held, session_id="s").keys[0]

    def same(command: bytes) -> Build:
        return lambda calls: [command] * calls

    def each(make: Callable[[str], bytes]) -> Build:
        return lambda calls: [make(f"{next(numbers):08x}") for _ in range(calls)]

    def turn(commands: Commands, target: str, bind: Bind | None) -> Build:
        return each(
            lambda rid: packed(
                commands.resolve(commands.declared(target), session_id="s", bind=bind, request_id=rid, look_up=False)
            )
        )

    def fenced(make: Callable[[Target, int], Call[Any]], bind: Bind) -> Build:
        """Each call on a claim or binding of its own, which is made before the clock runs."""

        def build(calls: int) -> list[bytes]:
            targets = [calm.declared(f"fenced {next(numbers)}") for _ in range(calls)]
            asks = [calm.resolve(target, session_id="s", bind=bind, request_id="r", look_up=False) for target in targets]
            replies = pipe.run([packed(ask) for ask in asks], 256)
            fences = [ask.parse(reply).fence for ask, reply in zip(asks, replies, strict=True)]
            return [packed(make(target, fence)) for target, fence in zip(targets, fences, strict=True)]

        return build

    def fresh(make: Callable[[Target], Call[Any]]) -> Build:
        """Each call on an unbound conversation of its own, made before."""

        def build(calls: int) -> list[bytes]:
            targets = [calm.declared(f"fresh {next(numbers)}") for _ in range(calls)]
            unbound(pipe, calm, targets)
            return [packed(make(target)) for target in targets]

        return build

    def answer(target: Target) -> Answer:
        ask = calm.peek(target)
        return ask.parse(pipe.run([packed(ask)], 1)[0])

    claim, kept = Bind(), Bind(worker="w", commit=True)
    worker = calm.register("worker", "pool", "http://w", 1.0, "i", {}, 60_000)
    pipe.run([packed(worker), packed(calm.link_response("linked", "bound"))], 2)
    empty = where.redis.script_load("return 1")
    return {
        "GET": (same(packed(("GET", record))), 1),
        "empty script": (same(packed(("EVALSHA", empty, 0))), 1),
        "resolve, bound": (turn(calm, "bound", Bind()), 1),
        "resolve, unbound": (turn(calm, "unbound", None), 1),
        "peek": (same(packed(calm.peek(held))), 1),
        "resolve, touch of a bound one": (turn(busy, "touched", Bind()), FEWER),
        "resolve, first turn": (
            each(lambda rid: packed(calm.resolve(calm.declared(f"n {rid}"), session_id="s", request_id=rid, look_up=False))),
            FEWER,
        ),
        "resolve, first turn with bind": (
            each(
                lambda rid: packed(
                    calm.resolve(calm.declared(f"b {rid}"), session_id="s", bind=Bind(), request_id=rid, look_up=False)
                )
            ),
            FEWER,
        ),
        "confirm": (fenced(lambda target, fence: calm.confirm(target, fence, worker="w", request_id="c"), claim), FEWER),
        "abort": (fenced(lambda target, fence: calm.abort(target, fence, request_id="c"), claim), FEWER),
        "release": (fenced(lambda target, fence: calm.release(target, fence, request_id="c"), kept), FEWER),
        "rebind": (fenced(lambda target, fence: calm.rebind(target, fence, "lost", worker="v", request_id="c"), kept), FEWER),
        "renew": (same(packed(busy.renew(touched, answer(touched).fence))), FEWER),
        "touch of the memo": (same(packed(busy.touch(touched, answer(touched).epoch, age_us=0, ttl_ms=300_000))), FEWER),
        "suspend": (fresh(lambda target: calm.suspend(target, request_id="c")), FEWER),
        "forget": (fresh(lambda target: calm.forget(target, request_id="c")), FEWER),
        "heartbeat": (same(packed(calm.heartbeat("worker", "i"))), FEWER),
        "response_link": (each(lambda rid: packed(calm.link_response(rid, "bound"))), FEWER),
        "response_find": (same(packed(calm.find_response("linked"))), FEWER),
        "advance": (each(lambda rid: packed(calm.advance(calm.declared("advanced"), "new", request_id=rid))), FEWER),
    }
