"""The process id that is not asked for each time stays right across forks."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from limpet.forks import pid


def _both() -> tuple[int, int]:
    return pid(), os.getpid()


def test_here() -> None:
    """The kernel's."""
    assert pid() == os.getpid()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_in_a_child(method: str) -> None:
    """Forked or spawned, a child has its own."""
    with multiprocessing.get_context(method).Pool(1) as pool:
        cached, real = pool.apply(_both)
    assert cached == real != os.getpid()
