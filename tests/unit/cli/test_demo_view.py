"""What the demo says at the end: the counted numbers, and an exit code that follows the verdict."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import msgspec
import pytest
from rich.console import Console

from limpet.cli import main
from limpet.cli.demo_view import Live, show
from limpet.demo.count import Side, Tally
from limpet.demo.ledger import Handover, Kill
from limpet.demo.plan import generate
from limpet.demo.run import Killed, Report

EndsAs = Callable[[Report], None]

GOOD = Report(
    ok=True,
    source="generated",
    gateways=4,
    keys=10,
    seconds=2.0,
    killed=Killed(gateway="gateway-4", pid=9, claims=8, handed_over=8, late_confirms_refused=8, seconds=1.9),
    failures=[],
    counted=Tally(
        turns=1000,
        conversations=12,
        left_out=0,
        new=1,
        idle=1,
        degraded=0,
        limpet=Side(binds=12, binds_most=1, split=0, scopes=12, scopes_most=1),
        alone=Side(binds=36, binds_most=4, split=11, scopes=90, scopes_most=8),
    ),
)
SIDE = Side(binds=13, binds_most=2, split=1, scopes=12, scopes_most=1)
BAD = msgspec.structs.replace(
    GOOD,
    ok=False,
    failures=["G4: 1 of 12 conversations were not bound exactly once, e.g. a."],
    counted=msgspec.structs.replace(GOOD.counted, limpet=SIDE, left_out=2),
)


@pytest.fixture
def ends_as(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> EndsAs:
    """The demo, without its processes: it comes to the report that the test gives."""
    monkeypatch.chdir(str(tmp_path))
    monkeypatch.setenv("LIMPET_REDIS_URL", "unix:///nowhere")

    async def swept(*_: object) -> None:
        return

    def use(report: Report) -> None:
        monkeypatch.setattr("limpet.demo.run.run", lambda *_: report)
        monkeypatch.setattr("limpet.demo.run.sweep", swept)

    return use


def test_a_guarantee_that_did_not_hold_is_exit_code_1(ends_as: EndsAs, capsys: pytest.CaptureFixture[str]) -> None:
    """Said in the table, in a line, and to the shell."""
    ends_as(BAD)
    assert main(["demo"]) == 1
    out = capsys.readouterr().out
    assert "1.1 (up to 2)" in out
    assert "1 of 12" in out
    assert "G4: 1 of 12 conversations were not bound exactly once, e.g. a." in out
    assert "2 keys left out" in out
    assert "Every guarantee held" not in out
    assert main(["demo", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_a_run_in_which_all_held_is_exit_code_0(ends_as: EndsAs, capsys: pytest.CaptureFixture[str]) -> None:
    """The same path with the other report."""
    ends_as(GOOD)
    assert main(["demo"]) == 0
    assert "Every guarantee held" in capsys.readouterr().out


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_it_can_be_read_on_any_terminal(width: int, encoding: str) -> None:
    """Narrow or wide, with or without Unicode: nothing is lost, and nothing is drawn over the edge."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    out = Console(file=file, width=width, force_terminal=True, color_system=None, legacy_windows=False)
    with Live(out) as live:
        live.begin(generate(10, gateways=4, victims=2))
        live.store("a store")
        live.ready([1, 2, 3, 4])
        live.killed(Kill("gateway-4", 4, 1))
        live.progress(5, 10, 100)
        live.handed_over([Handover("k", 1, 2, 1.9, True)])
    show(out, GOOD)
    file.flush()
    text = raw.getvalue().decode(encoding)
    for word in ("gateway-4", "1 claim", "with Limpet", "3.0 (up to 4)", "11 of 12", "guarantee"):
        assert word.split()[0] in text
    plain = [line for line in text.replace("\r", "\n").split("\n") if "\x1b" not in line]
    assert max(len(line) for line in plain) <= width
