"""``limpet bench``: what a part costs, measured here and now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from limpet.bench.model import Report, Tell
from limpet.cli.app import Json, app

__all__ = ["bench"]

bench = typer.Typer(
    invoke_without_command=True,
    epilog="Contenders take turns in one run. The ratio comes first: it depends on the machine much less than the rest does.",
)
app.add_typer(bench, name="bench", short_help="Measure what Limpet costs here, beside its peers.")


def _svg(path: Path | None) -> Path | None:
    if path is not None and path.suffix.lower() != ".svg":
        raise typer.BadParameter(f"{path.name} has to end in .svg, which is what is drawn")
    return path


Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.svg",
        help="Draw throughput and p99 against concurrency.",
        show_default=False,
        dir_okay=False,
        callback=_svg,
    ),
]
Rounds = Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Repetitions; medians and the spread are shown.")]
Store = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        metavar="URL",
        help="A server to measure on, in a namespace that is emptied afterwards [a throw-away one].",
        show_default=False,
    ),
]
Quick = Annotated[
    bool,
    typer.Option("--quick", help="One round of a hundredth of the work, at fewer loads: to see whether it runs, not to quote."),
]
HUNDREDTH = 100
QUICK = "It runs. These numbers are of a hundredth of the work, once: too little for a ratio, so no figure is judged."
PIPED = 140
"""Columns of a table that goes into a file or a pipe."""


@bench.callback()
def _group(context: typer.Context) -> None:
    """Measure what Limpet costs on this machine, beside what else would do the job.

    \b
    Examples:
      limpet bench library
      limpet bench lua --redis-url redis://localhost:6379 --json
      limpet bench http --plot http.svg
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _report(make: Callable[[Tell], Report], as_json: bool, quick: bool, plot: Path | None = None) -> int:
    import sys

    import msgspec

    from limpet.bench.table import progress, show
    from limpet.cli.output import Output

    with progress() as tell:
        report = make(tell)
    if quick:
        report = msgspec.structs.replace(report, figures=[], notes=[*report.notes, QUICK])
    if plot is not None:
        from limpet.bench.plot import draw

        plot.write_text(draw(report), encoding="utf-8")
    if as_json:
        typer.echo(msgspec.json.encode(report).decode())
    else:
        show(report, Output() if sys.stdout.isatty() else Output(width=PIPED))
        if plot is not None:
            typer.echo(f"Drawn: {plot}")
    return 0


def _less(number: int, quick: bool, least: int) -> int:
    return max(number // HUNDREDTH, least) if quick else number


def _once(rounds: int, quick: bool) -> int:
    return 1 if quick else rounds


def _few(loads: Sequence[int], quick: bool) -> tuple[int, ...]:
    """The first two, if it has to be quick."""
    return tuple(loads[:2] if quick else loads)


@bench.command(short_help="CPU of the store per call of each script.")
def lua(
    calls: Annotated[int, typer.Option(min=100, max=10_000_000, metavar="N", help="Calls per script, round and depth.")] = 20_000,
    depth: Annotated[
        list[int], typer.Option(min=1, max=10_000, metavar="N", help="Calls in flight at once; may be given several times.")
    ] = [1, 64, 256],  # noqa: B006  (typer copies it)
    rounds: Rounds = 5,
    redis_url: Store = None,
    server: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Start this redis-server or valkey-server [the bundled Valkey].", show_default=False),
    ] = None,
    quick: Quick = False,
    plot: Plot = None,
    as_json: Json = False,
) -> int:
    """What a call of each script costs the store, in CPU of its main thread, beside GET and an empty script.

    \b
    Examples:
      limpet bench lua
      limpet bench lua --server /usr/bin/redis-server --depth 64
    """
    from limpet.bench import lua as it

    return _report(
        lambda tell: it.run(
            url=redis_url,
            server=server,
            calls=_less(calls, quick, 100),
            depths=_few(depth, quick),
            rounds=_once(rounds, quick),
            tell=tell,
        ),
        as_json,
        quick,
        plot,
    )


@bench.command(short_help="Resolves of one process, beside redis-py.")
def library(
    calls: Annotated[int, typer.Option(min=100, max=10_000_000, metavar="N", help="Resolves per round.")] = 20_000,
    concurrency: Annotated[
        list[int], typer.Option(min=1, max=10_000, metavar="N", help="Tasks at once; may be given several times.")
    ] = [1, 8, 64, 512],  # noqa: B006
    rounds: Rounds = 5,
    redis_url: Store = None,
    quick: Quick = False,
    plot: Plot = None,
    as_json: Json = False,
) -> int:
    """Concurrent resolves of one process, beside redis-py sending the very same script call.

    \b
    Examples:
      limpet bench library
      limpet bench library --concurrency 64 --rounds 3 --plot library.svg
    """
    from limpet.bench import library as it

    return _report(
        lambda tell: it.run(
            url=redis_url,
            calls=_less(calls, quick, 200),
            concurrencies=_few(concurrency, quick),
            rounds=_once(rounds, quick),
            tell=tell,
        ),
        as_json,
        quick,
        plot,
    )


