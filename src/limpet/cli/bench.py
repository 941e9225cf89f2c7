"""``limpet bench``: what a part costs, measured here and now."""

from __future__ import annotations

from typing import Annotated

import typer

from limpet.cli.app import Json, app

__all__ = ["bench"]

bench = typer.Typer(no_args_is_help=True, help="Measure what a part of Limpet costs on this machine.")
app.add_typer(bench, name="bench")


@bench.callback()
def _group() -> None:
    """Measure what a part of Limpet costs on this machine."""


@bench.command()
def gateway(
    requests: Annotated[int, typer.Option(min=100, max=1_000_000, metavar="N", help="Requests per row.")] = 4000,
    as_json: Json = False,
) -> int:
    """What the gateway adds to a request: direct, passed through, and as a turn of a conversation.

    Starts an upstream, a throw-away store and a gateway, and asks all three ways at 1 and at 32 connections.
    """
    import msgspec

    from limpet.gateway.bench import run

    rows = run(requests)
    if as_json:
        typer.echo(msgspec.json.encode({"rows": rows}).decode())
        return 0
    typer.echo(f"{'':14}{'connections':>12}{'requests/s':>12}{'p50 ms':>10}{'p99 ms':>10}")
    for row in rows:
        typer.echo(f"{row.way:14}{row.concurrency:>12}{row.per_second:>12.0f}{row.p50_ms:>10.2f}{row.p99_ms:>10.2f}")
    return 0
