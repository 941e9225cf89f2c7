"""Programs that come from outside of pip."""

from __future__ import annotations

import os
import shutil

import pytest

__all__ = ["program"]


def program(name: str, package: str) -> str:
    """Its path. Where it is missing, the tests that need it are skipped and say so; in CI, which installs it, that fails."""
    found = shutil.which(name)
    if found is not None:
        return found
    if os.environ.get("CI"):
        pytest.fail(f"{name} is missing; .ci/run installs {package}, so something is wrong with it", pytrace=False)
    pytest.skip(f"{name} is not installed (Debian: apt-get install --no-install-recommends {package})")
