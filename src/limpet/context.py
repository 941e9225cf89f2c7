"""The scope that is published to code running inside a turn (design, section 5: Context).

Stamping takes the published scope over the resolved one; ``resolve`` never looks at it. Entering a turn always sets it, also
to None, so that a nested turn or a fork shadows its parent; leaving restores what was there, also after an early return,
and also when the leaving runs in another context than the entering did.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Final

__all__ = ["Published", "publish", "publish_if_absent", "published"]

_scope: Final[ContextVar[str | None]] = ContextVar("limpet_scope", default=None)


def published() -> str | None:
    """The scope published in this context, or None."""
    return _scope.get()


class Published:
    """One publication, to be ended once. For code that cannot use :func:`publish`, since it enters and leaves apart."""

    __slots__ = ("_before", "_token")

    def __init__(self, scope: str | None) -> None:
        self._before = _scope.get()
        self._token: Token[str | None] | None = _scope.set(scope)

    def end(self) -> None:
        """Restores what was published before; a second call changes nothing."""
        token, self._token = self._token, None
        if token is None:
            return
        try:
            _scope.reset(token)
        except ValueError:  # left in another context than it was entered in: the token is not ours to use here
            _scope.set(self._before)


@contextmanager
def publish(scope: str | None) -> Iterator[None]:
    """Publishes a scope, or shadows the one that is published with None."""
    publication = Published(scope)
    try:
        yield
    finally:
        publication.end()


@contextmanager
def publish_if_absent(scope: str | None) -> Iterator[str | None]:
    """For work out of turn (compaction): publishes only if nothing is published; yields what is."""
    if _scope.get() is not None:
        yield _scope.get()
        return
    with publish(scope):
        yield scope
