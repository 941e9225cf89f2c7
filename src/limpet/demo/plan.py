"""What the demo sends: conversations, each a list of steps. Only the traffic; nothing about what ought to come of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Burst", "Conversation", "New", "Pause", "Plan", "Step", "generate"]


@dataclass(frozen=True, slots=True)
class Burst:
    """Some requests at the same moment, each at another gateway. ``session_ids``: one for each request."""

    session_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class New:
    """The user says ``/new``; one gateway hears it."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence for longer than the idle policy allows; a new conversation begins at the next request."""


Step = Burst | New | Pause


@dataclass(frozen=True, slots=True)
class Conversation:
    """``idle``: the idle policy holds for it. ``victim``: the gateway that gets its first request is killed in mid-claim."""

    key: str
    steps: tuple[Step, ...]
    kind: Literal["chat", "new", "idle", "recorded"] = "chat"
    victim: bool = False

    @property
    def idle(self) -> bool:
        """Whether its requests carry the idle policy."""
        return self.kind == "idle"

    @property
    def chapters(self) -> int:
        """How many conversations are held under this key, one after the other."""
        return 1 + sum(not isinstance(step, Burst) for step in self.steps)


@dataclass(frozen=True, slots=True)
class Plan:
    """``source``: where it comes from, for people."""

    source: str
    conversations: tuple[Conversation, ...]


def generate(count: int, *, gateways: int, victims: int) -> Plan:
    """``count`` conversations of a chat host that mints a session id per response.

    Each begins with one request at every gateway at once (an impatient user, a retry, a fan-out). A fifth of them say
    ``/new`` on the way, a tenth fall silent for longer than their idle policy allows.
    """
    minted = 0

    def burst(width: int) -> Burst:
        nonlocal minted
        minted += width
        return Burst(tuple(f"resp_{number:05d}" for number in range(minted - width, minted)))

    def chapter() -> tuple[Step, ...]:
        return (burst(gateways), burst(1), burst(1), burst(1))

    conversations = []
    for number in range(count):
        key, victim = f"telegram:dm:{1000 + number}", number < victims
        if number % 10 in (3, 7) and not victim:
            conversations.append(Conversation(key, (*chapter(), New(), *chapter()), "new"))
        elif number % 10 == 5 and not victim:
            conversations.append(Conversation(key, (*chapter(), Pause(), *chapter()), "idle"))
        else:
            conversations.append(Conversation(key, (*chapter(), burst(1)), "chat", victim))
    return Plan("generated", tuple(conversations))
