"""A store's URL means exactly one thing, and what is wrong with it is said without repeating any part of it."""

from __future__ import annotations

import ssl

import pytest
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection, parse_url

from limpet.errors import InvalidRequest
from limpet.executors.urls import parse_store_url
from limpet.schema import CLIENT_NAME


@pytest.mark.parametrize(
    ("url", "addresses", "options"),
    [
        ("redis://", (("localhost", 6379),), {}),
        ("redis://h", (("h", 6379),), {}),
        ("redis://h:1/2", (("h", 1),), {"db": 2}),
        ("redis://h/2?db=3", (("h", 6379),), {"db": 3}),
        ("redis://:p@h", (("h", 6379),), {"password": "p"}),
        ("redis://u:p%40%2F%3A%25@h", (("h", 6379),), {"username": "u", "password": "p@/:%"}),
        ("redis://[::1]", (("::1", 6379),), {}),
        ("redis://u:p@[fe80::1]:7/0", (("fe80::1", 7),), {"username": "u", "password": "p", "db": 0}),
        ("redis://h?username=u&password=p%20q", (("h", 6379),), {"username": "u", "password": "p q"}),
        ("redis://h?socket_timeout=1.5&decode_responses=true&max_connections=4", (("h", 6379),), {"socket_timeout": 1.5}),
    ],
)
def test_a_single_server(url: str, addresses: object, options: dict[str, object]) -> None:
    """``redis://``, as redis-py reads it."""
    parsed = parse_store_url(url)
    assert (parsed.kind, parsed.addresses, parsed.options) == ("standalone", addresses, options)
    assert parsed.connection_class is Connection


@pytest.mark.parametrize("url", ["redis://u:p%40@h:7/3", "rediss://:x@h", "unix:///a/b.sock?db=2", "unix://u:p@/a%20b.sock"])
def test_redis_py_agrees(url: str) -> None:
    """Host, port, database, credentials, path and class are those of redis-py's own parser."""
    theirs = dict(parse_url(url))
    parsed = parse_store_url(url)
    ours = dict(parsed.options)
    if parsed.addresses:
        ours["host"], port = parsed.addresses[0]
        if "port" in theirs:
            ours["port"] = port
    assert theirs.pop("connection_class", Connection) is parsed.connection_class
    assert ours == theirs


def test_tls() -> None:
    """``rediss://`` and ``ssl=true`` with redis-py's ssl_ parameters."""
    for url in ("rediss://h?", "redis://h?ssl=true&"):
        parsed = parse_store_url(
            url + "ssl_ca_certs=/ca.pem&ssl_certfile=c&ssl_keyfile=k&ssl_cert_reqs=none"
            "&ssl_check_hostname=false&ssl_min_version=TLSv1.3"
        )
        assert parsed.connection_class is SSLConnection
        assert parsed.options == {
            "ssl_ca_certs": "/ca.pem",
            "ssl_certfile": "c",
            "ssl_keyfile": "k",
            "ssl_cert_reqs": "none",
            "ssl_check_hostname": False,
            "ssl_min_version": ssl.TLSVersion.TLSv1_3,
        }
        assert parsed.connector(parsed.addresses[0])().host == "h"


def test_a_unix_socket() -> None:
    """The path is taken as it is, with credentials and database."""
    parsed = parse_store_url("unix://u:p@/run/limpet%20x.sock?db=1")
    assert parsed.connection_class is UnixDomainSocketConnection
    assert parsed.options == {"path": "/run/limpet x.sock", "db": 1, "username": "u", "password": "p"}
    assert parsed.connector(None)().path == "/run/limpet x.sock"


def test_sentinel() -> None:
    """Several sentinels with a default port, the service, the database, credentials for both sides."""
    parsed = parse_store_url(
        "redis+sentinel://u:p%40@s1:26380,s2,[::1]:5/my%2Fservice/2?sentinel_username=su&sentinel_password=s%26p&ssl=true&ssl_ca_certs=c"
    )
    assert parsed.kind == "sentinel"
    assert parsed.addresses == (("s1", 26380), ("s2", 26379), ("::1", 5))
    assert parsed.service == "my/service"
    assert parsed.options == {"username": "u", "password": "p@", "db": 2, "ssl_ca_certs": "c"}
    assert parsed.sentinel_options == {"username": "su", "password": "s&p", "ssl": True, "ssl_ca_certs": "c"}
    assert parsed.connection_class is SSLConnection


