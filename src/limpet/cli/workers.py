"""``limpet workers`` and ``limpet drain``: the fleet."""

from __future__ import annotations

from typing import Annotated

import typer

from limpet.cli.app import Json, Namespace, Url, app

__all__ = ["drain", "workers"]


@app.command(short_help="Show the workers and what is bound to them.")
def workers(url: Url = None, namespace: Namespace = None, as_json: Json = False) -> int:
    """Show the registered workers: state, live bindings, capacity, heartbeat.

    \b
    Examples:
      limpet workers
      limpet workers --json | jq '.workers[] | select(.state == "gone")'
    """
    from limpet.cli.fleet import workers as run

    return run(url=url, namespace=namespace, as_json=as_json)


@app.command(short_help="Take a worker's conversations off it, and say when it may stop.")
def drain(
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="The worker's name.")],
    undo: Annotated[bool, typer.Option("--undo", help="Let it take new conversations again.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow it until the worker may stop.")] = True,
    timeout_s: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to follow it.")] = 600.0,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Take a worker's conversations off it in bounded batches, and say when it may stop.

    Each conversation is bound elsewhere in its next turn, once. Interrupting this does not interrupt the drain; running it again
    goes on. Exits with 0 once the worker may stop, with 1 if it may not within the time.

    \b
    Examples:
      limpet drain gpu-3 && ssh gpu-3 systemctl stop worker
      limpet drain gpu-3 --undo
    """
    from limpet.cli import fleet

    if undo:
        return fleet.undrain(worker, url=url, namespace=namespace, as_json=as_json)
    return fleet.drain(worker, wait=wait, timeout_s=timeout_s, url=url, namespace=namespace, as_json=as_json)
