"""One logical call in two languages: what the library sends to the store, and what the model is asked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from limpet.bind import Bind
from limpet.calls import Call
from limpet.policy import NONE, Policy

from .model import Ask, Model, Slot
from .port import Port

MS = 1000
ASKS = {
    "none": None,
    "short": Ask(60_002 * MS, 10_002 * MS, "w1"),
    "long": Ask(300_002 * MS, 10_002 * MS, None),
    "brief": Ask(60_002 * MS, 2_002 * MS, "w2"),
    "commit": Ask(60_002 * MS, 10_002 * MS, "w3", commit=True),
}
_DAILY = {"at": "04:00", "tz": "UTC"}
POLICIES = {
    "none": NONE,
    "idle": Policy.parse({"idle_s": 300}),
    "daily": Policy.parse({"daily": _DAILY}),
    "both": Policy.parse({"idle_s": 3600, "daily": _DAILY}),
    "long": Policy.parse({"idle_s": 3 * 86_400}),
}
SKEW = {0: timedelta(0), 1: timedelta(hours=20), 2: timedelta(hours=-20)}  # what the clients' own clocks are off by


@dataclass
class Told:
    """One logical call; a retry sends the same."""

    number: int
    op: str
    slot: Slot
    client: int
    request_id: str | None
    args: dict[str, Any]
    lost: bool = False


def real(port: Port, told: Told, now: int, *, retry: bool) -> Call[Any]:
    """The call as the library builds it."""
    commands, target, a = port.commands, port.target(told.slot), told.args
    common: dict[str, Any] = {"request_id": told.request_id or "", "now_us": now}
    durable = told.number % 5 == 0  # asks for a rewrite of what stands; it must change no answer
    match told.op:
        case "resolve":
            ask = ASKS[a["bind"]]
            bind = None
            if ask is not None:
                bind = Bind(
                    worker=ask.worker,
                    holder=f"replica-{told.client}",
                    ttl_ms=ask.ttl_us // MS,
                    claim_ttl_ms=ask.claim_us // MS,
                    commit=ask.commit,
                )
            # A caller's own request id is looked up at once; one that the library made only in a retry.
            return commands.resolve(
                target,
                session_id=told.slot[1],
                policy=POLICIES[a["policy"]],
                now=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=now) + SKEW[told.client],
                exempt=a["exempt"],
                seen_epoch=a["seen"] or 0,
                remembered_epoch=a["remembered"] or 0,
                bind=bind,
                look_up=retry or told.number % 2 == 0,
                durable=durable,
                **common,
            )
        case "advance":
            return commands.advance(target, "new", expected_epoch=a["expected"] or 0, durable=durable, **common)
        case "suspend":
            return commands.suspend(target, window_ms=(a["window_s"] or 0) * 1000, **common)
        case "forget":
            return commands.forget(target, expected_epoch=a["expected"] or 0, **common)
        case "peek":
            return commands.peek(target, now_us=now)
        case "touch":
            ask = ASKS[a["bind"]]
            ttl_ms = ask.ttl_us // MS if ask else 0
            return commands.touch(target, a["epoch"], age_us=a["age_ms"] * MS, ttl_ms=ttl_ms, now_us=now)
        case "confirm":
            rank = -1 if a["dp_rank"] is None else a["dp_rank"]
            more = {"worker": a["worker"] or "", "dp_rank": rank, "ttl_ms": a["ttl_ms"], "durable": durable}
            return commands.confirm(target, a["fence"], **more, **common)
        case "renew":
            return commands.renew(target, a["fence"], ttl_ms=a["ttl_ms"], **common)
        case "rebind":
            return commands.rebind(
                target,
                a["fence"],
                "worker_lost",
                worker=a["worker"] or "",
                holder=f"replica-{told.client}",
                claim_ttl_ms=a["claim_ttl_ms"],
                durable=durable,
                **common,
            )
    return getattr(commands, told.op)(target, a["fence"], **common)


def modelled(model: Model, told: Told, now: int) -> Any:
    """The same call to the model: its answer, or Refused."""
    slot, a, rid = told.slot, told.args, told.request_id
    holder = f"replica-{told.client}"
    match told.op:
        case "resolve":
            ask = ASKS[a["bind"]]
            policy = POLICIES[a["policy"]]
            return model.resolve(
                slot,
                now,
                idle=None if policy.idle_s is None else int(policy.idle_s) * 1000 * MS,
                daily=policy.daily is not None,
                exempt=a["exempt"],
                seen=a["seen"],
                remembered=a["remembered"],
                ask=ask and Ask(ask.ttl_us, ask.claim_us, ask.worker, holder, ask.commit),
                request_id=rid,
            )
        case "advance":
            return model.advance(slot, now, "new", expected=a["expected"], request_id=rid)
        case "suspend":
            window = None if a["window_s"] is None else a["window_s"] * 1000 * MS
            return model.suspend(slot, now, window=window, request_id=rid)
        case "forget":
            return model.forget(slot, now, expected=a["expected"], request_id=rid)
        case "peek":
            return model.peek(slot, now)
        case "touch":
            ask = ASKS[a["bind"]]
            return model.touch(slot, now, a["epoch"], age=a["age_ms"] * MS, ttl=ask.ttl_us if ask else 0)
        case "confirm":
            more = {"worker": a["worker"], "dp_rank": a["dp_rank"], "ttl": a["ttl_ms"] * MS}
            return model.confirm(slot, now, a["fence"], request_id=rid, **more)
        case "renew":
            return model.renew(slot, now, a["fence"], ttl=a["ttl_ms"] * MS, request_id=rid)
        case "rebind":
            more = {"worker": a["worker"], "holder": holder, "claim": a["claim_ttl_ms"] * MS}
            return model.rebind(slot, now, a["fence"], request_id=rid, **more)
    return getattr(model, told.op)(slot, now, a["fence"], request_id=rid)