def test_tls_to_the_data_nodes_only() -> None:
    """``sentinel_ssl=false`` leaves the sentinels plain; without ``ssl`` both are."""
    mixed = parse_store_url("redis+sentinel://s/m?ssl=true&sentinel_ssl=false")
    assert mixed.connection_class is SSLConnection
    assert mixed.sentinel_options == {}
    plain = parse_store_url("redis+sentinel://s/m")
    assert (plain.connection_class, plain.sentinel_options, plain.options) == (Connection, {}, {})
    assert parse_store_url("rediss+sentinel://s/m").sentinel_options == {"ssl": True}


def test_cluster() -> None:
    """Several nodes with a default port; only database 0."""
    parsed = parse_store_url("redis+cluster://u:p@h1:6380,h2,[::2]?ssl=true")
    assert (parsed.kind, parsed.addresses) == ("cluster", (("h1", 6380), ("h2", 6379), ("::2", 6379)))
    assert parsed.connection_class is SSLConnection
    assert parsed.options == {"username": "u", "password": "p"}
    assert parse_store_url("redis+cluster://h/0").options == {}


def test_connections_speak_resp2_and_say_who_they_are() -> None:
    """No push messages between replies; a name in CLIENT LIST, which a URL may change."""
    arguments = parse_store_url("redis://h").arguments(("h", 1))
    assert (arguments["protocol"], arguments["client_name"]) == (2, CLIENT_NAME)
    assert parse_store_url("redis://h?client_name=x&protocol=3").arguments(("h", 1))["client_name"] == "x"
    assert parse_store_url("redis://h?protocol=3").arguments(("h", 1))["protocol"] == 2


def test_passwords_are_not_in_the_repr() -> None:
    """A parsed URL may be logged."""
    parsed = parse_store_url("redis+sentinel://u:hunter2@s/m?sentinel_password=hunter3")
    assert "hunter" not in repr(parsed)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "must begin with"),
        ("hunter2", "must begin with"),
        ("redis:/u:hunter2@h", "must begin with"),
        ("http://u:hunter2@h", "must begin with"),
        ("redis+hunter2://h", "must begin with"),
        ("unix+cluster:///x", "must begin with"),
        ("redis://u:hun#ter2@h", "%23"),
        ("redis://u:hun/ter2@h", "percent-encode"),
        ("redis://u:hun@ter2@h", "percent-encode"),
        ("redis://u:hun?ter2@h", "not known"),
        ("redis://h:hunter2", "port"),
        ("redis://h:0", "port"),
        ("redis://h:65536", "port"),
        ("redis://h:-1", "port"),
        ("redis://fe80::1", "brackets"),
        ("redis://[hunter2]", "IPv6"),
        ("redis://[::1", "IPv6"),
        ("redis://[::1]x", "IPv6"),
        ("redis://h/hunter2", "database"),
        ("redis://h?db=hunter2", "value for db"),
        ("redis://h?db=-1", "value for db"),
        ("redis://h?ssl=hunter2", "value for ssl"),
        ("rediss://h?ssl_cert_reqs=hunter2", "value for ssl_cert_reqs"),
        ("rediss://h?ssl_min_version=hunter2", "value for ssl_min_version"),
        ("redis://h?pasword=hunter2", "number 1, perhaps meant as password"),
        ("redis://h?db=1&hunter2=1", "number 2"),
        ("redis://h?db=1&db=2", "twice"),
        ("redis://h?sentinel_password=hunter2", "not known"),
        ("redis://h?ssl_ca_certs=x", "rediss://"),
        ("redis://h1,h2", "several hosts"),
        ("redis+cluster://h1,,h2", "empty host"),
        ("redis+cluster://h/1", "database"),
        ("redis+cluster://h?db=1", "database"),
        ("redis+sentinel://h", "service"),
        ("redis+sentinel://h/", "service"),
        ("redis+sentinel://h/m/hunter2", "database"),
        ("unix://hunter2", "absolute path"),
        ("unix://", "absolute path"),
        ("unix:///x?ssl=true", "Unix socket"),
    ],
)
def test_what_is_wrong_is_said_and_not_repeated(url: str, says: str) -> None:
    """InvalidRequest, naming the mistake; never a part of the URL, any of which may be a password."""
    with pytest.raises(InvalidRequest, match=says) as refused:
        parse_store_url(url)
    assert refused.value.field == "url"
    for part in ("hunter2", "ter2", "hun"):
        assert part not in str(refused.value)
