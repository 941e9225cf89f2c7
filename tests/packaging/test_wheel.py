"""What is shipped: the scripts byte for byte, the types marker, and an installation that works away from the checkout."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from limpet.scripts import NAMES, script

ROOT = Path(__file__).resolve().parents[2]
LUA = {str(path.relative_to(ROOT / "lua")): path for path in (ROOT / "lua").rglob("*") if path.is_file()}


def uv(*words: object, cwd: Path = ROOT) -> None:
    subprocess.run(["uv", *map(str, words)], cwd=cwd, check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--quiet", "--out-dir", folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def test_the_wheel_carries_the_scripts(wheel: Path) -> None:
    """limpet/lua of the wheel is lua/ of the checkout, byte for byte; no file more, no file less."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name.removeprefix("limpet/lua/"): name for name in archive.namelist() if name.startswith("limpet/lua/")}
        assert set(names) == set(LUA)
        for name, path in LUA.items():
            assert archive.read(names[name]) == path.read_bytes(), name


def test_the_wheel_is_typed_and_licensed(wheel: Path) -> None:
    """py.typed and LICENSE are there; tests and deployments are not."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "limpet/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert all(name.startswith(("limpet/", "limpet-")) for name in names)


def test_the_wheel_carries_the_package(wheel: Path) -> None:
    """Every file under src/limpet that is no byproduct."""
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / "limpet").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    with zipfile.ZipFile(wheel) as archive:
        assert wanted <= set(archive.namelist())


def test_the_sdist_mirrors_the_checkout(built: Path) -> None:
    """It holds lua/ beside src/, so that a wheel can be built from it."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"lua/{name}" for name in LUA} <= names
    assert {"pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "src/limpet/__init__.py"} <= names


@pytest.mark.timeout(180)
def test_an_installation_finds_its_own_scripts(wheel: Path, tmp_path: Path) -> None:
    """In a fresh environment, away from the checkout: every script loads, from the package, with the checkout's SHA."""
    environment = tmp_path / "venv"
    uv("venv", "--quiet", "--python", sys.executable, environment)
    python = environment / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    uv("pip", "install", "--quiet", "--python", python, wheel)
    program = (
        "import limpet, pathlib\n"
        "from limpet.scripts import NAMES, script, scripts_root\n"
        "assert pathlib.Path(str(scripts_root())).parent == pathlib.Path(limpet.__file__).parent, scripts_root()\n"
        "print(limpet.__version__)\n"
        "for name in NAMES: print(name, script(name).sha)\n"
    )
    done = subprocess.run([python, "-I", "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    version, *lines = done.stdout.splitlines()
    assert version in wheel.name
    assert lines == [f"{name} {script(name).sha}" for name in NAMES]
