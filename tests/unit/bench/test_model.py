"""How samples become rows, figures and pictures."""

from __future__ import annotations

import io
import itertools
import xml.etree.ElementTree as ElementTree

import pytest
from rich.console import Console

from limpet.bench.alternate import alternate
from limpet.bench.http_load import Load, complete, requests
from limpet.bench.model import Figure, Report, Row, Sample, figure, percentile, rows_of
from limpet.bench.peers import Count, count
from limpet.bench.peers_process import Outcome
from limpet.bench.plot import draw
from limpet.bench.processes import gather
from limpet.bench.table import progress, show


def test_contenders_take_turns() -> None:
    """A B A B, the first round to warm up and not counted."""
    ran: list[str] = []
    told: list[tuple[str, int, int]] = []

    def case(name: str) -> Sample:
        ran.append(name)
        return Sample(len(ran))

    found = alternate({"a": lambda: case("a"), "b": lambda: case("b")}, 2, lambda *what: told.append(what), "x")
    assert ran == ["a", "b"] * 3
    assert found == {"a": [Sample(3), Sample(5)], "b": [Sample(4), Sample(6)]}
    assert told[0] == ("x a", 0, 6)
    assert told[-1] == ("x", 6, 6)


def test_ratios_are_of_rounds() -> None:
    """The ratio is the median of the rounds' ratios, not the ratio of medians: both were under the same load."""
    samples = {"base": [Sample(10), Sample(100), Sample(20)], "ours": [Sample(20), Sample(150), Sample(60)]}
    base, ours = rows_of(samples, baseline="base", unit="/s", load=8, more={"ours": {"x": 1}})
    assert (base.ratio, ours.ratio) == (1, 2)
    assert (ours.median, ours.low, ours.high, ours.load, ours.more) == (60, 20, 150, 8, {"x": 1})
    (alone,) = rows_of({"ours": samples["ours"]}, baseline=None, unit="us")
    assert alone.ratio is None


@pytest.mark.parametrize(
    ("measured", "bar", "aim", "better", "met"),
    [(7, 6, 12, "high", "bar"), (12, 6, 12, "high", "aim"), (5.9, 6, 12, "high", "no"), (1.2, 2, 1, "low", "bar"),
     (1, 2, 1, "low", "aim"), (2.1, 2, None, "low", "no"), (2, 2, None, "low", "bar")],
)  # fmt: skip
def test_verdicts(measured: float, bar: float, aim: float | None, better: str, met: str) -> None:
    """The bar is reached at its own value."""
    assert figure("f", measured, bar, aim, better).met == met  # type: ignore[arg-type]


def test_percentiles() -> None:
    """Of sorted values; the last one at 100 %."""
    assert [percentile([1, 2, 3, 4], part) for part in (0, 0.5, 0.99, 1)] == [1, 3, 4, 4]


def report() -> Report:
    rows = [
        Row(case=case, group=group, load=load, ratio=ratio, median=value, low=value, high=value, unit="/s", p50_us=5, p99_us=p99)
        for group in ("one", "two")
        for case, ratio, value, p99 in (("a & b", 1.0, 1000.0, 70.0), ("ours", None, 6543.0, None))
        for load in (1, 64)
    ]
    return Report(
        bench="lib",
        title="A <title>",
        rows=rows,
        figures=[Figure("f", 1, 2, 3, "high", "no")],
        notes=["A note."],
        machine={},
        axes={"": "tasks at once"},
    )


def test_the_picture_is_xml() -> None:
    """Well formed, with every contender in the legend, every point on the panel, and text escaped."""
    root = ElementTree.fromstring(draw(report()))
    texts = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("a & b") == texts.count("tasks at once") == 4
    assert {"one: median, calls a second", "one: p99, us", "two: median, calls a second", "two: p99, us"} <= set(texts)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    circles = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == 8 + 4
    assert all(0 < float(each.attrib["cx"]) < width and 0 < float(each.attrib["cy"]) < height for each in circles)


