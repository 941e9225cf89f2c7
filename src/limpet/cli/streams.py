"""The standard streams of a command: one that is closed, on a full disk, or read no more is no mistake of ours."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Any, Final, TextIO, cast

__all__ = ["Stdout", "standard_streams", "stems_from"]

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


class _Stream:
    """A stream, but for what happens when it cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def silence(self) -> None:
        """What it still holds goes nowhere: the interpreter's own last flush would fail, and make an exit code of that."""
        with contextlib.suppress(OSError):  # a stream of a test's has no descriptor
            nowhere = os.open(os.devnull, os.O_WRONLY)
            try:
                os.dup2(nowhere, self._stream.fileno())
            finally:
                os.close(nowhere)


class Stdout(_Stream):
    """stdout, which remembers what it failed for, so that this can be told from every other OSError.

    After that, and if it was closed from the start, nothing can be written (EBADF).
    """

    def __init__(self, stream: TextIO, *, closed: bool) -> None:
        super().__init__(stream)
        self._closed = closed
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        """As ever, or the OSError that is ``lost`` from then on."""
        if text and self._closed:  # click finds out with an empty text what a stream takes
            error = OSError(errno.EBADF, "stdout is closed")
            if self.lost is None:
                self.lost = error
            raise error from (None if error is self.lost else self.lost)
        try:
            return self._stream.write(text)
        except OSError as error:
            self._lose(error)
            raise

    def flush(self) -> None:
        """As ever, or the OSError that is ``lost`` from then on."""
        if self._closed:
            return
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)
            raise

    def _lose(self, error: OSError) -> None:
        self.lost, self._closed = error, True
        self.silence()


class _Stderr(_Stream):
    """stderr: where it cannot be written, there is nobody to tell, and what is done goes on."""

    def write(self, text: str) -> int:
        """As ever, or nothing."""
        with contextlib.suppress(OSError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """As ever, or nothing."""
        with contextlib.suppress(OSError):
            self._stream.flush()


@contextlib.contextmanager
def standard_streams() -> Iterator[Stdout]:
    """Puts ours in the place of stdout and stderr, and something in the place of those that whoever started us has closed."""
    closed = sys.stdout is None
    for name, mode in _STREAMS:
        if getattr(sys, name) is None:
            # It gets the lowest free descriptor, which is its own. Otherwise our next socket would, and the processes that we
            # start, to which this is handed on, would print into that.
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, descriptor < len(_STREAMS))
            setattr(sys, name, open(descriptor, mode, encoding="utf-8"))  # noqa: SIM115  (for as long as we live)
    before = sys.stdout, sys.stderr
    out, err = Stdout(before[0], closed=closed), _Stderr(before[1])
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
    try:
        yield out
    finally:
        sys.stdout, sys.stderr = before
        with contextlib.suppress(OSError):
            out.flush()
        try:
            before[1].flush()
        except OSError:
            err.silence()


def stems_from(error: BaseException, cause: BaseException) -> bool:
    """Whether an error is, holds (a task group's) or was raised because of another."""
    seen: set[int] = set()  # a group can be the context of what it holds
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is cause:
            return True
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        left += [each.__cause__, each.__context__, *(each.exceptions if isinstance(each, BaseExceptionGroup) else ())]
    return False
