"""Limpet: a Redis-backed affinity coordinator for horizontally scaled LLM gateways.

from limpet import Limpet            # asyncio; limpet.sync.Limpet is the blocking twin

async with Limpet.connect("redis://...", namespace="prod") as client:
    turn = await client.resolve("telegram:dm:42", session_id="resp_9", bind=True)
"""

from __future__ import annotations

from limpet import errors, policy, scope
from limpet.commands import Bind
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
    "errors",
    "policy",
    "scope",
]

__version__ = "0.1.0"