@bench.command(short_help="The service, beside a constant answer and FastAPI.")
def http(
    requests: Annotated[
        int, typer.Option(min=100, max=10_000_000, metavar="N", help="Requests per contender and round.")
    ] = 20_000,
    concurrency: Annotated[
        list[int], typer.Option(min=1, max=10_000, metavar="N", help="Connections at once; may be given several times.")
    ] = [8, 64, 256],  # noqa: B006
    workers: Annotated[
        int, typer.Option(min=1, max=64, metavar="N", help="Also measure a service of so many processes, above 1.")
    ] = 1,
    rounds: Rounds = 3,
    redis_url: Store = None,
    quick: Quick = False,
    plot: Plot = None,
    as_json: Json = False,
) -> int:
    """The service in one process, beside the same server answering a constant, and beside FastAPI with redis-py.

    Then the p99 of continue and of bind at half the rate at which each saturates, with and without waiting for a replica.
    FastAPI is measured where it is installed: uv run --group bench limpet bench http.

    \b
    Examples:
      limpet bench http
      limpet bench http --concurrency 64 --workers 2 --json
    """
    from limpet.bench import http as it

    return _report(
        lambda tell: it.run(
            url=redis_url,
            requests=_less(requests, quick, 300),
            concurrencies=_few(concurrency, quick),
            workers=workers,
            rounds=_once(rounds, quick),
            tell=tell,
        ),
        as_json,
        quick,
        plot,
    )


@bench.command(short_help="What the gateway adds to a request.")
def gateway(
    requests: Annotated[int, typer.Option(min=100, max=1_000_000, metavar="N", help="Requests per row and round.")] = 4000,
    rounds: Rounds = 5,
    redis_url: Store = None,
    quick: Quick = False,
    plot: Plot = None,
    as_json: Json = False,
) -> int:
    """What the gateway adds to a request: direct, passed through, and as a turn of a conversation.

    \b
    Examples:
      limpet bench gateway
      limpet bench gateway --rounds 3 --plot gateway.svg
    """
    from limpet.bench import gateway as it

    return _report(
        lambda tell: it.run(
            url=redis_url,
            requests=_less(requests, quick, 100),
            connections=_few(it.CONNECTIONS, quick),
            rounds=_once(rounds, quick),
            tell=tell,
        ),
        as_json,
        quick,
        plot,
    )


@bench.command(short_help="Bytes per conversation, and what many short ones leave.")
def memory(
    conversations: Annotated[
        int, typer.Option(min=1000, max=100_000_000, metavar="N", help="Short conversations, one after the other.")
    ] = 1_000_000,
    redis_url: Store = None,
    quick: Quick = False,
    as_json: Json = False,
) -> int:
    """Bytes per conversation in the store and per memo entry, and what a great many short conversations leave.

    \b
    Examples:
      limpet bench memory
      limpet bench memory --conversations 100000
    """
    from limpet.bench import memory as it

    return _report(lambda tell: it.run(url=redis_url, n=_less(conversations, quick, 1000), tell=tell), as_json, quick)


@bench.command(short_help="The same job by locks, SET NX, Redlock, a dict.")
def peers(
    sessions: Annotated[int, typer.Option(min=10, max=1_000_000, metavar="N", help="Sessions per contender and round.")] = 2000,
    rounds: Rounds = 3,
    quick: Quick = False,
    as_json: Json = False,
) -> int:
    """The same job by what people use now: Redis locks, SET NX, Redlock, a table per process. With what each lets through.

    \b
    Examples:
      limpet bench peers
      limpet bench peers --sessions 500 --json
    """
    from limpet.bench import peers as it

    processes = 2 if quick else it.PROCESSES
    return _report(
        lambda tell: it.run(sessions=_less(sessions, quick, 40), rounds=_once(rounds, quick), processes=processes, tell=tell),
        as_json,
        quick,
    )


@bench.command(short_help="What it costs that somebody else has a decision.")
def durability(
    calls: Annotated[int, typer.Option(min=100, max=1_000_000, metavar="N", help="Advances per way and round.")] = 5000,
    rounds: Rounds = 3,
    quick: Quick = False,
    plot: Plot = None,
    as_json: Json = False,
) -> int:
    """What a decision costs when somebody has to have it before it is answered.

    \b
    Examples:
      limpet bench durability
      limpet bench durability --calls 1000
    """
    from limpet.bench import durability as it

    return _report(
        lambda tell: it.run(calls=_less(calls, quick, 100), rounds=_once(rounds, quick), tell=tell), as_json, quick, plot
    )


@bench.command(short_help="Cost against conversations stored and primaries.")
def scale(
    conversations: Annotated[
        int, typer.Option(min=1000, max=20_000_000, metavar="N", help="The most conversations stored.")
    ] = 1_000_000,
    calls: Annotated[int, typer.Option(min=100, max=10_000_000, metavar="N", help="Calls per size and round.")] = 50_000,
    rounds: Rounds = 5,
    quick: Quick = False,
    plot: Plot = None,
    as_json: Json = False,
) -> int:
    """The cost of a call against the conversations stored, and against the number of primaries.

    \b
    Examples:
      limpet bench scale
      limpet bench scale --conversations 100000 --rounds 3
    """
    from limpet.bench import scale as it

    return _report(
        lambda tell: it.run(
            n=_less(conversations, quick, 2000),
            calls=_less(calls, quick, 300),
            primaries=_few(it.PRIMARIES, quick),
            rounds=_once(rounds, quick),
            tell=tell,
        ),
        as_json,
        quick,
        plot,
    )
