"""The upstreams: their names, who is up, and which of them a conversation belongs to by default."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

from limpet.errors import InvalidRequest
from limpet.validate import check_text

__all__ = ["Upstream", "Upstreams", "parse_upstream"]

FIRST_REST_S: Final = 0.5
LONGEST_REST_S: Final = 15.0
_MASK: Final = 2**64 - 1


class Upstream:
    """One server. ``name`` is its URL without credentials, and is what a conversation is bound to.

    ``authorization`` comes from credentials in the URL, and is sent where the client sends none.
    """

    __slots__ = ("authorization", "base", "name", "path", "rest_s", "resting_until", "salt")

    def __init__(self, name: str, base: str, path: str, authorization: str | None) -> None:
        self.name: Final = name
        self.base: Final = base
        self.path: Final = path
        self.authorization: Final = authorization
        self.salt: Final = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
        self.resting_until = float("-inf")
        self.rest_s = 0.0

    def url(self, target: str) -> str:
        """The URL of a request target (path and query). A base that ends with ``/v1`` meets ``/v1/...`` once."""
        last = self.path.rpartition("/")[2]
        if last and (target == f"/{last}" or target.startswith((f"/{last}/", f"/{last}?"))):
            target = target[len(last) + 1 :]
        return f"{self.base}{self.path}{target}"


def parse_upstream(text: str) -> Upstream:
    """An upstream from its URL, ``http[s]://[user:pass@]host[:port][/path]``. Raises InvalidRequest."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if (
        not host
        or parts.scheme not in ("http", "https")
        or parts.query
        or parts.fragment
        or not text.isprintable()
        or " " in text
    ):
        raise InvalidRequest("An upstream must be http[s]://[user:pass@]host[:port][/path].", field="upstreams")
    shown = f"[{host}]" if ":" in host else host
    base = f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else "")
    path = parts.path.rstrip("/")
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + b64encode(pair.encode()).decode()
    return Upstream(check_text(base + path, "upstreams"), base, path, authorization)


class Upstreams:
    """All upstreams of a gateway. Whoever refuses a connection rests for a while, longer each time; a success ends that."""

    def __init__(self, upstreams: Iterable[Upstream], monotonic: Callable[[], float]) -> None:
        self.all: Final = tuple(upstreams)
        self._by_name: Final = {each.name: each for each in self.all}
        self._monotonic = monotonic

    def get(self, name: str | None) -> Upstream | None:
        """The upstream of that name."""
        return self._by_name.get(name) if name is not None else None

    def is_up(self, upstream: Upstream) -> bool:
        """Whether it may be tried now."""
        return upstream.resting_until <= self._monotonic()

    def failed(self, upstream: Upstream) -> None:
        """It could not be reached."""
        now = self._monotonic()
        if upstream.resting_until <= now:
            upstream.rest_s = min(max(upstream.rest_s * 2, FIRST_REST_S), LONGEST_REST_S)
            upstream.resting_until = now + upstream.rest_s

    def worked(self, upstream: Upstream) -> None:
        """It answered."""
        if upstream.rest_s:
            upstream.rest_s, upstream.resting_until = 0.0, float("-inf")

    def choose(self, text: str, without: Iterable[Upstream] = ()) -> Upstream | None:
        """The upstream of a conversation by rendezvous hashing, the same on every replica that sees the same ones up.

        Those that rest are taken only when no other is left. None if all are excluded.
        """
        left = [each for each in self.all if each not in without]
        if len(left) == 1:
            return left[0]
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        return max(left, key=lambda each: (self.is_up(each), _mix(seed ^ each.salt)), default=None)


def _mix(x: int) -> int:
    """The finalizer of splitmix64: every bit of the input reaches every bit of the output."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
