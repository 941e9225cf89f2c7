"""Limpet: a Redis-backed affinity coordinator for horizontally scaled LLM gateways.

    from limpet import Limpet            # asyncio; limpet.sync.Limpet is the blocking twin

    async with Limpet.connect("redis://...", namespace="prod") as client:
        turn = await client.resolve("telegram:dm:42", session_id="resp_9", bind=True)

What it exports is imported on first use (PEP 562): ``limpet --help`` should not pay for a Redis client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limpet import cache_bust, context, errors, fence, policy, scope, sync, wire
    from limpet.bind import Bind
    from limpet.coordinator import Limpet
    from limpet.errors import LimpetError, StaleFence, StoreUnavailable
    from limpet.policy import Policy
    from limpet.results import Advanced, Binding, Forgotten, Reset, Resolution, Suspended

__all__ = [
    "Advanced",
    "Bind",
    "Binding",
    "Forgotten",
    "Limpet",
    "LimpetError",
    "Policy",
    "Reset",
    "Resolution",
    "StaleFence",
    "StoreUnavailable",
    "Suspended",
    "cache_bust",
    "context",
    "errors",
    "fence",
    "policy",
    "scope",
    "sync",
    "wire",
]

__version__ = "0.1.0"

_MODULES = frozenset({"cache_bust", "context", "errors", "fence", "policy", "scope", "sync", "wire"})
_HOMES = {
    "Advanced": "results",
    "Bind": "bind",
    "Binding": "results",
    "Forgotten": "results",
    "Limpet": "coordinator",
    "LimpetError": "errors",
    "Policy": "policy",
    "Reset": "results",
    "Resolution": "results",
    "StaleFence": "errors",
    "StoreUnavailable": "errors",
    "Suspended": "results",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"limpet.{name}")
    if name in _HOMES:
        value = getattr(import_module(f"limpet.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'limpet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
