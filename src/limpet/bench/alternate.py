"""A B A B: every contender once per round, so that what the machine does meanwhile happens to all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from limpet.bench.model import Sample, Tell

__all__ = ["alternate", "alternate_async"]


def alternate(cases: Mapping[str, Callable[[], Sample]], rounds: int, tell: Tell, label: str = "") -> dict[str, list[Sample]]:
    """Runs each case ``rounds`` times in turn; once before that to warm up, unless one round is all that is wanted."""
    found: dict[str, list[Sample]] = {name: [] for name in cases}
    warm = int(rounds > 1)
    total = (rounds + warm) * len(cases)
    for number in range(rounds + warm):
        for position, (name, run) in enumerate(cases.items()):
            tell(f"{label} {name}".strip(), number * len(cases) + position, total)
            sample = run()
            if number >= warm:
                found[name].append(sample)
    tell(label, total, total)
    return found


async def alternate_async(
    cases: Mapping[str, Callable[[], Awaitable[Sample]]], rounds: int, tell: Tell, label: str = ""
) -> dict[str, list[Sample]]:
    """The same for cases that are awaited."""
    found: dict[str, list[Sample]] = {name: [] for name in cases}
    warm = int(rounds > 1)
    total = (rounds + warm) * len(cases)
    for number in range(rounds + warm):
        for position, (name, run) in enumerate(cases.items()):
            tell(f"{label} {name}".strip(), number * len(cases) + position, total)
            sample = await run()
            if number >= warm:
                found[name].append(sample)
    tell(label, total, total)
    return found
