"""Every command in the README is run, or has a test that runs it, and does what stands beside it."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from limpet.demo.replay import read
from limpet.settings import Settings
from limpet.wire import load_profiles
from tests.support.readme import README

BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text(encoding="utf-8"), re.M | re.S)
LIMPET = str(Path(sys.executable).with_name("limpet"))
ELSEWHERE = {
    "pip install uv && uv run limpet demo": "test_demo.py; .ci/run's wheel test",
    "uv run pytest": "this very run",
    "uv run --group e2e pytest -m e2e tests/e2e -n 0": "needs more than pip",
    "LIMPET_CHAOS_MINUTES=10 uv run pytest -m chaos tests/chaos -n 0": "minutes; tests/chaos/test_short.py",
}


def commands() -> Iterator[str]:
    """Each command line of the README's blocks, continued lines joined, comments cut."""
    for language, block in BLOCKS:
        if language == "":
            for line in block.replace("\\\n", " ").splitlines():
                text = line.split("  #")[0].strip()
                if text.startswith(("limpet ", "uv ", "pip ", "curl ", "LIMPET_", "docker ")):
                    yield re.sub(r"\s+", " ", text)


@contextlib.contextmanager
def started(*words: str, **environ: str) -> Iterator[str]:
    """A process that listens; its URL."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_") and name != "REDIS_URL"}
    with tempfile.TemporaryDirectory(prefix="limpet-readme-") as folder:
        process = subprocess.Popen(
            [LIMPET, *words], env=kept | environ, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"listening on (http://\S+?);", line):
                    yield found[1]
                    return
            raise AssertionError(f"{words} ended with {process.wait(5)} before it listened")
        finally:
            process.terminate()
            process.wait(20)
            if process.stdout is not None:
                process.stdout.close()


def test_all_are_known() -> None:
    """A command that is new in the README needs a test here."""
    known = {*ELSEWHERE, *(line for line in commands() if line.startswith(("limpet gateway ", "curl ")))}
    assert set(commands()) == known
    assert len(known) >= 9


def test_curl(store_url: str) -> None:
    """The request answers what the text promises: a scope and the one bind."""
    (line,) = (line for line in commands() if line.startswith("curl "))
    with started("serve", "--port", "0", LIMPET_REDIS_URL=store_url) as url:
        words = shlex.split(line.replace("localhost:5467", url.removeprefix("http://")))
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=True)
    answer = json.loads(done.stdout)
    assert (answer["key"], answer["binding"]["action"], answer["binding"]["worker"]) == ("telegram:dm:42", "bind", "gpu-3")


@pytest.mark.parametrize("line", sorted({line for line in commands() if line.startswith("limpet gateway ")}))
def test_gateways(store_url: str, line: str) -> None:
    """Each recipe starts, and is alive; its upstreams are not there, which is no reason to fail."""
    words = shlex.split(line)[1:]
    with started(*words, "--port", "0", LIMPET_REDIS_URL=store_url, LIMPET_HEALTH_INTERVAL_S="0") as url:
        assert httpx.get(f"{url}/livez", timeout=20).status_code == 200


async def test_the_python_example(store_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It runs as it stands, but for the store's address, and prints a scope and a binding that may be bound."""
    (source,) = (block for language, block in BLOCKS if language == "python")
    tree = ast.parse(source.replace("redis://localhost:6379", store_url))
    assert ast.unparse(tree.body.pop()) == "asyncio.run(main())"
    names: dict[str, Any] = {}
    exec(compile(tree, str(README), "exec"), names)
    main: Callable[[], Any] = names["main"]
    await main()
    scope, binding = capsys.readouterr().out.splitlines()[:2]
    assert re.fullmatch(r"gwk_[0-9a-f]{24}", scope)
    assert "action='bind'" in binding


def test_the_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of LIMPET_PROFILES is one: it is taken, and names what the text says."""
    (text,) = (block for language, block in BLOCKS if language == "json" and "fields" in block)
    monkeypatch.setenv("LIMPET_PROFILES", text)
    settings = Settings.load(profile="my-router")
    assert set(load_profiles(settings.profiles)) == {"my-router", "dynamo-verbatim"}


def test_the_recorded_request(tmp_path: Path) -> None:
    """The example of a line for ``--replay`` is one: a session of one turn."""
    (text,) = (block for language, block in BLOCKS if language == "json" and '"path"' in block)
    assert len(text.splitlines()) == 1
    recorded = tmp_path / "requests.jsonl"
    recorded.write_text(text * 3)
    plan = read(recorded, Settings.load().key_sources, victims=0)
    assert [each.key for each in plan.conversations] == ["s1"]
