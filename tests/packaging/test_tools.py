"""A test that lacks its tool never passes for one that ran."""

from __future__ import annotations

import pytest

from tests.packaging.tools import program


def test_a_missing_program_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipped on somebody's machine, with what to install; a failure where .ci/run has installed it."""
    monkeypatch.delenv("TESTS_NEED", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install --no-install-recommends nothing-such"):
        program("no-such-program", "nothing-such")
    monkeypatch.setenv("TESTS_NEED", "helm,debian")
    with pytest.raises(pytest.fail.Exception, match="no-such-program is missing"):
        program("no-such-program", "nothing-such")
