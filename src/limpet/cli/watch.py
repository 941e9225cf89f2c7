"""``limpet watch``: what happens, as it happens."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from limpet.cli.app import Json, Namespace, Url, app

__all__ = ["watch"]


class EventKind(StrEnum):
    """What ``GET /v1/events`` tells."""

    advance = "advance"
    bind = "bind"
    rebind = "rebind"
    release = "release"
    suspend = "suspend"
    forget = "forget"
    worker = "worker"
    drain = "drain"


@app.command(short_help="Follow what happens.")
def watch(
    kind: Annotated[
        list[EventKind] | None,
        typer.Option("--kind", "-k", metavar="KIND", help="Only this kind; may be repeated.", show_default=False),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after so many events.", show_default=False)] = None,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Follow what happens: advances, binds, rebinds, releases, workers, drains. Keys never show; their digests do.

    With --json one document per line. Goes on by itself when the connection breaks, and says so if it may have missed something.

    \b
    Examples:
      limpet watch
      limpet watch -k worker -k drain
      limpet watch --json | jq -r 'select(.kind == "rebind") | .worker'
    """
    from limpet.cli.watching import watch as run

    kinds = tuple(each.value for each in kind or ())
    return run(kinds=kinds, count=count, url=url, namespace=namespace, as_json=as_json)
