"""What people read: aligned lines that say what a thing is and what to do with it."""

from __future__ import annotations

import pytest

from limpet.cli import render
from limpet.clock import SystemClock
from limpet.results import Binding, Reset, Resolution


def said(found: Resolution, *, looking: bool = False) -> dict[str, str]:
    """name -> value and remark."""
    return {name: f"{value} | {remark}" for name, value, remark in render.resolution_lines(found, looking=looking)}


def resolution(**more: object) -> Resolution:
    """A declared one."""
    fields: dict[str, object] = {"key": "k", "session_id": "s", "epoch": 5, "ordinal": 2, "scope": "gwk_1", "source": "declared"}
    return Resolution(**(fields | more))  # type: ignore[arg-type]


def test_a_reset_says_why_and_what_was_before() -> None:
    """Who called is the one who is told."""
    lines = said(resolution(epoch_reason="idle", reset=Reset("idle", 4, "gwk_0", True)))
    assert lines["reset"] == "idle | this call began a new conversation; before: gwk_0"
    assert "conversation 2 of this key" in lines["epoch"]


def test_a_degraded_answer_says_so() -> None:
    """A physical scope where a declared one was asked for must not look like any other."""
    lines = said(resolution(epoch=None, ordinal=None, source="physical", scope="gws_1", degraded=True))
    assert "degraded" in lines["scope"]
    assert "epoch" not in lines


@pytest.mark.parametrize(
    ("binding", "looking", "says"),
    [
        (Binding("bind", "claimed", worker="w", fence=7, expires_in_ms=9000), False, "confirm with fence 7, 9 s left"),
        (Binding("bind", "bound", worker="w", fence=7, holder="h"), False, "bound by h, fence 7"),
        (
            Binding("continue", "bound", worker="w", fence=7, holder="h", expires_in_ms=2000),
            False,
            "bound by h, fence 7, 2 s left",
        ),
        (Binding("wait", "claimed", fence=7, holder="h"), False, "dispatch without asking for a bind"),
        (Binding("wait", "claimed", fence=7, holder="h"), True, "claimed by h, fence 7"),
        (Binding(None, "unbound"), True, "the next turn that asks is told to bind"),
    ],
)
def test_a_binding_says_what_to_do(binding: Binding, looking: bool, says: str) -> None:
    """The action in words; a mere look is told no duty."""
    assert says in said(resolution(binding=binding), looking=looking)["binding"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "just now"), (59, "59 s ago"), (60, "1 minute ago"), (7200, "2 hours ago"), (90_000, "1 day ago")]
)
def test_an_epoch_says_how_long_it_has_been_going(seconds: int, text: str) -> None:
    """An epoch is an order; when it began is for people."""
    began = int(SystemClock().now().timestamp() * 1000) - seconds * 1000 - 300
    assert text in said(resolution(epoch_started_ms=began, epoch_reason="new"))["epoch"]
