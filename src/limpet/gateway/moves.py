"""Which workers other gateways took a conversation off lately: moving it back there would be answered by moving it away again.

Two gateways may disagree for good: one cannot reach worker A, the other cannot reach B. Without a memory each would rebind the
conversation in each of its turns. So whoever is about to move one avoids the workers that somebody else moved it away from; and
if nothing else is left, serves the turn there and leaves the binding alone (a detour).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from limpet.results import Binding

__all__ = ["HOLD_S", "Moves", "Name"]

Name = tuple[str, str, str]
"""Of a conversation: namespace, source, and key or session id."""

HOLD_S: Final = 30.0
"""How long a worker is avoided. After it a gateway that is alone again may move the conversation."""
MOST: Final = 16_384


class _Trail:
    __slots__ = ("fence", "left", "worker")

    def __init__(self) -> None:
        self.worker: str | None = None
        self.fence = 0
        self.left: dict[str, float] = {}


class Moves:
    """Conversations by name, the ones that were seen last."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._trails: OrderedDict[Name, _Trail] = OrderedDict()

    def saw(self, conversation: Name, binding: Binding | None) -> None:
        """A binding as the store answered it. One that this process claimed (``bind``) is its own move, any other that is newer
        than what was seen before is somebody else's."""
        if binding is None or binding.fence is None or binding.worker is None:
            return
        trail = self._trails.get(conversation)
        if trail is None:
            trail = self._trails[conversation] = _Trail()
            if len(self._trails) > MOST:
                self._trails.popitem(last=False)
        self._trails.move_to_end(conversation)
        if binding.fence < trail.fence:
            return
        if trail.worker is not None and trail.worker != binding.worker and binding.action != "bind":
            trail.left[trail.worker] = self._monotonic()
        trail.left.pop(binding.worker, None)
        trail.worker, trail.fence = binding.worker, binding.fence

    def avoid(self, conversation: Name) -> frozenset[str]:
        """The workers that others took it off within :data:`HOLD_S`."""
        trail = self._trails.get(conversation)
        if trail is None or not trail.left:
            return frozenset()
        since = self._monotonic() - HOLD_S
        trail.left = {worker: at for worker, at in trail.left.items() if at > since}
        return frozenset(trail.left)
