"""``limpet bench lua``: what one call of a script costs the server, in CPU of its main thread, beside GET and an empty script."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from limpet.bench.alternate import alternate
from limpet.bench.model import ROUNDS, SILENT, Report, Row, Sample, Tell, figure, machine, rows_of
from limpet.bench.pipe import Pipe
from limpet.bench.place import Place, cpu_us, place, version
from limpet.bench.seeding import bound, packed
from limpet.bind import Bind
from limpet.calls import Call, Target
from limpet.commands import Commands

__all__ = ["run"]

DEPTHS: Final = (1, 16, 256)
USUAL: Final = 64
"""About as many calls as one write of a busy client holds: the depth that the figures are taken at."""
HOUR_MS: Final = 3_600_000
FEWER: Final = 5
"""A call that writes is made this many times less often."""
Build = Callable[[int], Sequence[bytes]]


def run(
    *, url: str | None = None, calls: int = 20_000, depths: Sequence[int] = DEPTHS, rounds: int = ROUNDS, tell: Tell = SILENT
) -> Report:
    """``calls``: of each kind, per round and depth."""
    with place(url) as where, Pipe(where.redis) as pipe:
        rows: list[Row] = []
        builds = _cases(where, pipe)
        for depth in depths:
            cases = {
                name: _measured(where, pipe, build, max(calls // fewer, depth), depth) for name, (build, fewer) in builds.items()
            }
            rows += rows_of(alternate(cases, rounds, tell, f"depth {depth}"), baseline="GET", unit="us", load=depth)
        usual = USUAL if USUAL in depths else max(depths)
        deepest = {row.case: row for row in rows if row.load == usual}
        figures = [
            figure(
                f"server CPU of an unchanged resolve ({name}) against GET, depth {usual}", deepest[case].ratio or 0, 5, 3.5, "low"
            )
            for name, case in (("bound", "resolve, bound"), ("unbound", "resolve, unbound"))
        ]
        return Report(
            bench="lua",
            title="CPU of the store's main thread per call, by pipeline depth; ratio to GET (less is better)",
            rows=rows,
            figures=figures,
            notes=["At depth 1 the system calls of one command are most of it. Times are from INFO cpu, before and after."],
            machine=machine(version(where.redis)),
        )


def _measured(where: Place, pipe: Pipe, build: Build, calls: int, depth: int) -> Callable[[], Sample]:
    def once() -> Sample:
        commands = build(calls)
        before = cpu_us(where.redis)
        pipe.run(commands, depth)
        return Sample((cpu_us(where.redis) - before) / calls)

    return once


def _cases(where: Place, pipe: Pipe) -> dict[str, tuple[Build, int]]:
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

    def fenced(make: Callable[[Target, int], Call[Any]], *, commit: bool = False) -> Build:
        """A call for each of as many claims, or bindings, made for it beforehand."""

        def build(calls: int) -> list[bytes]:
            targets = [calm.declared(f"claimed {next(numbers)}") for _ in range(calls)]
            bind = Bind(worker="w", commit=commit)
            asks = [calm.resolve(target, session_id="s", bind=bind, request_id="r", look_up=False) for target in targets]
            told = [ask.parse(reply) for ask, reply in zip(asks, pipe.run([packed(ask) for ask in asks], 256), strict=True)]
            return [packed(make(target, answer.fence)) for target, answer in zip(targets, told, strict=True)]

        return build

    def known(make: Callable[[Target], Call[Any]]) -> Build:
        """A call for each of as many conversations, begun for it beforehand."""
        return fenced(lambda target, _: make(target))

    register = calm.register("worker", "pool", "", 1.0, "", {}, 15_000)
    pipe.run([packed(register)], 1)
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
        "confirm": (fenced(lambda target, fence: calm.confirm(target, fence, worker="w", request_id="c")), FEWER),
        "renew": (fenced(lambda target, fence: calm.renew(target, fence, ttl_ms=900_000), commit=True), FEWER),
        "abort": (fenced(lambda target, fence: calm.abort(target, fence, request_id="a")), FEWER),
        "release": (fenced(lambda target, fence: calm.release(target, fence, request_id="a"), commit=True), FEWER),
        "rebind": (fenced(lambda target, fence: calm.rebind(target, fence, reason="lost", request_id="b"), commit=True), FEWER),
        "advance": (each(lambda rid: packed(calm.advance(calm.declared("advanced"), "new", request_id=rid))), FEWER),
        "suspend": (known(lambda target: calm.suspend(target, window_ms=60_000, request_id="s")), FEWER),
        "forget": (known(lambda target: calm.forget(target, request_id="f")), FEWER),
        "response link": (each(lambda rid: packed(calm.link_response(f"resp_{rid}", "bound"))), FEWER),
        "response find": (each(lambda rid: packed(calm.find_response("resp_00000000"))), FEWER),
        "heartbeat": (same(packed(calm.heartbeat("worker"))), FEWER),
    }
