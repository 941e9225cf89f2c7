"""Does the history test find faults? Each test plants one in the assembled Lua and runs seeded histories until one fails.

``guarantees``: the ledger finds it without the model's word, so the fault breaks a promise of the design by itself.
``model``: it is a wrong answer that only the model knows to be wrong.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import pytest
import redis

from limpet.scripts import NAMES, script

from .grammar import draw
from .ledger import Broken
from .world import World

LENGTH = 90


class Fault(NamedTuple):
    """What is replaced by what, in which scripts (all that contain it, where none is named), and who must find it."""

    swaps: tuple[tuple[str, str], ...]
    found_by: Literal["guarantees", "model"]
    rules: tuple[str, ...]
    scripts: tuple[str, ...] = NAMES
    seeds: int = 120


FAULTS: dict[str, Fault] = {
    "plain INCR for the tick": Fault(
        (
            ("if now > issued then\n    issued = now", "if false then\n    issued = now"),
            ("issued = issued + 1 + bits", "issued = redis.call('INCR', clock_key)"),
        ),
        "guarantees",
        ("G3",),
    ),
    "the last tick forgotten": Fault(
        (("redis.call('SET', clock_key, string.format('%.0f', issued))\n  return issued", "return issued"),),
        "guarantees",
        ("G3",),
    ),
    "only the last request id kept": Fault((("if #ring >= 8 then", "if #ring >= 1 then"),), "model", ("model", "writes")),
    "a dead claim replayed": Fault((("local live = again[8] == 0\n", "local live = true\n"),), "guarantees", ("G1", "G3", "G4")),
    "ttl not sliding": Fault(
        (
            ("record.deadline, changed = now + bind_ttl, true", "changed = true"),
            ("due = now + bind_ttl + granularity\n", "due = due + 0\n"),
        ),
        "guarantees",
        ("G4",),
    ),
    "abort does not check the fence": Fault(
        (("record.state > 0 and record.fence == fence", "record.state > 0"),),
        "guarantees",
        ("G5",),
        ("binding_abort",),
    ),
    "confirm takes any fence": Fault(
        (("record.state > 0 and record.fence == fence", "record.state > 0"),),
        "guarantees",
        ("G5",),
        ("binding_confirm",),
    ),
    "release of another claim or epoch": Fault(
        (("record.state > 0 and record.fence == fence", "record.state > 0 and fence < record.fence + 1"),),
        "guarantees",
        ("G5",),
        ("binding_release",),
    ),
    "rebind keeps its fence": Fault(
        (
            (
                "record.fence, record.holder, record.rebound = CLAIMED, issued, holder",
                "record.fence, record.holder, record.rebound = CLAIMED, fence, holder",
            ),
        ),
        "guarantees",
        ("G3", "G4"),
        ("binding_rebind",),
    ),
    "a late confirm refused": Fault(
        (("record.fence == fence,", "record.fence == fence and now <= record.deadline,"),),
        "model",
        ("model",),
        ("binding_confirm",),
    ),
    "idle fires early": Fault(
        (("now > record.last + granularity + idle", "now > record.last + idle"),), "guarantees", ("early",)
    ),
    "daily ignores the granularity": Fault(
        (("record.last + granularity < boundary", "record.last < boundary"),), "model", ("model",)
    ),
    "daily before idle": Fault(
        (
            (
                "if idle > 0 and now > record.last + granularity + idle",
                "if idle > 0 and record.last + granularity >= boundary and now > record.last + granularity + idle",
            ),
        ),
        "model",
        ("model",),
    ),
    "a binding gets no grace for unwritten slides": Fault(
        (
            (
                "now <= record.deadline + granularity then\n    action = CONTINUE",
                "now <= record.deadline then\n    action = CONTINUE",
            ),
        ),
        "guarantees",
        ("G4",),
    ),
    "seen epochs ignored": Fault((("if hard <= epoch and soft <= epoch then", "if true then"),), "model", ("model", "tick")),
    "an implausible epoch believed": Fault((("if hard > limit then", "if false then"),), "model", ("model", "tick")),
    "a suspension ignored": Fault((("elseif record.suspend == 1 then", "elseif false then"),), "model", ("model", "tick")),
    "a resume window that idle ends": Fault(
        (
            (
                "record.suspend, changed = 0, true",
                "record.suspend, changed = 0, true\n    if idle > 0 then reason = 'idle' end",
            ),
        ),
        "guarantees",
        ("early",),
    ),
    "a plain touch hides a due reset": Fault(
        (("if (idle == 0 or now <= last + granularity + idle) and", "if idle >= 0 and"),), "model", ("model", "tick")
    ),
    "expected epoch ignored": Fault(
        (("if expected > 0 and expected < epoch then", "if false then"),),
        "model",
        ("model",),
        ("conversation_advance",),
    ),
    "an advance keeps the binding": Fault(
        (
            ("epoch = issued, state = 0, forgotten", "epoch = issued, state = old and old.state or 0, forgotten"),
            (
                "holder = '', fence = 0, deadline = 0,",
                "holder = '', fence = old and old.fence or 0, deadline = old and old.deadline or 0,",
            ),
        ),
        "guarantees",
        ("G4", "G5"),
    ),
    "a forgotten key loses its ring": Fault((("ring = old and old.ring or {}", "ring = {}"),), "model", ("model",)),
    "a clock set back freezes": Fault((("if behind <= 0 then", "if true then"),), "model", ("model", "writes", "ttl")),
    "two claims at once": Fault(
        (("elseif record.state == CLAIMED and now <= record.deadline then", "elseif false then"),),
        "guarantees",
        ("G4",),
    ),
    "the index is not slid": Fault(
        (
            (
                "redis.call('ZADD', bound_key, string.format('%.0f', record.deadline), bound_member",
                "local _ = (bound_member",
            ),
        ),
        "model",
        ("index",),
        ("conversation_resolve",),
    ),
    "pruning takes the set's word": Fault(
        (("if not unreadable and ours and now <= record.deadline", "if false and ours and now <= record.deadline"),),
        "model",
        ("index",),
    ),
    "records that do not outlive their keep": Fault(
        (("keep_ms = math.max(keep_ms, (due", "keep_ms = math.max(60000, (due"),), "model", ("ttl",)
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(store: redis.Redis, name: str) -> None:
    """Some seeded history fails on the altered scripts, for the reason that the fault has."""
    fault = FAULTS[name]
    found = first_failure(store, fault)
    assert found is not None, f"{fault.seeds} histories of {LENGTH} steps did not find it"
    assert found.rule in fault.rules, found


def first_failure(store: redis.Redis, fault: Fault) -> Broken | None:
    """What the first of the fault's seeds that fails says."""
    texts = plant(fault)
    for seed in range(fault.seeds):
        try:
            World(store, texts=texts, check_model=fault.found_by == "model").run(draw(seed, LENGTH))
        except Broken as found:
            return found
    return None


def plant(fault: Fault) -> dict[str, str]:
    """The altered scripts by name. A swap that no script contains is an error: then the fault would test nothing."""
    texts: dict[str, str] = {}
    for old, new in fault.swaps:
        changed = 0
        for name in fault.scripts:
            text = texts.get(name, script(name).text)
            if old in text:
                texts[name] = text.replace(old, new)
                changed += 1
        assert changed, f"no script contains {old!r} any more; write the fault anew"
    return texts
