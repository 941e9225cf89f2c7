"""What ``limpet upgrade`` does: looks at every namespace, then permits the newest schema where that is wanted."""

from __future__ import annotations

import asyncio
from typing import Any

from limpet.cli.chosen import chosen_store, client_settings
from limpet.cli.render import console, print_json
from limpet.coordinator import Limpet
from limpet.settings import Settings
from limpet.upgrade import look, permit

__all__ = ["run"]


def run(*, yes: bool, force: bool, namespaces: list[str] | None, as_json: bool) -> int:
    """See the command."""
    settings = Settings.load()
    names = namespaces or [settings.namespace, *(token.namespace for token in settings.tokens)]
    with chosen_store(settings) as (url, note):
        found = asyncio.run(_upgrade(url, settings, list(dict.fromkeys(names)), yes=yes, force=force))
    if as_json:
        print_json({"namespaces": found, "embedded": note is not None})
    else:
        from rich.text import Text

        for line in (*filter(None, [note]), *map(_sentence, found)):
            console().print(Text(line), soft_wrap=True)
    return 1 if any(each["due"] and not each["done"] for each in found) else 0


async def _upgrade(url: str, settings: Settings, names: list[str], *, yes: bool, force: bool) -> list[dict[str, Any]]:
    """Looks at all of them before anything is changed in one."""
    found = []
    clients = [Limpet.connect(url, **client_settings(settings, name)) for name in names]
    try:
        outlooks = [await look(client) for client in clients]
        for client, outlook in zip(clients, outlooks, strict=True):
            done, durable = False, None
            if outlook.due and yes and (force or not outlook.behind):
                durable = await permit(client, outlook.target)
                done = True
            found.append(
                {
                    "namespace": outlook.namespace,
                    "schema": outlook.target if done else outlook.schema,
                    "target": outlook.target,
                    "due": outlook.due,
                    "done": done,
                    "durable": durable,
                    "behind": outlook.behind,
                }
            )
    finally:
        for client in clients:
            await client.close()
    return found


def _sentence(found: dict[str, Any]) -> str:
    who, now, target, behind = f"Namespace {found['namespace']}", found["schema"], found["target"], found["behind"]
    if now == 0:
        return f"{who} is not set up in this store; nothing to do."
    if found["done"]:
        last = "" if found["durable"] is not False else " No replica has acknowledged that yet: run this again after a failover."
        return f"{who} may now be written in schema {target}; replicas do so within seconds.{last}"
    if not found["due"]:
        return f"{who} is written in schema {now}, the newest of this release; nothing to do."
    if behind:
        return (
            f"{who} is written in schema {now}. Replicas that cannot read schema {target} are connected ({', '.join(behind)}); "
            "replace them first, or say --yes --force and have them refuse what they cannot read."
        )
    seen = (
        "No replica that cannot read it is connected."
        if behind is not None
        else "This user may not see who is connected (CLIENT LIST): make sure that no replica of the release before is left."
    )
    return f"{who} is written in schema {now} and would be in schema {target}, for good. {seen} Say --yes to do it."
