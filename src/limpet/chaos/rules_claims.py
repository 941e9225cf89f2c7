"""Rules about claims: one bind at a time (G4), one rebind per fence (G5)."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from limpet.chaos.history import Call
from limpet.chaos.index import Index, Issue, Trail, identity
from limpet.chaos.verdict import Findings

__all__ = ["one_claimer_at_a_time", "one_rebind_per_fence"]

RIVALS: Final = 8
"""How many claims back are looked at: each pair in between is looked at by itself."""


def one_claimer_at_a_time(index: Index, trail: Trail, findings: Findings) -> None:
    """G4: nobody is told ``bind`` while another's claim or binding of the epoch certainly lives.

    A claim was made no earlier than its call began, so it lives at least until then + its ttl; and so do its confirm and its
    renewals, each as far as it is covered (calm, or durable). Whoever was told ``bind`` was told so no later than its call
    ended. A call that may have ended the claim (abort, release, rebind), known or not, excuses.
    """
    if trail.forgotten:
        return
    claims = sorted((each for each in trail.issues.values() if _claims(each)), key=lambda each: each.tick)
    ends, slides, confirms = _ends(trail), _slides(index, trail), _confirms(trail)
    for i, later in enumerate(claims):
        answer = later.call.accepted
        if later.call.op != "resolve" or answer is None:
            continue
        for rival in reversed(claims[max(0, i - RIVALS) : i]):
            # Ticks are one order: what was claimed since the epoch began was claimed in it.
            if rival.tick < (answer.epoch or 0):
                break
            facts = (ends, slides[rival.tick], confirms[rival.tick])
            if rival.identity != later.identity and _judge(index, trail, rival, later, *facts, findings):
                break


def _judge(
    index: Index,
    trail: Trail,
    rival: Issue,
    later: Issue,
    ends: dict[int, int],
    slides: list[Call],
    confirms: list[tuple[Call, int]],
    findings: Findings,
) -> bool:
    """Whether ``rival`` and ``later`` are a pair worth stopping at."""
    over = later.call.end_us
    if ends.get(rival.tick, over) < over or not _clock_still(index, rival, later):
        return False
    promises = [(rival.start_us + _ttl_us(rival.call), rival.call)]
    promises += [(slide.start_us + _ttl_us(slide), slide) for slide in slides]
    # A confirm ends the claim's own time, renewed or not, and begins the binding's, which may be shorter.
    cap = min((until for call, until in confirms if call.start_us < over), default=over + 1)
    promises = [(min(until, cap) if cap <= over and _of_claim(promise) else until, promise) for until, promise in promises]
    lives = [each for each in promises if each[0] > over]
    if not lives:
        return False
    for until, promise in lives:
        if index.covers(promise, later.call):
            bound = promise.op == "confirm" or promise.commit
            text = f"bind was told for fence {later.tick} while {rival.tick} held for {(until - over) // 1000} ms more"
            proof = (rival.call, later.call) if promise is rival.call else (rival.call, promise, later.call)
            findings.found("bound-twice" if bound else "two-claimers", trail.target, text, *proof)
            return True
    findings.excuse("claims lost and made again")
    return True


def _clock_still(index: Index, rival: Issue, later: Issue) -> bool:
    return index.clocks.gap(rival.start_us, later.call.end_us) is not None


def _claims(issue: Issue) -> bool:
    answer = issue.call.accepted
    return answer is not None and answer.fence == issue.tick


def _ttl_us(call: Call) -> int:
    """What a claim, confirm or renewal promised at least. A renewal without a ttl of its own slides by either default."""
    if call.op == "resolve":
        ttl_ms = call.ttl_ms if call.commit else call.claim_ttl_ms
    elif call.op == "rebind":
        ttl_ms = call.claim_ttl_ms
    elif call.op == "renew":
        ttl_ms = call.ttl_ms or call.claim_ttl_ms
    else:
        ttl_ms = call.ttl_ms
    return ttl_ms * 1000


def _ends(trail: Trail) -> dict[int, int]:
    """fence -> when the first call began that may have ended it."""
    ends: dict[int, int] = {}
    for call in trail.calls:
        if call.op in ("abort", "release", "rebind") and call.fence is not None and (call.accepted is not None or call.unknown):
            ends[call.fence] = min(ends.get(call.fence, call.start_us), call.start_us)
    return ends


def _slides(index: Index, trail: Trail) -> defaultdict[int, list[Call]]:
    """fence -> the confirms and renewals that were carried out."""
    slides: defaultdict[int, list[Call]] = defaultdict(list)
    for call in trail.calls:
        if call.op in ("confirm", "renew") and call.accepted is not None and call.fence is not None and not index.retry(call):
            slides[call.fence].append(call)
    return slides


def _confirms(trail: Trail) -> defaultdict[int, list[tuple[Call, int]]]:
    """fence -> the confirms that were, or may have been, carried out, and until when the binding then lives at least."""
    confirms: defaultdict[int, list[tuple[Call, int]]] = defaultdict(list)
    for call in trail.calls:
        if call.op == "confirm" and call.fence is not None and (call.accepted is not None or call.unknown):
            confirms[call.fence].append((call, call.start_us + _ttl_us(call)))
    return confirms


def _of_claim(promise: Call) -> bool:
    """Whether the promise was about a claim, not about a binding."""
    return promise.answer is not None and promise.answer.state == "claimed"


def one_rebind_per_fence(index: Index, trail: Trail, findings: Findings) -> None:
    """G5: of all rebinds of one fence one is carried out."""
    by_fence: dict[int, list[Call]] = defaultdict(list)
    for call in trail.calls:
        if call.op == "rebind" and call.accepted is not None and call.fence is not None:
            by_fence[call.fence].append(call)
    for fence, calls in by_fence.items():
        calls.sort(key=lambda call: (call.answer.fence if call.answer else None) or 0)
        for i, later in enumerate(calls):
            rivals = [each for each in calls[:i] if identity(each) != identity(later)]
            rival = next((each for each in rivals if index.covers(each, later)), None)
            if rival is not None:
                findings.found("rebound-twice", trail.target, f"fence {fence} was rebound twice", rival, later)
            elif rivals:
                findings.excuse("rebinds lost and made again")
