"""Rules that one answer alone can break: its scope, its time, its kind (G6, G7)."""

from __future__ import annotations

from typing import Final

from limpet import scope as scopes
from limpet.chaos.history import Call
from limpet.chaos.index import Index, Trail
from limpet.chaos.verdict import Findings

__all__ = ["SLACK_MS", "compared", "ended_in_time", "failed_as_agreed", "forks_apart", "scopes_right"]

SLACK_MS: Final = 60
"""What a busy machine's scheduler may add to a call beside the stalls that its process noticed."""

_BINDING = frozenset({"confirm", "abort", "release", "renew", "rebind"})
_SETTLED = frozenset({"ok", "store_unavailable"})


def ended_in_time(index: Index, call: Call, findings: Findings) -> None:
    """G7: within its deadline, plus what the process itself was not given to run."""
    took, allowed = call.end_us - call.start_us, (call.allowed_ms + SLACK_MS) * 1000
    if took <= allowed:
        return
    stalled = sum(max(0, min(end, call.end_us) - max(start, call.start_us)) for start, end in index.stalls.get(call.process, ()))
    if took > allowed + stalled:
        text = f"{call.op} took {took // 1000} ms and had {call.allowed_ms}"
        findings.found("late", call.target, text, call)


def failed_as_agreed(call: Call, findings: Findings) -> None:
    """A turn is always answered; the rest raise StoreUnavailable, NotDurable or StaleFence and nothing else."""
    allowed = set(_SETTLED)
    if call.op in ("resolve", "advance", "confirm", "rebind"):
        allowed.add("not_durable")
    if call.op in _BINDING:
        allowed.add("stale_fence")
    if call.op == "resolve":
        allowed.discard("store_unavailable")
    if call.outcome not in allowed:
        findings.found("error", call.target, f"{call.op} failed with {call.outcome}", call)


def scopes_right(call: Call, namespace: str, secret: str | None, findings: Findings) -> None:
    """Section 2 and G7: declared scopes are those of key and epoch, degraded ones the session id's and nothing else."""
    answer = call.answer
    if call.op not in ("resolve", "advance", "peek") or answer is None or answer.scope is None:
        return
    target = call.target
    if answer.degraded:
        apart = answer.scope == scopes.physical(call.session_id or "", namespace, secret) and answer.source == "physical"
        if not apart or answer.epoch is not None or answer.action is not None or answer.fence is not None:
            findings.found("degraded", target, "a degraded answer carries more than the physical scope", call)
    elif target is not None and target[0] == "conv":
        right = answer.epoch is not None and answer.scope == scopes.declared(target[1], answer.epoch, namespace, secret)
        if not right:
            findings.found("scope", target, f"{answer.scope} is not the scope of epoch {answer.epoch}", call)


def forks_apart(call: Call, parents: dict[str, Trail], namespace: str, secret: str | None, findings: Findings) -> None:
    """G6: a fork, tool or keyless turn has its own session id's scope, no epoch, and at most its parent's scope beside it."""
    answer = call.accepted
    if call.op != "resolve" or answer is None or (call.key is not None and call.kind == "turn"):
        return
    own = scopes.physical(call.session_id or "", namespace, secret)
    if answer.scope != own or answer.source != "physical" or answer.epoch is not None or answer.reset is not None:
        findings.found("fork", call.target, "a fork was given more than its own physical scope", call)
    if answer.parent_scope is not None and call.parent_key is not None:
        trail = parents.get(call.parent_key)
        known = set() if trail is None else {c.known.epoch for c in trail.calls if c.known is not None}
        hidden = trail is None or any(c.unknown for c in trail.calls)
        scope_of = {scopes.declared(call.parent_key, epoch, namespace, secret) for epoch in known if epoch is not None}
        if not hidden and answer.parent_scope not in scope_of:
            findings.found("fork", call.target, "a fork was shown a scope that its parent never had", call)


def compared(index: Index, call: Call, findings: Findings) -> None:
    """Section 5: with expected_epoch an advance applies to that very epoch, or to none; and a lost one changes nothing."""
    answer = call.accepted
    if call.op != "advance" or answer is None or index.retry(call):
        return
    if call.expected_epoch is None:
        if not answer.applied:
            findings.found("not-compared", call.target, "an advance that expected nothing was not applied", call)
    elif answer.applied and answer.previous_epoch != call.expected_epoch:
        text = f"epoch {call.expected_epoch} was expected and {answer.previous_epoch} replaced"
        findings.found("not-compared", call.target, text, call)
    elif not answer.applied and answer.epoch == call.expected_epoch:
        findings.found("not-compared", call.target, "the expected epoch was the current one and was not replaced", call)
