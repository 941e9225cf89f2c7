"""When a conversation is replaced by time alone: idle and daily (design, section 5). Resets are opt-in.

    {}                                                         never (the default)
    {"idle_s": 86400}                                          after a day of silence
    {"daily": {"at": "04:00", "tz": "Europe/Paris"}}           at the first turn after 04:00 in Paris

Nothing here reads a clock: the caller passes ``now``, and the script picks among the boundaries by the server's clock, so
that a caller whose clock is wrong cannot misfire.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from limpet.errors import InvalidRequest

__all__ = ["MAX_IDLE_S", "NONE", "Daily", "Policy", "daily_boundaries"]

MAX_IDLE_S: Final = 31_536_000
"""The longest idle time: 365 days, in seconds."""

_AT: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_MAX_ZONE_NAME: Final = 64

# Boundaries are found among the local days that a window around now touches. Three local days can end before the second
# boundary that is asked for (a zone that crosses the date line skips a whole one), and two can begin after the next.
_BACK: Final = timedelta(days=5)
_AHEAD: Final = timedelta(days=4)
_STEP: Final = timedelta(hours=1)
_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)

Boundaries = tuple[datetime, datetime, datetime]


class Daily(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reset at a wall time of a zone. ``at`` is ``HH:MM`` (00:00 to 23:59), ``tz`` a name of the IANA zone database.

    Raises :class:`~limpet.errors.InvalidRequest` on construction for anything else.
    """

    at: str
    tz: str

    def __post_init__(self) -> None:
        _wall_time(self.at)
        _zone(self.tz)

    def boundaries(self, now: datetime) -> Boundaries:
        """The two boundaries at or before ``now`` and the one after it, in UTC; ``now`` must be aware."""
        return _cached_boundaries(_utc(now), self.at, self.tz)


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True):
    """``idle_s``: seconds of silence (1 to 31,536,000) after which the next turn begins a new conversation; None: never.
    ``daily``: the reset at a wall time; None: never. Idle is checked before daily, by the script."""

    idle_s: float | None = None
    daily: Daily | None = None

    def __post_init__(self) -> None:
        if self.idle_s is not None:
            _check_idle(self.idle_s)

    @classmethod
    def parse(cls, value: Mapping[str, object] | Policy | None) -> Policy:
        """A policy from what a caller passes: a mapping as in the design, a Policy, or None (never).

        A null field is an absent one. Raises :class:`~limpet.errors.InvalidRequest` for unknown fields, unknown zones
        and numbers out of range.
        """
        if value is None:
            return NONE
        if isinstance(value, Policy):
            return value
        if not isinstance(value, Mapping):
            raise InvalidRequest("policy must be an object with idle_s and/or daily.", field="policy")
        if not value:
            return NONE
        _refuse_unknown(value, ("idle_s", "daily"), "policy")
        idle = value.get("idle_s")
        return cls(None if idle is None else _check_idle(idle), _parse_daily(value.get("daily")))

    def boundaries(self, now: datetime) -> Boundaries:
        """The two daily boundaries at or before ``now`` and the one after it, in UTC.

        On the path of every turn with a daily policy, so the answer is kept (per ``at`` and ``tz``, bounded) while
        ``previous <= now < next``. Raises :class:`~limpet.errors.InvalidRequest` if there is no daily reset, or ``now``
        is naive.
        """
        if self.daily is None:
            raise InvalidRequest("This policy has no daily reset, so it has no boundaries.", field="policy.daily")
        return self.daily.boundaries(now)


def daily_boundaries(now: datetime, at: str, tz: str) -> tuple[datetime, datetime]:
    """``(previous, next)`` with ``previous <= now < next``, in UTC.

    A boundary is the first instant of a local day whose wall time in the zone is at or after ``at``: in a spring gap the
    first instant after it, of a repeated hour the first. A day without such an instant (skipped whole at the date line,
    or whose end a gap swallows from ``at`` on) has no boundary. Raises :class:`~limpet.errors.InvalidRequest` for a naive
    ``now``, a malformed ``at`` and an unknown zone.
    """
    _wall_time(at)
    _zone(tz)
    _, previous, following = _cached_boundaries(_utc(now), at, tz)
    return previous, following


_CACHE_SIZE: Final = 256
_cache: dict[tuple[str, str], Boundaries] = {}
_cache_lock = threading.Lock()


def _cached_boundaries(now: datetime, at: str, tz: str) -> Boundaries:
    kept = _cache.get((at, tz))
    if kept is not None and kept[1] <= now < kept[2]:
        return kept
    found = _boundaries(now, at, tz)
    with _cache_lock:  # evicting iterates, which another thread's insertion would break
        if len(_cache) >= _CACHE_SIZE and (at, tz) not in _cache:
            del _cache[next(iter(_cache))]
        _cache[at, tz] = found
    return found


