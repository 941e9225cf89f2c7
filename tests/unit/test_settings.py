"""Settings: every name, where its value came from, and mistakes told in one line that leaks nothing."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from limpet.settings import DEFAULT_KEY_SOURCES, Settings, SettingsInvalid

DIGEST = hashlib.sha256(b"hunter2-token").hexdigest()
DESIGN = {
    *("REDIS_URL", "NAMESPACE", "PARTITIONS", "RETENTION_S", "TOUCH_GRANULARITY_MS", "DEADLINE_MS", "MEMO_TTL_MS"),
    *("BIND_TTL_MS", "CLAIM_TTL_MS", "DURABILITY", "DURABLE_REPLICAS", "SCOPE_SECRET", "KEY_SOURCES", "PROFILE"),
    *("UPSTREAMS", "POOL", "CACHE_BUST", "DEBUG_SAMPLES", "DEBUG_CHARS", "TOKENS", "METRICS_TOKEN"),
}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No LIMPET_* variable, no .env."""
    for name in list(os.environ):
        if name.upper().startswith("LIMPET_") or name.upper() == "REDIS_URL":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_name_of_the_design_is_a_setting() -> None:
    """Design section 9 lists the names; each has a help text."""
    rows = {row.name: row for row in Settings.load().describe()}
    assert {f"LIMPET_{name}" for name in DESIGN} <= rows.keys()
    assert all(row.help.endswith(".") for row in rows.values())


def test_precedence(monkeypatch: pytest.MonkeyPatch, bare: Path) -> None:
    """A flag beats the environment, the environment beats .env, .env beats the default; each row says which it was."""
    bare.joinpath(".env").write_text("LIMPET_PORT=1\nLIMPET_WORKERS=3\nLIMPET_DEADLINE_MS=9\n")
    monkeypatch.setenv("LIMPET_PORT", "2")
    monkeypatch.setenv("LIMPET_WORKERS", "2")
    settings = Settings.load(port=4, host=None)
    assert (settings.port, settings.workers, settings.deadline_ms, settings.host) == (4, 2, 9, "127.0.0.1")
    origins = {row.name: row.origin for row in settings.describe()}
    assert origins["LIMPET_PORT"] == "flag"
    assert origins["LIMPET_WORKERS"] == "environment LIMPET_WORKERS"
    assert origins["LIMPET_DEADLINE_MS"] == ".env LIMPET_DEADLINE_MS"
    assert origins["LIMPET_HOST"] == "default"


def test_redis_url_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """REDIS_URL is read where LIMPET_REDIS_URL is not set; an empty variable counts as not set."""
    monkeypatch.setenv("REDIS_URL", "redis://plain/0")
    monkeypatch.setenv("LIMPET_REDIS_URL", "")
    assert Settings.load().secret("redis_url") == "redis://plain/0"
    monkeypatch.setenv("LIMPET_REDIS_URL", "redis://ours/0")
    assert Settings.load().secret("redis_url") == "redis://ours/0"


