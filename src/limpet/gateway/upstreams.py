"""The upstreams: their names, their addresses, and which of them a conversation belongs to by default."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

from limpet.errors import InvalidRequest
from limpet.keys import digest
from limpet.placement import choose
from limpet.validate import check_text
from limpet.workers import MAX_CAPACITY, MIN_CAPACITY

__all__ = ["Upstream", "Upstreams", "of_worker", "parse_upstream", "preferred"]

"""As the registry has it."""
_CAPACITY: Final = re.compile(r"[0-9]+(\.[0-9]+)?")


class Upstream:
    """One server. ``worker`` is what a conversation is bound to: the id of a registered worker, or, for an upstream of the
    configuration, its ``name``, which is its URL without credentials.

    ``authorization`` comes from credentials in the URL, and is sent where the client sends none. ``capacity``: its share of the
    conversations beside the others', in any unit.
    """

    __slots__ = ("authorization", "base", "capacity", "name", "path", "worker")

    def __init__(
        self, name: str, base: str, path: str, authorization: str | None, capacity: float = 1.0, worker: str | None = None
    ) -> None:
        self.name: Final = name
        self.base: Final = base
        self.path: Final = path
        self.authorization: Final = authorization
        self.capacity: Final = capacity
        self.worker: Final = name if worker is None else worker

    def url(self, target: str) -> str:
        """The URL of a request target (path and query). A base that ends with ``/v1`` meets ``/v1/...`` once.

        Raises InvalidRequest for a target that is no path: it would go on with the host's name.
        """
        if not target.startswith("/"):
            raise InvalidRequest("The request's target has to be a path, one that begins with '/'.", field="path")
        last = self.path.rpartition("/")[2]
        if last and (target == f"/{last}" or target.startswith((f"/{last}/", f"/{last}?"))):
            target = target[len(last) + 1 :]
        return f"{self.base}{self.path}{target}"


def parse_upstream(text: str, worker: str | None = None) -> Upstream:
    """An upstream from its URL, ``http[s]://[user:pass@]host[:port][/path][;capacity=N]``. Raises InvalidRequest."""
    url, option, value = text.partition(";capacity=")
    try:
        parts = urlsplit(url)
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
        or ";" in url
    ):
        raise InvalidRequest("An upstream must be http[s]://[user:pass@]host[:port][/path][;capacity=N].", field="upstreams")
    capacity = 1.0
    if option:
        capacity = float(value) if _CAPACITY.fullmatch(value) and len(value) <= 20 else 0.0
        if not MIN_CAPACITY <= capacity <= MAX_CAPACITY:
            raise InvalidRequest(
                f"An upstream's capacity must be a number from {MIN_CAPACITY} to {MAX_CAPACITY:,}.", field="upstreams"
            )
    shown = f"[{host}]" if ":" in host else host
    base = f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else "")
    path = parts.path.rstrip("/")
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + b64encode(pair.encode()).decode()
    return Upstream(check_text(base + path, "upstreams"), base, path, authorization, capacity, worker)


def of_worker(worker: str, address: str, capacity: float) -> Upstream | None:
    """The upstream at a registered worker's address, a URL or ``host:port`` (then http); None if it is neither."""
    try:
        found = parse_upstream(address if "://" in address else f"http://{address}", worker)
    except InvalidRequest:
        return None
    return Upstream(found.name, found.base, found.path, found.authorization, capacity, worker)


def preferred(text: str, upstreams: Iterable[Upstream]) -> Upstream | None:
    """The first of a conversation's own order of upstreams (the placement of :mod:`limpet.placement`, where nobody knows the
    loads); None of none."""
    by_worker = {each.worker: each for each in upstreams}
    if len(by_worker) == 1:
        return next(iter(by_worker.values()))
    worker = choose(digest(text), {name: each.capacity for name, each in by_worker.items()}, {})
    return by_worker[worker] if worker is not None else None


class Upstreams:
    """The upstreams of a configuration, for those who look at nothing else (forward-auth)."""

    def __init__(self, upstreams: Iterable[Upstream]) -> None:
        self.all: Final = tuple(upstreams)
        self._by_name: Final = {each.name: each for each in self.all}

    def get(self, name: str | None) -> Upstream | None:
        """The upstream of that name."""
        return self._by_name.get(name) if name is not None else None

    def choose(self, text: str, without: Collection[Upstream] = ()) -> Upstream | None:
        """The upstream of a conversation, the same wherever the configuration is. None if all are excluded."""
        return preferred(text, (each for each in self.all if each not in without))