def _boundaries(now: datetime, at: str, tz: str) -> Boundaries:
    try:
        segments = list(_segments(now - _BACK, now + _AHEAD, _zone(tz)))
        instants = sorted(_day_starts(segments, _wall_time(at)))
    except OverflowError:
        raise InvalidRequest("now is too close to the end of the calendar for a daily policy.", field="now") from None
    after = next(i for i, instant in enumerate(instants) if instant > now)
    return instants[after - 2], instants[after - 1], instants[after]


def _segments(start: datetime, end: datetime, zone: ZoneInfo) -> Iterator[tuple[datetime, datetime, timedelta]]:
    """The stretches of constant UTC offset in ``[start, end)``, cut at the very second of each transition.

    Offsets are only ever asked for instants, never for wall times, so gaps and folds need no case of their own.
    """
    begin, here = start, start
    offset = _offset(here, zone)
    while here < end:
        ahead = here + _STEP
        if _offset(ahead, zone) != offset:
            cut = _transition(here, ahead, offset, zone)
            yield begin, cut, offset
            begin, offset = cut, _offset(cut, zone)
            here = cut
        else:
            here = ahead
    yield begin, here, offset


def _transition(low: datetime, high: datetime, offset: timedelta, zone: ZoneInfo) -> datetime:
    """The first whole second in ``(low, high]`` at which the offset is no longer ``offset`` (transitions are whole)."""
    low = low.replace(microsecond=0)
    high = high.replace(microsecond=0)
    while high - low > _SECOND:
        middle = low + timedelta(seconds=(high - low) // _SECOND // 2)
        if _offset(middle, zone) == offset:
            low = middle
        else:
            high = middle
    return high


def _day_starts(segments: list[tuple[datetime, datetime, timedelta]], at: time) -> Iterator[datetime]:
    """Of each local day, the first instant whose wall time is at or after ``at``. The first day is left out, since the
    window may have opened after its boundary."""
    seen: set[date] = {(segments[0][0] + segments[0][2]).date()}
    for begin, end, offset in segments:
        day = (begin + offset).date()
        last = (end + offset).date()
        while day <= last:
            if day not in seen:
                instant = max(datetime.combine(day, at, UTC) - offset, begin)
                if instant < end and (instant + offset).date() == day:
                    seen.add(day)
                    yield instant
            day += _DAY


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    return offset if offset is not None else timedelta(0)


def _utc(now: datetime) -> datetime:
    if now.tzinfo is None or now.utcoffset() is None:
        raise InvalidRequest("now must be an aware datetime; a naive one names no instant.", field="now")
    return now.astimezone(UTC)


def _wall_time(at: object) -> time:
    match = _AT.fullmatch(at) if isinstance(at, str) else None
    if match is None:
        raise InvalidRequest('daily.at must be a wall time "HH:MM" from 00:00 to 23:59.', field="policy.daily.at")
    return time(int(match[1]), int(match[2]))


@lru_cache(maxsize=256)
def _load_zone(tz: str) -> ZoneInfo:
    return ZoneInfo(tz)


def _zone(tz: object) -> ZoneInfo:
    try:
        if isinstance(tz, str) and len(tz) <= _MAX_ZONE_NAME:
            return _load_zone(tz)
    except (LookupError, ValueError, OSError):  # unknown; malformed or no zone file; a folder of the database
        pass
    raise InvalidRequest("daily.tz must be a name of the IANA zone database, such as Europe/Paris.", field="policy.daily.tz")


def _check_idle(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= MAX_IDLE_S:  # NaN is in no range
        raise InvalidRequest(f"idle_s must be a number of seconds from 1 to {MAX_IDLE_S}.", field="policy.idle_s")
    return value


def _parse_daily(value: object) -> Daily | None:
    if value is None or isinstance(value, Daily):
        return value
    if not isinstance(value, Mapping):
        raise InvalidRequest('daily must be an object such as {"at": "04:00", "tz": "Europe/Paris"}.', field="policy.daily")
    _refuse_unknown(value, ("at", "tz"), "policy.daily")
    at, tz = value.get("at"), value.get("tz")
    _wall_time(at)
    _zone(tz)
    return _daily(at, tz)


@lru_cache(maxsize=256)
def _daily(at: str, tz: str) -> Daily:
    return Daily(at, tz)


def _refuse_unknown(value: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for name in value:
        if name not in known:
            raise InvalidRequest(f"{where} has no such field; the known ones are {' and '.join(known)}.", field=where)


NONE: Final = Policy()
"""The default: no resets by time."""
