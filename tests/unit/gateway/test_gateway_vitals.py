"""What a gateway finds out about its upstreams, by checks and by what becomes of requests."""

from __future__ import annotations

from limpet.gateway.checks import is_good
from limpet.gateway.vitals import Limits, Vitals

LIMITS = Limits(down_after=3, up_after=2, eject_after=3, eject_s=0.5, eject_max_s=15.0)


class Time:
    """A clock that is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def make() -> tuple[Vitals, Time, list[str]]:
    """Vitals, their clock, and why they ejected."""
    time, why = Time(), []
    return Vitals(LIMITS, time, why.append), time, why


def test_nobody_listens() -> None:
    """A refused connection ejects at once, for longer each time, up to a bound; a success ends it and forgives all before."""
    vitals, time, why = make()
    rests = []
    for _ in range(8):
        vitals.unreachable("a")
        vitals.unreachable("a")  # of many at once the first counts
        assert (vitals.state("a"), vitals.is_unreachable("a")) == ("ejected", True)
        started = time.now
        while not vitals.is_up("a"):
            time.now += 0.25
        rests.append(time.now - started)
    assert rests == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]
    assert why == ["unreachable"] * 8
    vitals.unreachable("a")
    vitals.worked("a")
    assert vitals.state("a") == "healthy"
    vitals.unreachable("a")
    time.now += 0.5
    assert vitals.is_up("a")
    assert vitals.is_up("b")


def test_failures_in_a_row() -> None:
    """So many failed requests in a row eject; a good one in between begins the count again."""
    vitals, _, why = make()
    vitals.worked("a")
    for _ in range(4):
        vitals.failed("a", "status")
        vitals.failed("a", "timeout")
        vitals.worked("a")
    assert vitals.is_up("a")
    for _ in range(3):
        vitals.failed("a", "reset")
    assert (vitals.state("a"), vitals.is_unreachable("a"), why) == ("ejected", False, ["reset"])


def test_checks_in_a_row() -> None:
    """Three bad checks make it unhealthy, two good ones healthy; single ones change nothing."""
    vitals, _, _ = make()
    assert [vitals.checked("a", good=good) for good in (False, False, True, False, False, False)] == [False] * 5 + [True]
    assert vitals.state("a") == "unhealthy"
    assert [vitals.checked("a", good=good) for good in (True, False, True, True)] == [False] * 3 + [True]
    assert vitals.state("a") == "healthy"


def test_a_good_check_and_an_ejection() -> None:
    """It ends the ejection of one that could not be reached, not of one whose requests fail."""
    vitals, _, _ = make()
    vitals.unreachable("a")
    vitals.checked("a", good=True)
    assert vitals.is_up("a")
    for _ in range(3):
        vitals.failed("a", "status")
    vitals.checked("a", good=True)
    assert vitals.state("a") == "ejected"


def test_real_answers_do_not_overrule_checks() -> None:
    """A server that says it is unhealthy stays so until its checks are good again."""
    vitals, _, _ = make()
    for _ in range(3):
        vitals.checked("a", good=False, reached=False)
    assert vitals.is_unreachable("a")
    vitals.worked("a")
    assert (vitals.state("a"), vitals.is_unreachable("a")) == ("unhealthy", False)


def test_forgetting() -> None:
    """Who is no upstream any more is forgotten."""
    vitals, _, _ = make()
    vitals.unreachable("a")
    vitals.unreachable("b")
    vitals.keep({"b"})
    assert (vitals.is_up("a"), vitals.is_up("b")) == (True, False)


def test_what_a_good_answer_to_a_check_is() -> None:
    """Anything but a 5xx means that the server lives; 501 means that it does not know the method."""
    assert all(is_good(status) for status in (200, 204, 301, 401, 403, 404, 405, 429, 501))
    assert not any(is_good(status) for status in (500, 502, 503, 504))
