"""JSON and MessagePack: which one, decoding with one clear sentence when it fails, encoding.

msgspec decodes into typed structs without ever building what was not asked for: a MessagePack array that claims 2^32
items, or 100,000 nested ones, costs nothing (tests/unit/service/test_media.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from limpet.errors import InvalidRequest
from limpet.service.problems import MalformedBody, UnsupportedMediaType

__all__ = ["JSON", "MSGPACK", "Media", "accepted", "declared"]

T = TypeVar("T")
_TYPE: Final = re.compile(r"`([^`]*)`")
_PLAIN: Final = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
Decode = Callable[[bytes | msgspec.Raw], T]

_NAMED: Final = re.compile(r"(?:unknown|required) field `(.*)`", re.DOTALL)
_MSGPACK_TYPES: Final = frozenset({"application/msgpack", "application/x-msgpack", "application/vnd.msgpack"})


class Media(NamedTuple):
    """One of the two formats. ``header`` is the content type it answers with."""

    name: str
    header: bytes
    encode: Callable[[Any], bytes]

    def decoder(self, kind: Any) -> Decode[Any]:
        """A function from bytes to ``kind``.

        It raises InvalidRequest (well-formed, but not what the call takes) or MalformedBody.
        """
        cls = msgspec.json.Decoder if self.name == "JSON" else msgspec.msgpack.Decoder
        decode = cls(kind).decode
        name = self.name

        def run(data: bytes | msgspec.Raw) -> Any:
            try:
                return decode(data)
            except msgspec.ValidationError as error:
                raise _invalid(str(error)) from None
            except msgspec.DecodeError as error:
                raise MalformedBody(f"The body is not valid {name}: {_lower(str(error))}.") from None
            except RecursionError:
                raise MalformedBody(f"The body is not acceptable {name}: it is nested too deeply.") from None
            except (UnicodeDecodeError, OverflowError):
                raise MalformedBody(f"The body is not valid {name}: it holds text or numbers that are not.") from None

        return run


JSON: Final = Media("JSON", b"application/json", msgspec.json.Encoder().encode)
MSGPACK: Final = Media("MessagePack", b"application/msgpack", msgspec.msgpack.Encoder().encode)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:] if text[:2] not in ("JS", "UT") else text


def _plain_type(match: re.Match[str]) -> str:
    return " or ".join(_PLAIN.get(name, name) for name in match[1].split(" | "))


_ENUM: Final = re.compile("Invalid enum value .*", re.DOTALL)  # what was sent may be somebody's


def _invalid(message: str) -> InvalidRequest:
    """msgspec's finding as one sentence that begins with the field."""
    text, _, place = message.partition(" - at ")
    path = place.replace("`", "").strip().removeprefix("key in ").removeprefix("$").removeprefix(".")
    named = _NAMED.search(text)
    if named:
        path = f"{path}.{named[1]}" if path else named[1]
        text = "there is no such field" if "unknown" in text else "it is required"
    path = path if len(path) <= 80 else path[:77] + "..."
    text = _lower(_TYPE.sub(_plain_type, _ENUM.sub("Invalid enum value", text)))
    return InvalidRequest(f"{path or 'The body'}: {text}.", field=path or None)


@lru_cache(maxsize=64)
def declared(content_type: bytes | None) -> Media:
    """The format that ``Content-Type`` names.

    A missing or other type is refused, not guessed: a web page can make a browser post text to a local service, but not
    with these types (they need a CORS preflight, which we do not answer).
    """
    if content_type is not None:
        kind = content_type.split(b";", 1)[0].strip().lower().decode("latin-1")
        if kind == "application/json":
            return JSON
        if kind in _MSGPACK_TYPES:
            return MSGPACK
    raise UnsupportedMediaType("Send Content-Type: application/json or application/msgpack with the body.")


@lru_cache(maxsize=64)
def accepted(accept: bytes | None, request: Media) -> Media:
    """The format to answer in: what ``Accept`` prefers, else that of the request. Never 406."""
    if accept is None:
        return request
    best, best_quality = request, 0.0
    for part in accept.decode("latin-1").lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        media = JSON if kind == "application/json" else MSGPACK if kind in _MSGPACK_TYPES else None
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        if media is not None and quality > best_quality:
            best, best_quality = media, quality
    return best
