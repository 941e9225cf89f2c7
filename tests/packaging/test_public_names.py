"""What is public is listed: __all__ of every module is sorted, complete and importable; the version is told once."""

from __future__ import annotations

import ast
import importlib
import tomllib
from functools import cache
from pathlib import Path

import pytest

import limpet

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in (SOURCE / "limpet").rglob("*.py")
    if not path.stem.startswith("_") or path.stem == "__init__"
)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports() -> list[tuple[str, str, Path]]:
    """(module, name, who): every name that one module of ours imports from another."""
    return [
        (node.module, alias.name, path)
        for path in (SOURCE / "limpet").rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0
        for alias in node.names
    ]


def listed(module: str) -> tuple[list[str], ast.Module]:
    """__all__ as it is written, and the module's tree; imports nothing. A package that is only a docstring offers nothing."""
    path = SOURCE.joinpath(*module.split("."))
    tree = tree_of(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets) and node.value:
                return [str(name) for name in ast.literal_eval(node.value)], tree
    assert all(isinstance(node, ast.Expr) for node in tree.body), f"{module} has no __all__"
    return [], tree


def sort_key(name: str) -> tuple[int, str]:
    """As ruff sorts __all__ (RUF022): constants, classes, the rest."""
    bare = name.strip("_")
    kind = 0 if bare.isupper() and len(bare) > 1 else 1 if bare[:1].isupper() else 2
    return kind, name


@pytest.mark.parametrize("module", MODULES)
def test_all_is_sorted_and_importable(module: str) -> None:
    """No name twice, each of them there."""
    names, _ = listed(module)
    assert len(set(names)) == len(names)
    assert names == sorted(names, key=sort_key)
    found = importlib.import_module(module)
    assert [name for name in names if not hasattr(found, name)] == []


@pytest.mark.parametrize("module", MODULES)
def test_all_is_complete_for_what_others_use(module: str) -> None:
    """Another module of ours imports nothing by name from here that is public-looking and unlisted."""
    names, tree = listed(module)
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}
    missing = {name for name in defined if not name.startswith("_") and name not in names}
    assert [(name, str(who)) for source, name, who in imports() if source == module and name in missing] == []


def test_the_version_is_that_of_the_project() -> None:
    """pyproject.toml and limpet.__version__ agree."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == limpet.__version__


def test_the_package_gives_what_the_readme_imports() -> None:
    """`from limpet import Limpet`, and its blocking twin with the same methods."""
    from limpet import sync

    ours = {name for name in dir(limpet.Limpet) if not name.startswith("_")}
    assert ours - {name for name in dir(sync.Limpet) if not name.startswith("_")} <= {
        "executor",
        "opinion",  # these three are for servers that live in the client's own loop
        "resolve_soon",
        "watch_workers",
    }
