"""Who may do what in which namespace (design, section 7)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from limpet.errors import InvalidRequest
from limpet.service.problems import Forbidden, Unauthorized
from limpet.service.quota import Quota
from limpet.settings import Settings, Token
from limpet.validate import check_namespace

__all__ = ["Guard", "Right"]

Right: TypeAlias = Literal["resolve", "admin"]
Headers: TypeAlias = Mapping[bytes, bytes]


class _Entry(NamedTuple):
    digest: bytes
    token: Token


class Guard:
    """Checks tokens and picks the namespace, within its quota where there is one. Knows only hashes of tokens."""

    def __init__(self, settings: Settings, quota: Quota | None = None) -> None:
        self._quota: Final = quota
        self._default: Final = settings.namespace
        self._entries: Final = tuple(_Entry(token.sha256.encode(), token) for token in settings.tokens)
        secret = settings.secret("metrics_token")
        self._metrics: Final = None if secret is None else hashlib.sha256(secret.encode()).hexdigest().encode()

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces that are known beforehand; the first is the one that ``/readyz`` looks at."""
        return tuple(dict.fromkeys(entry.token.namespace for entry in self._entries)) or (self._default,)

    @property
    def open(self) -> bool:
        """Whether no token is configured, so that callers name any namespace."""
        return not self._entries

    def enter(self, headers: Headers, *rights: Right, beat: bool = False) -> str:
        """The namespace of a request whose token has any of the rights; it is charged to that namespace's quota.

        Args:
            beat: it is a worker's heartbeat, which has a quota of its own: a flood of turns must not make workers look dead.

        Raises:
            Unauthorized, Forbidden, InvalidRequest, OverQuota: (401, 403, 400, 429).
        """
        namespace = self.admit(headers, *rights)
        if self._quota is not None:
            self._quota.take(namespace, beat=beat)
        return namespace

    def admit(self, headers: Headers, *rights: Right) -> str:
        """:meth:`enter` without the charge, for who sees to that."""
        named = headers.get(b"x-limpet-namespace")
        if not self._entries:
            return self._default if named is None else _namespace(named)
        digest = _bearer(headers)
        found: Token | None = None
        for entry in self._entries:  # all of them, so that the time says nothing about which
            if hmac.compare_digest(digest, entry.digest):
                found = entry.token
        if found is None:
            raise Unauthorized("The bearer token is not known.")
        if named is not None and _namespace(named) != found.namespace:
            raise Forbidden("The token belongs to another namespace than X-Limpet-Namespace names.")
        if found.rights.isdisjoint(rights):
            raise Forbidden(f"The token does not have the right {' or '.join(map(repr, rights))}, which this call needs.")
        return found.namespace

    def may_scrape(self, headers: Headers) -> bool:
        """Whether the request carries the metrics token, where one is set."""
        if self._metrics is None:
            return True
        try:
            return hmac.compare_digest(_bearer(headers), self._metrics)
        except Unauthorized:
            return False


def _bearer(headers: Headers) -> bytes:
    """The hex digest of the presented token, as bytes."""
    scheme, _, value = headers.get(b"authorization", b"").partition(b" ")
    value = value.strip()
    if scheme.lower() != b"bearer" or not value:
        raise Unauthorized("This service asks for a token: send Authorization: Bearer <token>.")
    return hashlib.sha256(value).hexdigest().encode()


@lru_cache(maxsize=1024)
def _namespace(raw: bytes) -> str:
    try:
        return check_namespace(raw.decode("ascii"))
    except (UnicodeDecodeError, InvalidRequest):
        raise InvalidRequest(
            "X-Limpet-Namespace must be 1 to 63 of a-z, 0-9, _ and -, and start with a letter or digit.",
            field="X-Limpet-Namespace",
        ) from None
