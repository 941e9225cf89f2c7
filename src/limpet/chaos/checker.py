"""The judge. Pure: it sees nothing but the history, and concludes only what no order of overlapping calls can explain.

Two things make a conclusion safe. Calls that overlap may have happened in either order, so "later" always means: began after
the other had ended. And while data may be lost (a Fault that is ``lossy``, until it is healed) only ``durable: true`` binds:
what else was told then, or before, may be gone, and is counted as excused instead. G3, scopes, deadlines and a client's own
memory hold at all times. A call whose outcome is unknown may have taken effect at any time after its start, or never.
"""

from __future__ import annotations

from limpet.chaos import rules_answers, rules_claims, rules_reads, rules_ticks
from limpet.chaos.history import History
from limpet.chaos.index import Index
from limpet.chaos.verdict import Findings, Verdict

__all__ = ["check"]


def check(history: History, *, namespace: str = "default", secret: str | None = None) -> Verdict:
    """Judges a history of one namespace whose clients had their memo off (a memo may rightly answer late)."""
    index, findings = Index(history), Findings()
    parents = {target[1]: trail for target, trail in index.trails.items() if target[0] == "conv"}
    for call in history.calls:
        rules_answers.ended_in_time(index, call, findings)
        rules_answers.failed_as_agreed(call, findings)
        rules_answers.scopes_right(call, namespace, secret, findings)
        rules_answers.forks_apart(call, parents, namespace, secret, findings)
        rules_answers.compared(index, call, findings)
    for trail in index.trails.values():
        rules_ticks.issued_once(index, trail, findings)
        rules_ticks.one_conversation_per_epoch(index, trail, findings)
        rules_ticks.larger_when_later(index, trail, findings)
        rules_ticks.replaced_once(index, trail, findings)
        rules_ticks.each_from_somebody(index, trail, findings)
        rules_ticks.retries_agree(index, trail, findings)
        rules_reads.nothing_goes_back(index, trail, findings)
        rules_reads.clients_never_go_back(index, trail, findings)
        rules_reads.nothing_vanishes(index, trail, findings)
        rules_reads.ended_stays_ended(index, trail, findings)
        rules_claims.one_claimer_at_a_time(index, trail, findings)
        rules_claims.one_rebind_per_fence(index, trail, findings)
    return findings.verdict()
