"""``limpet config`` tells every setting, and no secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from limpet.cli import main
from limpet.service.auth import Guard
from limpet.settings import Settings


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("LIMPET_POOL=gpus\n")
    monkeypatch.setenv("LIMPET_REDIS_URL", "redis://me:sesame@cache:6379/0")
    monkeypatch.setenv("LIMPET_TOKEN", "sesame")
    monkeypatch.setenv("LIMPET_PROT", "5000")


def test_as_json_it_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """Every setting with its value and origin; secrets masked; a mistyped name pointed out beside."""
    assert main(["config", "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert len(document) == len(Settings.model_fields)
    assert document["LIMPET_POOL"]["value"] == "gpus"
    assert document["LIMPET_POOL"]["from"] == ".env LIMPET_POOL"
    assert document["LIMPET_PORT"]["from"] == "default"
    assert "cache:6379" in document["LIMPET_REDIS_URL"]["value"]
    assert "sesame" not in out + err
    assert err == "limpet: LIMPET_PROT is no setting; did you mean LIMPET_PORT?\n"


@pytest.mark.parametrize("width", ["40", "80", "160"])
def test_as_a_table_it_fits_every_width(width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """No setting is lost on a narrow terminal, and no secret shown on a wide one."""
    monkeypatch.setenv("COLUMNS", width)
    assert main(["config"]) == 0
    out = capsys.readouterr().out
    names = [f"LIMPET_{name.upper()}" for name in Settings.model_fields]
    assert all(name in out for name in names if len(name) < 30)
    assert "sesame" not in out
    assert all(len(line) <= int(width) for line in out.splitlines())


def test_a_new_token_opens_the_service(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed for LIMPET_TOKENS lets the printed token in, with its rights and no others; no two are the same."""
    assert main(["config", "--new-token", "--namespace", "prod", "--right", "admin", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    monkeypatch.setenv("LIMPET_TOKENS", json.dumps([made["entry"]]))
    guard = Guard(Settings.load())
    assert guard.enter({b"authorization": b"Bearer " + made["token"].encode()}, "admin") == "prod"
    assert made["token"] not in json.dumps(made["entry"])
    assert main(["config", "--new-token"]) == 0
    out = capsys.readouterr().out
    assert made["token"] not in out
    assert json.loads(out.splitlines()[-1])[0]["rights"] == ["resolve"]
    assert main(["config", "--new-token", "--namespace", "Bad"]) == 2
    assert main(["config", "--right", "admin"]) == 2
