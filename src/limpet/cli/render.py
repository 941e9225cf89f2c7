"""What the commands print: one JSON document, or a few aligned lines for people."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from limpet.clock import SystemClock

if TYPE_CHECKING:
    from rich.console import Console

    from limpet.results import Advanced, Binding, Resolution

__all__ = ["advanced_lines", "console", "print_json", "print_lines", "resolution_lines"]

Line = tuple[str, str, str]


def console(width: int | None = None) -> Console:
    """stdout, in colour where it is a terminal and NO_COLOR is not set; ``width``: columns, where the terminal's do not count."""
    from limpet.cli.output import Output

    return Output(highlight=False, emoji=False, soft_wrap=False, width=width)


def print_json(document: Any) -> None:
    """One JSON document on stdout, and nothing else."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n")


def print_lines(title: str, lines: Iterable[Line]) -> None:
    """A title and lines of (name, value, remark)."""
    from rich.text import Text

    out = console()
    out.print(Text(title, "bold"), soft_wrap=True)
    for name, value, remark in lines:
        line = Text.assemble((f"  {name:<10}", "dim"), (value, "cyan"))
        if remark:
            line.append(f"  {remark}", "dim")
        out.print(line, soft_wrap=True)


def resolution_lines(found: Resolution, *, looking: bool = False) -> list[Line]:
    """A resolution for people. ``looking``: they only look, so nothing is theirs to do."""
    if found.degraded:
        source = "degraded: the service's store did not answer, so this is the session's own scope"
    elif found.source == "declared":
        source = "of the conversation key"
    else:
        source = "of the session id: forks, tools and turns without a key stay apart"
    lines = [("scope", found.scope, source)]
    if found.parent_scope is not None:
        lines.append(("parent", found.parent_scope, "the scope of the conversation it was forked from"))
    if found.epoch is not None:
        began = f"began {_ago(found.epoch_started_ms)}" if found.epoch_started_ms is not None else ""
        reason = f" ({found.epoch_reason})" if found.epoch_reason else ""
        lines.append(("epoch", str(found.epoch), f"conversation {found.ordinal} of this key, {began}{reason}"))
    if found.reset is not None:
        before = f"; before: {found.reset.previous_scope}" if found.reset.previous_scope else ""
        lines.append(("reset", found.reset.reason, f"this call began a new conversation{before}"))
    if found.binding is not None:
        lines.append(_binding_line(found.binding, looking))
    if found.durable is False:
        lines.append(("durable", "no", "no replica has acknowledged it"))
    return lines


def advanced_lines(found: Advanced) -> list[Line]:
    """An advance for people."""
    before = "" if found.previous_epoch is None else f"; before: {found.previous_epoch}"
    return [
        ("scope", found.scope, "of the new conversation" if found.applied else "of the conversation that goes on"),
        ("epoch", str(found.epoch), f"conversation {found.ordinal} of this key{before if found.applied else ''}"),
    ]


def _binding_line(binding: Binding, looking: bool) -> Line:
    if binding.state == "unbound":
        return ("binding", "none", "the next turn that asks is told to bind")
    worker = binding.worker or "(no worker named yet)"
    left = "" if binding.expires_in_ms is None else f", {binding.expires_in_ms / 1000:.0f} s left"
    if binding.action == "bind" and binding.state == "claimed":
        remark = f"yours to bind: dispatch, then confirm with fence {binding.fence}"
    elif binding.action == "wait" and not looking:
        remark = f"claimed by {binding.holder}, not yet confirmed: dispatch without asking for a bind"
    else:
        held = f" by {binding.holder}" if binding.holder else ""
        remark = f"{binding.state}{held}, fence {binding.fence}"
    return ("binding", worker, remark + left)


def _ago(unix_ms: int) -> str:
    seconds = max(0, int(SystemClock().now().timestamp() - unix_ms / 1000))
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            number = seconds // size
            return f"{number} {unit}{'s' if number > 1 else ''} ago"
    return f"{seconds} s ago" if seconds else "just now"
