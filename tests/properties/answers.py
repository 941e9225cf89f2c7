"""What a call answered, in the model's words."""

from __future__ import annotations

import hashlib
from typing import Any

from limpet.errors import LimpetError
from limpet.results import Binding, Resolution

from .calls import Told
from .ledger import Broken
from .port import GRANULARITY_MS


def outcome(op: str, result: Any, refusal: LimpetError | None) -> str:
    """What came of a call, in a word or two, to see that the histories meet everything."""
    if refusal is not None:
        return f"{op} {refusal.code}"
    if isinstance(result, Resolution):
        held = result.binding
        return f"{op} {result.reset.reason if result.reset else ''} {held.action if held else ''}"
    return f"{op} {getattr(result, 'applied', '')}"


def expect_scope(scope: str | None, prefix: str, text: str) -> None:
    """The scope by the design's formula (section 2), in a namespace that is not the default one."""
    want = prefix + hashlib.sha256(f"histories\0{text}".encode()).hexdigest()[:24]
    if scope != want:
        raise Broken("scope", f"{scope}, not {want} for {text}")


def plain_binding(held: Binding | None) -> dict[str, Any] | None:
    if held is None:
        return None
    names = ("action", "state", "worker", "holder", "dp_rank", "fence", "expires_in_ms")
    return {name: getattr(held, name) for name in names}


def round_up(got: dict[str, Any] | None, want: dict[str, Any] | None) -> None:
    """A turn that wrote nothing may be told a binding's remaining time as of the last activity: less than a granularity too much,
    and it holds that much longer."""
    if got and want and got["state"] == "bound" and 0 <= got["expires_in_ms"] - want["expires_in_ms"] < GRANULARITY_MS:
        got["expires_in_ms"] = want["expires_in_ms"]


def plain(told: Told, result: Any) -> Any:
    """A result as the model writes it."""
    if result is None or isinstance(result, bool):
        return result
    if told.op in ("resolve", "peek"):
        if told.slot[0] == "sess":
            return {"binding": plain_binding(result.binding)}
        reset = result.reset
        return {
            "epoch": result.epoch,
            "ordinal": result.ordinal,
            "created": result.created,
            "epoch_reason": result.epoch_reason,
            "reset": reset
            and {
                "reason": reset.reason,
                "previous_epoch": reset.previous_epoch,
                "new_conversation": reset.new_conversation,
            },
            "binding": plain_binding(result.binding),
        }
    names = {
        "advance": ("epoch", "ordinal", "previous_epoch", "applied"),
        "suspend": ("epoch", "applied"),
        "forget": ("epoch", "applied"),
    }.get(told.op, ("state", "fence", "worker", "dp_rank"))
    return {name: getattr(result, name) for name in names}
