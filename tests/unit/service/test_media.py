"""Formats: which one, and what is refused before it costs anything."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from limpet.errors import InvalidRequest
from limpet.service.media import JSON, MSGPACK, Media, accepted, declared
from limpet.service.messages import Batch, PolicyRequest, ResolveRequest, as_policy
from limpet.service.problems import MalformedBody, UnsupportedMediaType

pack = msgspec.msgpack.encode


@pytest.mark.parametrize(
    ("content_type", "media"),
    [
        (b"application/json", JSON),
        (b"Application/JSON; charset=utf-8", JSON),
        (b"application/msgpack", MSGPACK),
        (b"application/x-msgpack", MSGPACK),
        (b"application/vnd.msgpack;x=y", MSGPACK),
    ],
)
def test_declared(content_type: bytes, media: Media) -> None:
    """Content-Type names the format of the body."""
    assert declared(content_type) is media


@pytest.mark.parametrize("content_type", [None, b"", b"text/plain", b"application/x-www-form-urlencoded", b"\xff", b"json"])
def test_other_types_are_refused(content_type: bytes | None) -> None:
    """What a web page can make a browser send to a local service without asking is refused, not guessed."""
    with pytest.raises(UnsupportedMediaType):
        declared(content_type)


@pytest.mark.parametrize(
    ("accept", "request_media", "answer"),
    [
        (None, MSGPACK, MSGPACK),
        (b"*/*", MSGPACK, MSGPACK),
        (b"application/json", MSGPACK, JSON),
        (b"application/msgpack", JSON, MSGPACK),
        (b"text/html, application/msgpack;q=0.5, application/json;q=0.9", MSGPACK, JSON),
        (b"application/json;q=0, application/msgpack;q=0.1", JSON, MSGPACK),
        (b"application/json;q=x", MSGPACK, MSGPACK),
        (b"text/html", JSON, JSON),
    ],
)
def test_accepted(accept: bytes | None, request_media: Media, answer: Media) -> None:
    """Accept wins, then the format of the request; nothing is ever not acceptable."""
    assert accepted(accept, request_media) is answer


BAD: list[tuple[str, Media, bytes, type[Exception], str | None]] = [
    ("wrong type", JSON, b'{"session_id":"s","key":7}', InvalidRequest, "key"),
    ("boolean for integer", JSON, b'{"session_id":"s","seen_epoch":true}', InvalidRequest, "seen_epoch"),
    ("float for integer", JSON, b'{"session_id":"s","seen_epoch":1.5}', InvalidRequest, "seen_epoch"),
    ("unknown field", JSON, b'{"session_id":"s","zz":7}', InvalidRequest, "zz"),
    ("unknown field below", JSON, b'{"session_id":"s","bind":{"zz":7}}', InvalidRequest, "bind.zz"),
    ("missing field", JSON, b"{}", InvalidRequest, "session_id"),
    ("no object", JSON, b"[]", InvalidRequest, None),
    ("null", JSON, b"null", InvalidRequest, None),
    ("empty text", JSON, b'{"session_id":""}', InvalidRequest, "session_id"),
    ("long text", JSON, b'{"session_id":"' + b"x" * 257 + b'"}', InvalidRequest, "session_id"),
    ("unknown kind", JSON, b'{"session_id":"s","kind":"zz"}', InvalidRequest, "kind"),
    ("negative epoch", JSON, b'{"session_id":"s","seen_epoch":-1}', InvalidRequest, "seen_epoch"),
    ("epoch of 2^53", JSON, b'{"session_id":"s","seen_epoch":9007199254740992}', InvalidRequest, "seen_epoch"),
    ("huge integer", JSON, b'{"session_id":"s","seen_epoch":' + b"9" * 6000 + b"}", InvalidRequest, "seen_epoch"),
    ("infinite", JSON, b'{"session_id":"s","policy":{"idle_s":1e999}}', InvalidRequest, "policy.idle_s"),
    ("NaN", JSON, b'{"session_id":"s","policy":{"idle_s":NaN}}', MalformedBody, None),
    ("absurd idle", JSON, b'{"session_id":"s","policy":{"idle_s":1e9}}', InvalidRequest, "policy.idle_s"),
    ("nothing", JSON, b"", MalformedBody, None),
    ("cut short", JSON, b'{"session_id":', MalformedBody, None),
    ("more than one", JSON, b'{"session_id":"s"} {}', MalformedBody, None),
    ("byte order mark", JSON, b'\xef\xbb\xbf{"session_id":"s"}', MalformedBody, None),
    ("not UTF-8", JSON, b'{"session_id":"\xff"}', MalformedBody, None),
    ("lone surrogate", JSON, b'{"session_id":"\\ud800"}', MalformedBody, None),
    ("UTF-16", JSON, '{"session_id":"s"}'.encode("utf-16"), MalformedBody, None),
    ("deep where a text belongs", JSON, b'{"session_id":' + b"[" * 60_000, InvalidRequest, "session_id"),
    ("MessagePack in JSON", JSON, pack({"session_id": "s"}), MalformedBody, None),
    ("JSON in MessagePack", MSGPACK, b'{"session_id":"s"}', InvalidRequest, None),
    ("NaN packed", MSGPACK, pack({"session_id": "s", "policy": {"idle_s": float("nan")}}), InvalidRequest, "policy.idle_s"),
    ("bytes for text", MSGPACK, pack({"session_id": b"s"}), InvalidRequest, "session_id"),
    ("integer as field name", MSGPACK, pack({1: 2}), InvalidRequest, None),
    ("not UTF-8 packed", MSGPACK, b"\x81\xaasession_id\xa1\xff", MalformedBody, None),
    ("bomb: 2^32 fields", MSGPACK, b"\xdf\xff\xff\xff\xff", MalformedBody, None),
    ("bomb: 2^32 items", MSGPACK, b"\xdd\xff\xff\xff\xff", InvalidRequest, None),
    ("bomb: text of 4 GiB", MSGPACK, b"\x81\xaasession_id\xdb\xff\xff\xff\xff", MalformedBody, None),
    ("bomb: nested", MSGPACK, b"\x81\xaasession_id" + b"\x91" * 60_000, InvalidRequest, "session_id"),
    ("reserved byte", MSGPACK, b"\xc1", MalformedBody, None),
    ("rest", MSGPACK, pack({"session_id": "s"}) + b"\xc0", MalformedBody, None),
    ("extension", MSGPACK, b"\x81\xaasession_id\xd4\x05\x00", InvalidRequest, "session_id"),
]


@pytest.mark.parametrize(("media", "body", "error", "field"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_bodies(media: Media, body: bytes, error: type[Exception], field: str | None) -> None:
    """Whatever is wrong is one clear sentence of bounded length, with the field at fault where there is one."""
    with pytest.raises(error) as caught:
        media.decoder(ResolveRequest)(body)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert "`" not in message
    assert len(message) < 300
    assert getattr(caught.value, "field", None) == field


@pytest.mark.parametrize("media", [JSON, MSGPACK], ids=["json", "msgpack"])
def test_batches_are_bounded_before_they_are_built(media: Media) -> None:
    """257 items are refused; nested or claimed ones cost nothing."""
    decode = media.decoder(Batch)
    with pytest.raises(InvalidRequest, match="length <= 256"):
        decode(media.encode({"requests": [1] * 257}))
    many = 3_000_000  # more than a stack holds: from Python 3.14 on that is the bound, no count
    deep = b'{"requests":[' + b"[" * many if media is JSON else b"\x81\xa8requests\x91" + b"\x91" * many
    with pytest.raises(MalformedBody, match="nested too deeply"):
        decode(deep)
    if media is MSGPACK:
        with pytest.raises(InvalidRequest, match="length <= 256"):
            decode(b"\x81\xa8requests\xdd\xff\xff\xff\xff" + b"\xc0" * 1000)


def test_long_names_are_cut_in_the_message() -> None:
    """A field name of the caller's is not echoed without bound."""
    with pytest.raises(InvalidRequest) as caught:
        JSON.decoder(ResolveRequest)(b'{"session_id":"s","' + b"z" * 60_000 + b'":1}')
    assert caught.value.field is not None
    assert len(caught.value.field) == 80


@pytest.mark.parametrize(
    "daily",
    [
        {"at": "25:00", "tz": "UTC"},
        {"at": "04:00", "tz": "Mars/Base"},
        {"at": "04:00", "tz": "../etc"},
    ],
)
def test_policies_that_only_the_library_can_judge(daily: dict[str, Any]) -> None:
    """Unknown zones and times are the library's InvalidRequest."""
    request = msgspec.convert({"daily": daily}, PolicyRequest)
    with pytest.raises(InvalidRequest):
        as_policy(request)


def test_policies_are_made_once() -> None:
    """A host sends the same policy with every turn; it is parsed once."""
    request = msgspec.convert({"idle_s": 60, "daily": {"at": "04:00", "tz": "Europe/Paris"}}, PolicyRequest)
    again = msgspec.convert({"idle_s": 60, "daily": {"at": "04:00", "tz": "Europe/Paris"}}, PolicyRequest)
    assert as_policy(request) is as_policy(again)
