"""Which upstreams can be used, as far as this process has found: by asking them, and by what became of real requests.

One gateway's opinion and nobody else's: trouble in its own network must not take a worker from all. It is written nowhere;
what others see of it is the rebind of a conversation that this gateway could not serve where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Literal, NamedTuple

__all__ = ["Limits", "State", "Vitals"]

State = Literal["healthy", "unhealthy", "ejected"]


class Limits(NamedTuple):
    """``down_after``/``up_after``: checks in a row. ``eject_after``: failed requests in a row. ``eject_s``: how long the first
    ejection lasts, doubled by each further one up to ``eject_max_s``."""

    down_after: int
    up_after: int
    eject_after: int
    eject_s: float
    eject_max_s: float


class _Vital:
    __slots__ = ("bad", "down", "good", "rest_s", "resting_until", "strikes", "unreachable")

    def __init__(self) -> None:
        self.bad = self.good = self.strikes = 0
        self.down = self.unreachable = False
        self.rest_s = 0.0
        self.resting_until = float("-inf")


class Vitals:
    """What is known of each upstream, by name.

    Args:
        limits: the thresholds.
        monotonic: seconds, never going back.
        ejected: told of each ejection, and why.
    """

    def __init__(self, limits: Limits, monotonic: Callable[[], float], ejected: Callable[[str], None] = lambda _: None) -> None:
        self._limits: Final = limits
        self._monotonic = monotonic
        self._ejected = ejected
        self._of: dict[str, _Vital] = {}

    # -- what is so ----------------------------------------------------------------------------------------------------

    def state(self, name: str) -> State:
        """``unhealthy`` by its checks, ``ejected`` by what became of requests, for a while."""
        vital = self._of.get(name)
        if vital is None:
            return "healthy"
        if vital.down:
            return "unhealthy"
        return "ejected" if vital.resting_until > self._monotonic() else "healthy"

    def is_up(self, name: str) -> bool:
        """Whether it may be given conversations now."""
        return self.state(name) == "healthy"

    def is_unreachable(self, name: str) -> bool:
        """Whether it is out of use because no connection to it came about: asking it anyway is in vain."""
        return not self.is_up(name) and self._of[name].unreachable

    # -- what became of requests ---------------------------------------------------------------------------------------

    def unreachable(self, name: str) -> None:
        """Nobody listens there: ejected at once, since no request can do better."""
        vital = self._vital(name)
        vital.unreachable = True
        self._eject(vital, "unreachable")

    def failed(self, name: str, why: Literal["status", "reset", "timeout"]) -> None:
        """A request failed there: ejected after so many in a row."""
        vital = self._vital(name)
        vital.unreachable = False
        vital.strikes += 1
        if vital.strikes >= self._limits.eject_after:
            self._eject(vital, why)

    def worked(self, name: str) -> None:
        """A request was answered: what came before is forgiven."""
        vital = self._of.get(name)
        if vital is not None and (vital.strikes or vital.rest_s or vital.unreachable):
            vital.unreachable = False
            self._back(vital)

    def _eject(self, vital: _Vital, why: str) -> None:
        limits, now = self._limits, self._monotonic()
        if vital.resting_until <= now:  # of many that fail at once, the first one counts
            vital.rest_s = min(max(vital.rest_s * 2, limits.eject_s), limits.eject_max_s)
            vital.resting_until = now + vital.rest_s
            self._ejected(why)

    def _back(self, vital: _Vital) -> None:
        vital.strikes, vital.rest_s, vital.resting_until = 0, 0.0, float("-inf")

    # -- what checks say -----------------------------------------------------------------------------------------------

    def checked(self, name: str, *, good: bool, reached: bool = True) -> bool:
        """A check's outcome; whether it changed its health. ``reached``: a connection came about.

        A good check ends the ejection of one that could not be reached, but not of one that fails requests: a server whose health
        page is fine and whose answers are not is what ejection is for.
        """
        vital, limits = self._vital(name), self._limits
        before = vital.down
        if good:
            vital.bad, vital.good = 0, vital.good + 1
            if vital.unreachable:
                vital.unreachable = False
                self._back(vital)
            if vital.good >= limits.up_after:
                vital.down = False
        else:
            vital.bad, vital.good = vital.bad + 1, 0
            if vital.bad >= limits.down_after:
                vital.down = True
                vital.unreachable = not reached
        return vital.down != before

    # -- which there are -----------------------------------------------------------------------------------------------

    def keep(self, names: Collection[str]) -> None:
        """Forget all others."""
        for name in self._of.keys() - set(names):
            del self._of[name]

    def _vital(self, name: str) -> _Vital:
        return self._of.setdefault(name, _Vital())
