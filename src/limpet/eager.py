"""A coroutine that runs at once, up to where it has to wait, so that its caller can do something meanwhile.

As an eager task (Python 3.12), without the task: whoever awaits it goes on with it in his own, and cancels it with his own.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

__all__ = ["Started"]

T = TypeVar("T")


class Started(Generic[T]):
    """What ``coroutine`` does before it first waits is done when this is made; the rest, and its result or exception, when this
    is awaited. It has to be, once, before its maker waits for anything else: it is his task that the coroutine runs in."""

    __slots__ = ("_coroutine", "_error", "_result", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine: Coroutine[Any, Any, T] | None = coroutine
        self._error: BaseException | None = None
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration as done:
            self._coroutine, self._result = None, done.value
        except BaseException as error:  # noqa: BLE001  (it belongs to whoever awaits)
            self._coroutine, self._error = None, error

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine, error = self._coroutine, self._error
        if error is not None:
            self._error = None
            try:
                raise error
            finally:
                del error  # our frame is in its traceback: a cycle
        if coroutine is None:
            result: T = self._result
            return result
        waits_for = self._waits_for
        while True:
            try:
                yield waits_for
            except BaseException as thrown:  # noqa: BLE001  (a cancellation, which is the coroutine's to see)
                try:
                    waits_for = coroutine.throw(thrown)
                except StopIteration as done:
                    return done.value  # type: ignore[no-any-return]
            else:
                return (yield from coroutine.__await__())