def test_lines_can_be_told_apart() -> None:
    """Twenty contenders of one panel, each in a style of its own; a panel of far apart values is logarithmic."""
    rows = [
        Row(case=f"c{number}", load=load, ratio=None, median=2.0**number, low=1, high=1, unit="us")
        for number in range(20)
        for load in (1, 64)
    ]
    root = ElementTree.fromstring(draw(Report(bench="b", title="t", rows=rows)))
    lines = list(root.iter("{http://www.w3.org/2000/svg}polyline"))
    assert len({(each.attrib["stroke"], each.get("stroke-dasharray")) for each in lines}) == len(lines) == 20
    heights = [float(each.attrib["points"].split()[0].split(",")[1]) for each in lines]
    gaps = [low - high for low, high in itertools.pairwise(heights)]
    assert min(gaps) > 5


def test_units_do_not_share_a_panel() -> None:
    """Microseconds and calls a second of one group are two panels."""
    rows = [Row(case="c", load=1, ratio=None, median=5, low=5, high=5, unit=unit) for unit in ("us", "/s")]
    texts = [each.text for each in ElementTree.fromstring(draw(Report(bench="b", title="t", rows=rows))).iter()]
    assert {"median, us", "median, calls a second"} <= set(texts)


def test_the_picture_of_nothing() -> None:
    """A report without loads draws empty panels and does not fail."""
    ElementTree.fromstring(draw(Report(bench="b", title="t", rows=[])))


def test_the_table() -> None:
    """Ratio, median with its unit, spread, percentiles; then verdicts and notes."""
    out = io.StringIO()
    show(report(), Console(file=out, width=120))
    text = out.getvalue()
    assert "ratio" in text
    assert "6,543 /s" in text
    assert "f: 1 (bar >= 2, aim >= 3): MISSED" in text
    assert text.rstrip().endswith("A note.")


def test_progress_only_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is drawn into a pipe."""
    with progress() as tell:
        tell("x", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A bar, on stderr, that is taken away again."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress() as tell:
        tell("what runs", 1, 2)
    assert capsys.readouterr().out == ""


def outcome(workers: list[list[str]], bound: list[int]) -> Outcome:
    return Outcome(seconds=1, turns=1, p50_us=1, p99_us=1, workers=workers, bound=bound)


def test_what_peers_let_through() -> None:
    """A split is two workers of one session, a double bind two binds carried out, an orphan turns without any."""
    one = outcome([["a", "a"], ["a"], ["a"], ["a"], []], [1, 1, 0, 1, 0])
    two = outcome([["a"], ["b"], ["a"], ["a"], []], [0, 0, 0, 1, 0])
    assert count([one, two]) == Count(splits=1, double=1, orphans=1)
    assert count([one, two]) + Count(1, 2, 3) == Count(2, 3, 4)


def test_answers_of_the_load() -> None:
    """Whole, not yet whole, and not the one that was wanted."""
    good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    assert complete(good, b"ok")
    assert not complete(good[:-1], b"ok")
    assert not complete(good[:20], b"ok")
    assert complete(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"ok")
    for bad in (good.replace(b"200", b"503"), good.replace(b"ok", b"no")):
        with pytest.raises(ValueError, match="not the answer"):
            complete(bad, b"ok")


def test_requests_of_the_load() -> None:
    """Numbers go round, or on from the first."""
    base = Load(url="http://x", path="/p", body='{"n": %d}', headers={"x-key": "k %d"})
    round_robin = requests(Load(url="", path="/p", body="%d", numbers=2))
    assert [next(round_robin)[-1:] for _ in range(3)] == [b"0", b"1", b"0"]
    ever_new = requests(base)
    next(ever_new)
    assert next(ever_new) == b'POST /p HTTP/1.1\r\nhost: bench\r\ncontent-length: 8\r\nx-key: k 1\r\n\r\n{"n": 1}'


def test_long_answers_of_processes() -> None:
    """More than a pipe holds, from several processes of which the last is read last, arrives whole."""
    answers = gather("tests.unit.bench.talker", [300_000, 300_001, 300_002], str)
    assert [len(each) for each in answers] == [300_000, 300_001, 300_002]
