"""Policies: the vectors, a brute-force oracle over awkward zones, the cache, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from limpet import policy
from limpet.errors import InvalidRequest
from limpet.policy import NONE, Daily, Policy, daily_boundaries

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "daily.json").read_text(encoding="utf-8"))

AWKWARD = [
    ("Africa/Cairo", datetime(2026, 4, 24)),  # midnight itself is skipped
    ("Africa/Cairo", datetime(2026, 10, 29)),  # the hour before midnight is repeated
    ("America/New_York", datetime(2026, 3, 8)),
    ("America/New_York", datetime(2026, 11, 1)),
    ("Australia/Lord_Howe", datetime(2026, 4, 5)),  # half an hour of daylight saving
    ("Australia/Lord_Howe", datetime(2026, 10, 4)),
    ("Asia/Kolkata", datetime(2026, 6, 15)),
    ("Asia/Kathmandu", datetime(2026, 6, 15)),  # +05:45
    ("Pacific/Apia", datetime(2011, 12, 30)),  # a local day that does not exist
    ("Pacific/Kiritimati", datetime(1994, 12, 31)),
    ("America/Sao_Paulo", datetime(2017, 10, 15)),  # midnight skipped
    ("America/Sao_Paulo", datetime(2018, 2, 18)),  # the hour before midnight repeated
    ("America/St_Johns", datetime(2010, 11, 7)),  # 00:01 falls back into the day before
    ("Africa/Casablanca", datetime(2026, 2, 15)),
    ("Europe/Paris", datetime(2026, 3, 29)),
    ("UTC", datetime(2026, 12, 31)),
]


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    policy._cache.clear()
    yield
    policy._cache.clear()


@lru_cache(maxsize=32)
def minutes(tz: str, centre: datetime) -> list[tuple[datetime, datetime]]:
    """(instant, naive wall time) of every minute of the twelve days around ``centre``."""
    zone = ZoneInfo(tz)
    start = centre.replace(tzinfo=UTC) - timedelta(days=6)
    instants = [start + timedelta(minutes=n) for n in range(12 * 1440)]
    return [(i, i.astimezone(zone).replace(tzinfo=None)) for i in instants]


def oracle(tz: str, centre: datetime, at: str) -> list[datetime]:
    """The boundaries as the design words them: of each local day the first minute whose wall time is at or after at."""
    threshold = time.fromisoformat(at)
    first: dict[date, datetime] = {}
    for instant, wall in minutes(tz, centre):
        if wall.time() >= threshold:
            first.setdefault(wall.date(), instant)
    return sorted(first.values())[1:]  # the first local day may have been entered after its boundary


@pytest.mark.parametrize("case", VECTORS, ids=lambda c: f"{c['now']} {c['at']} {c['tz']}")
def test_vectors(case: dict[str, str]) -> None:
    """Every published vector of a daily boundary holds, to the instant and in UTC."""
    previous, following = daily_boundaries(datetime.fromisoformat(case["now"]), case["at"], case["tz"])
    assert (previous.isoformat(), following.isoformat()) == (case["previous"], case["next"])


@settings(max_examples=250, deadline=None)
@given(
    st.sampled_from(AWKWARD),
    st.integers(-30 * 60, 30 * 60),
    st.one_of(st.sampled_from([0, 1, 30, 59, 60, 120, 1380, 1410, 1439]), st.integers(0, 1439)),
)
@example(AWKWARD[0], 0, 0)
@example(AWKWARD[8], 0, 240)
@example(AWKWARD[8], 0, 1439)
def test_boundaries_match_a_scan_of_every_minute(zone: tuple[str, datetime], shift: int, minute: int) -> None:
    """Whatever the zone does around now, the three boundaries are those that a scan of every minute finds."""
    tz, centre = zone
    at = f"{minute // 60:02d}:{minute % 60:02d}"
    now = centre.replace(tzinfo=UTC) + timedelta(minutes=shift)
    expected = oracle(tz, centre, at)
    index = next(n for n, instant in enumerate(expected) if instant > now)
    policy._cache.clear()
    assert Policy(daily=Daily(at, tz)).boundaries(now) == tuple(expected[index - 2 : index + 1])
    assert daily_boundaries(now, at, tz) == tuple(expected[index - 1 : index + 1])


def test_a_skipped_day_has_no_boundary() -> None:
    """Apia had no 30 December 2011: the boundaries go from the 29th to the 31st."""
    now = datetime(2011, 12, 30, 12, tzinfo=UTC)  # the 31st, 02:00, in Apia
    earlier, previous, following = Policy(daily=Daily("01:00", "Pacific/Apia")).boundaries(now)
    walls = [i.astimezone(ZoneInfo("Pacific/Apia")).strftime("%d %H:%M") for i in (earlier, previous, following)]
    assert walls == ["29 01:00", "31 01:00", "01 01:00"]


def test_midnight_that_is_skipped_gives_the_first_instant_of_the_day() -> None:
    """Sao Paulo skipped 00:00 to 01:00 on 15 October 2017: the boundary of that day is its first instant."""
    previous, following = daily_boundaries(datetime(2017, 10, 15, 3, tzinfo=UTC), "00:00", "America/Sao_Paulo")
    assert previous == datetime(2017, 10, 15, 3, tzinfo=UTC)
    assert following == datetime(2017, 10, 16, 2, tzinfo=UTC)


def test_an_offset_of_odd_seconds_is_exact() -> None:
    """Monrovia kept 44 minutes and 30 seconds until 1972; the boundary is exact to the second, also at the change."""
    previous, following = daily_boundaries(datetime(1971, 6, 1, 12, tzinfo=UTC), "04:00", "Africa/Monrovia")
    assert previous == datetime(1971, 6, 1, 4, 44, 30, tzinfo=UTC)
    assert following == datetime(1971, 6, 2, 4, 44, 30, tzinfo=UTC)
    change = datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC)  # midnight became 00:44:30
    assert daily_boundaries(change, "00:10", "Africa/Monrovia")[0] == change
    before = daily_boundaries(change - timedelta(microseconds=1), "00:10", "Africa/Monrovia")
    assert before == (datetime(1972, 1, 6, 0, 54, 30, tzinfo=UTC), change)


def test_now_may_be_in_any_zone_and_have_microseconds() -> None:
    """now is an instant: its own zone and its fold do not matter, and a boundary is compared to the microsecond."""
    boundary = datetime(2026, 6, 15, 2, tzinfo=UTC)
    just_before = (boundary - timedelta(microseconds=1)).astimezone(ZoneInfo("Asia/Tokyo"))
    assert daily_boundaries(just_before, "04:00", "Europe/Paris")[1] == boundary
    assert daily_boundaries(boundary.astimezone(ZoneInfo("Asia/Tokyo")), "04:00", "Europe/Paris")[0] == boundary
    folded = datetime(2026, 11, 1, 1, 30, fold=1, tzinfo=ZoneInfo("America/New_York"))
    previous, _ = daily_boundaries(folded, "01:00", "America/New_York")
    assert previous == datetime(2026, 11, 1, 5, tzinfo=UTC)
    assert previous.tzinfo is UTC


def test_the_cache_answers_while_now_is_between() -> None:
    """Within previous <= now < next the very same answer comes back; outside, on either side, a new one."""
    daily = Policy(daily=Daily("04:00", "UTC"))
    noon = datetime(2026, 6, 15, 12, tzinfo=UTC)
    kept = daily.boundaries(noon)
    assert daily.boundaries(kept[1]) is kept
    assert daily.boundaries(kept[2] - timedelta(microseconds=1)) is kept
    assert daily.boundaries(kept[2])[1] == kept[2]
    assert daily.boundaries(noon) == kept
    assert daily.boundaries(kept[1] - timedelta(microseconds=1))[2] == kept[1]


def test_the_cache_is_bounded() -> None:
    """However many policies the callers invent, no more than a fixed number of answers is kept."""
    noon = datetime(2026, 6, 15, 12, tzinfo=UTC)
    for minute in range(policy._CACHE_SIZE + 40):
        daily_boundaries(noon, f"{minute // 60:02d}:{minute % 60:02d}", "UTC")
    assert len(policy._cache) == policy._CACHE_SIZE


@pytest.mark.parametrize(
    "at", ["24:00", "4:00", "04:60", "0400", "04:00:00", " 04:00", "04:00\n", "\u0660\u0664:\u0660\u0660", "", None, 4, time(4)]
)
def test_a_malformed_wall_time_is_refused(at: Any) -> None:
    """at is HH:MM, 00:00 to 23:59, in ASCII digits, and nothing else."""
    with pytest.raises(InvalidRequest, match="HH:MM"):
        daily_boundaries(datetime(2026, 6, 15, tzinfo=UTC), at, "UTC")
    with pytest.raises(InvalidRequest, match="HH:MM"):
        Policy.parse({"daily": {"at": at, "tz": "UTC"}})


@pytest.mark.parametrize(
    "tz",
    [
        "",
        "Europe",
        "../../etc/passwd",
        "/etc/passwd",
        "No/Such",
        "a" * 5000,
        "UTC\0",
        "\ud800",
        "zone.tab",
        None,
        5,
        UTC,
    ],
)
def test_an_unknown_zone_is_refused(tz: Any) -> None:
    """A name that the zone database lacks is an error, whatever the lookup of files makes of it."""
    with pytest.raises(InvalidRequest, match="zone database"):
        daily_boundaries(datetime(2026, 6, 15, tzinfo=UTC), "04:00", tz)
    with pytest.raises(InvalidRequest, match="zone database"):
        Policy.parse({"daily": {"at": "04:00", "tz": tz}})


def test_a_naive_now_is_refused() -> None:
    """A naive datetime names no instant."""
    with pytest.raises(InvalidRequest, match="aware"):
        daily_boundaries(datetime(2026, 6, 15), "04:00", "UTC")


@pytest.mark.parametrize("now", [datetime.min, datetime.max])
def test_the_ends_of_the_calendar_are_an_error(now: datetime) -> None:
    """No OverflowError leaks out."""
    with pytest.raises(InvalidRequest, match="calendar"):
        daily_boundaries(now.replace(tzinfo=UTC), "04:00", "UTC")


def test_parse_accepts_the_forms_of_the_design() -> None:
    """{}, idle, daily, both, null fields, a Policy and None."""
    daily = {"at": "04:00", "tz": "Europe/Paris"}
    assert Policy.parse(None) is NONE
    assert Policy.parse({}) is NONE
    assert Policy.parse({"idle_s": None, "daily": None}) == NONE
    assert Policy.parse({"idle_s": 86400}) == Policy(idle_s=86400)
    assert Policy.parse({"idle_s": 1.5}) == Policy(idle_s=1.5)
    assert Policy.parse({"daily": daily}) == Policy(daily=Daily("04:00", "Europe/Paris"))
    both = Policy.parse({"idle_s": 31_536_000, "daily": daily})
    assert both == Policy(31_536_000, Daily("04:00", "Europe/Paris"))
    assert Policy.parse(both) is both
    assert Policy.parse({"daily": Daily("04:00", "UTC")}).daily == Daily("04:00", "UTC")


@pytest.mark.parametrize(
    "bad",
    [
        {"idle": 5},
        {"idle_s": 5, "x": None},
        {5: 6},
        {"daily": {"at": "04:00", "tz": "UTC", "days": 2}},
        {"daily": {"at": "04:00"}},
        {"daily": {"tz": "UTC"}},
        {"daily": {}},
        {"daily": "04:00"},
        {"daily": ["04:00", "UTC"]},
        [],
        "idle",
        5,
    ],
)
def test_parse_refuses_what_it_does_not_know(bad: Any) -> None:
    """Unknown fields and wrong shapes are errors, so that a misspelt policy never means "no policy"."""
    with pytest.raises(InvalidRequest):
        Policy.parse(bad)


@pytest.mark.parametrize(
    "idle", [0, 0.5, -1, 31_536_001, 10**400, float("nan"), float("inf"), True, "60", [60]], ids=lambda v: str(v)[:12]
)
def test_an_absurd_idle_time_is_refused(idle: Any) -> None:
    """idle_s is a number from 1 second to 365 days; also when a Policy is built by hand."""
    with pytest.raises(InvalidRequest, match="idle_s"):
        Policy.parse({"idle_s": idle})
    with pytest.raises(InvalidRequest, match="idle_s"):
        Policy(idle_s=idle)


def test_a_policy_without_daily_has_no_boundaries() -> None:
    """Asking for them is the caller's mistake, and says so."""
    with pytest.raises(InvalidRequest, match="no daily"):
        NONE.boundaries(datetime(2026, 6, 15, tzinfo=UTC))
