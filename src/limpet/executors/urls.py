"""Reads a store's URL. No part of a URL is ever repeated in an error, since any part may be a mistyped password.

    redis://[user:pass@]host[:6379][/db]            rediss:// for TLS
    unix://[user:pass@]/path/to/socket[?db=0]
    redis+sentinel://[user:pass@]h1[:26379],h2/service[/db]?sentinel_password=...&ssl=true
    redis+cluster://[user:pass@]h1[:6379],h2?ssl=true

Credentials, hosts and the service may be percent-encoded; an IPv6 address stands in brackets. ``ssl=true`` (or ``rediss+...``)
means TLS to the data nodes, and to the sentinels too unless ``sentinel_ssl=false``.
"""

from __future__ import annotations

import difflib
import functools
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, unquote

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection

from limpet.errors import InvalidRequest
from limpet.schema import CLIENT_NAME

__all__ = ["Address", "StoreUrl", "parse_store_url"]

Address = tuple[str, int]
_TRUE, _FALSE = frozenset({"1", "true", "t", "yes", "y", "on"}), frozenset({"0", "false", "f", "no", "n", "off"})
_SCHEMES: Final = "redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://"


def _bool(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError
    return int(text)


def _tls_version(text: str) -> ssl.TLSVersion:
    names = {"tlsv1.2": ssl.TLSVersion.TLSv1_2, "tlsv1.3": ssl.TLSVersion.TLSv1_3}
    return names[text.lower()] if text.lower() in names else ssl.TLSVersion(_natural(text))


def _requirement(text: str) -> str:
    if text not in ("none", "optional", "required"):
        raise ValueError
    return text


_TLS: Final[dict[str, Callable[[str], object]]] = {
    "ssl_ca_certs": str,
    "ssl_ca_data": str,
    "ssl_ca_path": str,
    "ssl_cert_reqs": _requirement,
    "ssl_certfile": str,
    "ssl_check_hostname": _bool,
    "ssl_ciphers": str,
    "ssl_keyfile": str,
    "ssl_min_version": _tls_version,
    "ssl_password": str,
}
_CONNECTION: Final[dict[str, Callable[[str], object]]] = {
    "client_name": str,
    "db": _natural,
    "password": str,
    "socket_connect_timeout": float,
    "socket_keepalive": _bool,
    "socket_timeout": float,
    "username": str,
}
_SENTINEL: Final[dict[str, Callable[[str], object]]] = {
    "sentinel_password": str,
    "sentinel_ssl": _bool,
    "sentinel_username": str,
}
# Of redis-py's pools and encodings, which our connections do without: taken, so that one URL serves a whole host.
_IGNORED: Final = frozenset(
    {
        "decode_responses",
        "encoding",
        "encoding_errors",
        "health_check_interval",
        "max_connections",
        "protocol",
        "retry_on_timeout",
        "socket_read_size",
        "timeout",
    }
)


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """What a URL means. ``addresses``: the server, the sentinels or the cluster's known nodes; none for a Unix socket.

    ``options`` and ``sentinel_options`` are redis-py's connection arguments, passwords among them: not in the repr.
    """

    kind: Literal["standalone", "sentinel", "cluster"]
    addresses: tuple[Address, ...]
    connection_class: type[AbstractConnection]
    options: dict[str, Any] = field(repr=False)
    service: str = ""
    sentinel_options: dict[str, Any] = field(default_factory=dict, repr=False)

    def arguments(self, address: Address | None) -> dict[str, Any]:
        """The connection's arguments for one data node; None for a Unix socket."""
        # RESP2: no push messages may arrive between replies on a lane.
        arguments: dict[str, Any] = {"client_name": CLIENT_NAME, "protocol": 2, **self.options}
        if address is not None:
            arguments["host"], arguments["port"] = address
        return arguments

    def connector(self, address: Address | None) -> Callable[[], AbstractConnection]:
        """Makes a redis-py connection, not yet connected, to one data node."""
        return functools.partial(self.connection_class, **self.arguments(address))


def parse_store_url(url: str) -> StoreUrl:
    """Raises InvalidRequest for anything that is not plainly one of the five forms."""
    scheme, found, rest = url.partition("://")
    base, _, variant = scheme.lower().partition("+")
    tls = base == "rediss"
    if not found or base not in ("redis", "rediss", "unix") or variant not in ("", "sentinel", "cluster"):
        raise _invalid(f"must begin with {_SCHEMES}")
    if base == "unix" and variant:
        raise _invalid(f"must begin with {_SCHEMES}")
    if "#" in rest:
        raise _invalid("holds a '#', which ends a URL; write it as %23 in a password")
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    userinfo, at, hosts = authority.rpartition("@")
    if "@" in userinfo or "@" in path:
        raise _invalid("holds an '@' or '/' within its credentials; percent-encode it (%40, %2F)")
    options, sentinel = _parameters(query, variant)
    if at:
        username, colon, password = userinfo.partition(":")
        if username:
            options["username"] = unquote(username)
        if colon and password:
            options["password"] = unquote(password)
    tls = options.pop("ssl", tls)
    if base == "unix":
        return _unix(hosts, slash + path, tls, options)
    if not tls and any(name in _TLS for name in options):
        raise _invalid("has ssl_ parameters but asks for no TLS; use rediss:// or add ssl=true")
    connection: type[AbstractConnection] = SSLConnection if tls else Connection
    addresses = _addresses(hosts, 26379 if variant == "sentinel" else 6379)
    if variant == "sentinel":
        service, _, db = path.partition("/")
        if not service:
            raise _invalid("names no service; write redis+sentinel://host:26379/service")
        return StoreUrl(
            "sentinel", addresses, connection, _with_db(options, db), unquote(service), _sentinel_options(options, sentinel, tls)
        )
    options = _with_db(options, path)
    if variant == "cluster":
        if options.pop("db", 0):
            raise _invalid("names a database, and a cluster has only number 0")
        return StoreUrl("cluster", addresses, connection, options)
    if len(addresses) > 1:
        raise _invalid("names several hosts; use redis+sentinel:// or redis+cluster://")
    return StoreUrl("standalone", addresses, connection, options)


def _invalid(what: str) -> InvalidRequest:
    return InvalidRequest(f"The store's URL {what}.", field="url")


def _parameters(query: str, variant: str) -> tuple[dict[str, Any], dict[str, Any]]:
    known: dict[str, Callable[[str], object]] = {**_CONNECTION, **_TLS, "ssl": _bool}
    if variant == "sentinel":
        known.update(_SENTINEL)
    options: dict[str, Any] = {}
    seen: set[str] = set()
    for position, (name, value) in enumerate(parse_qsl(query, keep_blank_values=True), 1):
        if name in seen:
            raise _invalid(f"gives a query parameter twice (number {position})")
        seen.add(name)
        if name in _IGNORED:
            continue
        if name not in known:
            close = difflib.get_close_matches(name, known, 1, 0.75)
            hint = f", perhaps meant as {close[0]}" if close else ""
            raise _invalid(
                f"has a query parameter that is not known (number {position}{hint}); known are {', '.join(sorted(known))}"
            )
        try:
            options[name] = known[name](value)
        except ValueError:
            raise _invalid(f"has a value for {name} that is not valid") from None
    sentinel = {name.removeprefix("sentinel_"): options.pop(name) for name in _SENTINEL if name in options}
    return options, sentinel


def _unix(host: str, path: str, tls: bool, options: dict[str, Any]) -> StoreUrl:
    if host or len(path) < 2:
        raise _invalid("needs an absolute path; write unix:///path/to/socket")
    if tls or any(name in _TLS for name in options):
        raise _invalid("asks for TLS on a Unix socket")
    for name in ("socket_keepalive", "socket_connect_timeout"):
        options.pop(name, None)  # of TCP only
    return StoreUrl("standalone", (), UnixDomainSocketConnection, {**options, "path": unquote(path)})


def _with_db(options: dict[str, Any], path: str) -> dict[str, Any]:
    if not path:
        return options
    try:
        return {**options, "db": options.get("db", _natural(path))}
    except ValueError:
        raise _invalid("has a path that is no database number") from None


def _addresses(hosts: str, default_port: int) -> tuple[Address, ...]:
    return tuple(_address(host, default_port) for host in hosts.split(",")) if hosts else (("localhost", default_port),)


def _address(text: str, default_port: int) -> Address:
    if text.startswith("["):
        host, closing, port = text[1:].partition("]")
        if not closing or ":" not in host or (port and not port.startswith(":")):
            raise _invalid("has an IPv6 address that is not valid; write [::1]:6379")
        port = port[1:]
    else:
        host, _, port = text.partition(":")
        if ":" in port:
            raise _invalid("has an IPv6 address without brackets, or a ':' too many; write [::1]:6379")
    if not host:
        raise _invalid("has an empty host")
    try:
        number = _natural(port) if port else default_port
    except ValueError:
        number = 0
    if not 1 <= number <= 65535:
        raise _invalid("has a port that is no number from 1 to 65535")
    return unquote(host), number


def _sentinel_options(options: dict[str, Any], sentinel: dict[str, Any], tls: bool) -> dict[str, Any]:
    """How to reach the sentinels: credentials of their own, the same TLS settings."""
    merged = {name: sentinel[name] for name in ("username", "password") if sentinel.get(name)}
    if sentinel.get("ssl", tls):
        merged["ssl"] = True
        merged.update({name: value for name, value in options.items() if name in _TLS})
    return merged
