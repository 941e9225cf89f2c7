"""What a history is made of. One table, read by hypothesis (which shrinks) and by a seeded generator (which is fast).

A step names choices, never values: "the fence that this client holds", not a number. So any sub-list of a history is a
history, and shrinking works. The first option of each list is the simplest.
"""

from __future__ import annotations

import random
from itertools import chain
from typing import Any, NamedTuple

from hypothesis import strategies as st


class Step(NamedTuple):
    kind: str
    args: dict[str, Any]

    def __repr__(self) -> str:
        return f"Step({self.kind!r}, {self.args!r})"


Options = dict[str, tuple[Any, ...]]

CLIENTS = (0, 1, 2)
KEYS = ("a", "a", "a", "b", "c")
OFTEN = (True, True, True, False)
SELDOM = (False, False, False, True)
EXPECTED = ("none", "none", "own", "own", "newest", "ahead", "absurd")

GRAMMAR: dict[str, tuple[int, Options]] = {
    "turn": (
        15,
        {
            "client": CLIENTS,
            "key": KEYS,
            "bind": ("none", "short", "short", "long", "brief", "commit"),
            "policy": ("none", "none", "idle", "idle", "daily", "both", "long"),
            "exempt": (False, False, False, False, True),
            "seen": ("none",) * 8 + ("own", "own", "own", "remembered", "ahead", "absurd", "absurd_memory"),
            "request_id": OFTEN,
            "lost": SELDOM,
        },
    ),
    "burst": (2, {"key": KEYS, "bind": ("short", "commit"), "policy": ("none", "idle")}),
    "physical": (
        3,
        {"client": CLIENTS, "key": KEYS, "bind": ("short", "brief", "commit"), "request_id": OFTEN, "lost": SELDOM},
    ),
    "advance": (5, {"client": CLIENTS, "key": KEYS, "expected": EXPECTED, "request_id": OFTEN, "lost": SELDOM}),
    "suspend": (
        2,
        {"client": CLIENTS, "key": KEYS, "window_s": (None, 60, 600, 432_000), "request_id": OFTEN, "lost": SELDOM},
    ),
    "forget": (1, {"client": CLIENTS, "key": KEYS, "expected": EXPECTED, "request_id": OFTEN, "lost": SELDOM}),
    "hold": (
        13,
        {
            "op": ("confirm", "confirm", "confirm", "renew", "renew", "abort", "release", "rebind", "rebind"),
            "client": CLIENTS,
            "domain": ("conv", "conv", "conv", "sess"),
            "key": KEYS,
            "fence": ("own",) * 4 + ("newest", "newest", "older", "older", "epoch", "foreign"),
            "worker": (None, "w1", "w2"),
            "dp_rank": (None, None, 0, 3),
            "ttl_ms": (60_002, 300_002, 2_002),
            "request_id": OFTEN,
            "lost": SELDOM,
        },
    ),
    "retry": (10, {"back": (0, 0, 1, 1, 2, 3, 4, 5, 6, 8, 10)}),
    "peek": (1, {"key": KEYS}),
    "touch": (2, {"client": CLIENTS, "key": KEYS, "age_ms": (0, 400, 900, 2000), "bind": ("none", "short", "long")}),
    "pass": (
        9,
        {
            "ms": (
                0,
                4,
                400,
                400,
                900,
                1000,
                1004,
                2000,
                9000,
                12_000,
                55_000,
                64_000,
                3_600_000,
                86_400_000,
                200_000_000,
            )
        },
    ),
    "until": (
        8,
        {
            "key": KEYS,
            "what": ("binding", "binding", "idle", "idle", "daily", "resume"),
            "ms": (-1000, -4, 4, 600, 996, 1000, 1004, 1500),
        },
    ),
    # A turn, another too close to it to be written, and a third just before or after the time is up.
    "close_call": (
        3,
        {
            "client": CLIENTS,
            "key": KEYS,
            "bind": ("none", "commit", "commit"),
            "policy": ("idle", "daily", "none"),
            "gap_ms": (400, 900, 1000),
            "what": ("idle", "binding", "binding", "daily"),
            "ms": (-4, 4, 400, 600, 996, 1004, 1500),
        },
    ),
    "back": (1, {"ms": (4, 900, 5000, 400_000, 10_000_000, 180_000_000)}),
    "lose": (2, {"what": ("record", "record", "session", "clock", "all"), "key": KEYS}),
    "prune": (2, {"key": KEYS}),
    "save": (1, {}),
    "restore": (1, {}),
}


def steps() -> st.SearchStrategy[list[Step]]:
    """Histories as hypothesis draws them."""
    kinds = [strategy for kind, (weight, options) in GRAMMAR.items() for strategy in [_step(kind, options)] * weight]
    # Lists of lists, since hypothesis keeps single ones short; flat they shrink as well.
    return st.lists(st.lists(st.one_of(kinds), max_size=20), max_size=12).map(lambda parts: list(chain(*parts)))


def _step(kind: str, options: Options) -> st.SearchStrategy[Step]:
    fields = {name: st.sampled_from(values) for name, values in options.items()}
    return st.fixed_dictionaries(fields).map(lambda args: Step(kind, args))


def draw(seed: int, length: int) -> list[Step]:
    """The history of a seed."""
    source = random.Random(seed)
    kinds = list(GRAMMAR)
    weights = [weight for weight, _ in GRAMMAR.values()]
    return [
        Step(kind, {name: source.choice(values) for name, values in GRAMMAR[kind][1].items()})
        for kind in source.choices(kinds, weights, k=length)
    ]
