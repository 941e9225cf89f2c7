"""``limpet`` as process 1 of a container."""

from __future__ import annotations

import os
import signal

import pytest

from limpet.cli import main


def test_process_1_can_be_ended_before_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel drops a SIGTERM that process 1 has no handler for; there is one from the start, and it ends the command."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    try:
        assert main(["config"]) == 0
        handler = signal.getsignal(signal.SIGTERM)
        assert callable(handler)
        with pytest.raises(SystemExit) as left:
            handler(signal.SIGTERM, None)
        assert left.value.code == 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)


def test_elsewhere_signals_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell's child dies of SIGTERM as it always did."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    assert main(["config"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before
