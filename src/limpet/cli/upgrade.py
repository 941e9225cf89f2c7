"""``limpet upgrade``: permits the newest schema, once every replica can read it."""

from __future__ import annotations

from typing import Annotated

import typer

from limpet.cli.app import Json, app

__all__ = ["upgrade"]


@app.command(short_help="Permit the newest record format, once all replicas run this release.")
def upgrade(
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this it only says what it would do.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even though replicas are connected that cannot read the new format.")
    ] = False,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Which namespace; may be repeated [LIMPET_NAMESPACE and those of LIMPET_TOKENS].",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Permit the newest record format: the last step of a rolling upgrade.

    A new release goes on writing what the release before can read, until this command is run once, after the last replica was
    replaced. Replicas notice within seconds, without a restart. It is not undone: an older release then refuses the store.
    Asks the store itself (LIMPET_REDIS_URL), not the service. Exits with 1 when there is something to do and it was not done.

    \b
    Examples:
      limpet upgrade
      limpet upgrade --yes
    """
    from limpet.cli.upgrading import run

    return run(yes=yes, force=force, namespaces=namespace, as_json=as_json)