def test_secrets_stay_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither rows nor repr show a password, a secret or a token; what is not secret in a URL stays readable."""
    monkeypatch.setenv("LIMPET_REDIS_URL", "redis+sentinel://bob:s3cr3t@h1:1,h2/svc/0?sentinel_password=t0p&ssl=true")
    monkeypatch.setenv("LIMPET_SCOPE_SECRET", "pepper77")
    monkeypatch.setenv("LIMPET_METRICS_TOKEN", "scrape77")
    monkeypatch.setenv("LIMPET_TOKEN", "caller77")
    monkeypatch.setenv("LIMPET_UPSTREAMS", "http://me:key77@up:1,http://up2")
    settings = Settings.load()
    shown = repr(settings.describe()) + repr(settings)
    for secret in ("s3cr3t", "t0p", "pepper77", "scrape77", "caller77"):
        assert secret not in shown
    rows = {row.name: row.value for row in settings.describe()}
    assert rows["LIMPET_REDIS_URL"] == "redis+sentinel://********@h1:1,h2/svc/0?sentinel_password=********&ssl=true"
    assert rows["LIMPET_UPSTREAMS"] == "http://********@up:1,http://up2"


def test_tokens() -> None:
    """LIMPET_TOKENS is a JSON list; rights default to resolve, two tokens may serve one namespace."""
    settings = Settings.load(tokens=[{"sha256": DIGEST.upper(), "namespace": "prod"}, {"sha256": DIGEST[::-1]}])
    first, second = settings.tokens
    assert (first.sha256, first.namespace, set(first.rights)) == (DIGEST, "prod", {"resolve"})
    assert second.namespace == "default"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("LIMPET_TOKENS", "[{", "LIMPET_TOKENS: must be JSON"),
        ("LIMPET_TOKENS", '[{"sha256": "hunter2"}]', "LIMPET_TOKENS[0].sha256: must be the 64 hex digits"),
        ("LIMPET_TOKENS", f'[{{"sha256": "{DIGEST}", "rights": ["root"]}}]', "LIMPET_TOKENS[0].rights"),
        ("LIMPET_TOKENS", f'[{{"sha256": "{DIGEST}", "extra": 1}}]', "LIMPET_TOKENS[0].extra"),
        ("LIMPET_TOKENS", f'[{{"sha256": "{DIGEST}", "namespace": "A"}}]', "LIMPET_TOKENS[0].namespace"),
        ("LIMPET_TOKENS", json.dumps([{"sha256": DIGEST}] * 2), "names one token twice"),
        ("LIMPET_TOKENS", json.dumps([{"sha256": "0" * 64}]), "LIMPET_TOKENS[0].sha256: is a placeholder"),
        *(
            ("LIMPET_TOKENS", json.dumps([{"sha256": hashlib.sha256(word).hexdigest()}]), "limpet config --new-token")
            for word in (b"", b"\n", b"secret", b"Secret", b"CHANGEME", b"token\n", b"hunter2"[:0])
        ),
        ("LIMPET_METRICS_TOKEN", "hunter2", "LIMPET_METRICS_TOKEN: is guessed by anyone"),
        ("LIMPET_METRICS_TOKEN", "changeme", "LIMPET_METRICS_TOKEN: is guessed by anyone"),
        ("LIMPET_PORT", "hunter2", "LIMPET_PORT: input should be a valid integer"),
        ("LIMPET_PARTITIONS", "0", "LIMPET_PARTITIONS: input should be greater than or equal to 1"),
        ("LIMPET_CLAIM_TTL_MS", "99", "LIMPET_CLAIM_TTL_MS"),
        ("LIMPET_NAMESPACE", "Prod", "LIMPET_NAMESPACE"),
        ("LIMPET_DURABILITY", "hunter2", "LIMPET_DURABILITY: input should be 'replica', 'aof' or 'none'"),
        ("LIMPET_KEY_SOURCES", "hunter2", "LIMPET_KEY_SOURCES: must hold header:<name> or body:<name>"),
        ("LIMPET_UPSTREAMS", "[hunter2", "LIMPET_UPSTREAMS: must be a JSON list"),
    ],
)
def test_mistakes_are_one_line(monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str) -> None:
    """Each mistake names its variable in one line and never repeats the value."""
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsInvalid) as caught:
        Settings.load()
    message = str(caught.value)
    assert said in message
    assert "\n" not in message
    assert "hunter2" not in message
    assert DIGEST not in message


def test_two_mistakes_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to run it twice to learn of both."""
    monkeypatch.setenv("LIMPET_PORT", "x")
    monkeypatch.setenv("LIMPET_WORKERS", "0")
    with pytest.raises(SettingsInvalid, match=r"LIMPET_PORT: .*; LIMPET_WORKERS: "):
        Settings.load()


def test_unknown_flag_and_broken_file(bare: Path) -> None:
    """A flag that does not exist and a .env that is not UTF-8 are told, not ignored."""
    with pytest.raises(SettingsInvalid, match="no setting named prot"):
        Settings.load(prot=1)
    bare.joinpath(".env").write_bytes(b"LIMPET_PORT=\xff\n")
    with pytest.raises(SettingsInvalid, match="not UTF-8"):
        Settings.load()


def test_unknown_variables(monkeypatch: pytest.MonkeyPatch, bare: Path) -> None:
    """Mistyped names are found in the environment and in .env; other programs' names are none of our business."""
    monkeypatch.setenv("LIMPET_PARTITION", "1")
    bare.joinpath(".env").write_text("LIMPET_WORKER=1\nOTHER=2\n")
    assert Settings.load().unknown_variables() == ["LIMPET_PARTITION", "LIMPET_WORKER"]


def test_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are written by commas or as JSON."""
    assert Settings.load().key_sources == DEFAULT_KEY_SOURCES
    monkeypatch.setenv("LIMPET_KEY_SOURCES", "header:X-A, body:b,")
    assert Settings.load().key_sources == ("header:X-A", "body:b")
    monkeypatch.setenv("LIMPET_KEY_SOURCES", '["header:X-A"]')
    assert Settings.load().key_sources == ("header:X-A",)


@pytest.mark.parametrize(
    ("host", "off"),
    [("127.0.0.1", False), ("localhost", False), ("::1", False), ("[::1]", False), ("127.9.9.9", False),
     ("0.0.0.0", True), ("::", True), ("10.0.0.1", True), ("gateway.internal", True)],
)  # fmt: skip
def test_off_loopback(host: str, off: bool) -> None:
    """What other machines may reach; a name that is not localhost may be anything."""
    assert Settings.load(host=host).off_loopback is off


def test_a_child_gets_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """to_environ survives the round trip through a child's environment, over what that environment says already."""
    monkeypatch.setenv("LIMPET_WORKERS", "7")
    monkeypatch.setenv("REDIS_URL", "redis://other/0")
    parent = Settings.load(
        redis_url="unix:///run/x.sock?db=0",
        workers=2,
        port=5467,
        insecure=True,
        scope_secret="pepper",
        data_dir=Path("/data"),
        tokens=[{"sha256": DIGEST, "namespace": "prod", "rights": ["resolve", "admin"]}],
        upstreams="http://a,http://b",
    )
    for name, value in parent.to_environ().items():
        monkeypatch.setenv(name, value)
    child = Settings.load()
    assert child.model_dump() == parent.model_dump()
    assert child.secret("scope_secret") == "pepper"
