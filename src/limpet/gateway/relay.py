"""An upstream's answer on its way to the client: its first bytes decide, the rest streams."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp

from limpet.errors import InvalidRequest
from limpet.gateway.client_side import ClientSide
from limpet.gateway.dispatch import read_some
from limpet.gateway.events import EventCutter, data_of, split_events
from limpet.gateway.heads import answer_headers, has_body
from limpet.gateway.learn import Reader
from limpet.gateway.problems import BadGateway, error_event
from limpet.service.problems import HttpError
from limpet.wire.body import MISSING, Body

__all__ = ["Opened", "open_answer", "relay"]

_FAILED: Final = b"error"
_NOTHING: Final = re.compile(rb'null|false|0|""|\{\s*\}|\[\s*\]')
Hook = Callable[[], Awaitable[None]]


class Opened:
    """An answer whose first bytes have come. ``good``: the upstream serves this turn. ``reads``: readers see it go by.
    ``unread``: so many of the first bytes are for no reader."""

    __slots__ = ("answer", "cutter", "ended", "first", "good", "readers", "unread")

    def __init__(self, answer: aiohttp.ClientResponse, readers: list[Reader]) -> None:
        self.answer = answer
        self.good = answer.status < 400
        plain = answer.headers.get("Content-Encoding", "identity").strip().lower() == "identity"
        stream = _media_type(answer) == "text/event-stream"
        self.cutter = EventCutter() if plain and stream else None
        self.readers = readers if plain and self.good else []
        self.first = b""
        self.unread = 0
        self.ended = False

    @property
    def reads(self) -> bool:
        """Whether anybody reads it."""
        return bool(self.readers)

    def close(self) -> None:
        """Give the connection back if the answer is complete, else close it, which is what cancels the upstream's work."""
        if self.ended:
            self.answer.release()
        else:
            self.answer.close()


async def open_answer(answer: aiohttp.ClientResponse, readers: list[Reader], limit: int) -> Opened:
    """Waits for the first bytes; of a body that readers must see whole, for all of it.

    Raises BadGateway, UpstreamTimeout; nothing has gone to the client then.
    """
    opened = Opened(answer, readers)
    try:
        data = await read_some(answer)
        if opened.cutter is not None:
            opened.first = opened.cutter.feed(data)
            while data and not opened.first:
                data = await read_some(answer)
                opened.first = opened.cutter.feed(data)
            opened.ended, opened.unread = not data or answer.content.at_eof(), opened.cutter.unread
            if opened.ended:
                opened.first += opened.cutter.end()
            opened.good = opened.good and (opened.unread > 0 or not _is_error(opened.first))
        elif opened.readers and data:
            opened.first, opened.ended = await _all(answer, data, limit), True
        else:
            opened.first, opened.ended = data, not data or answer.content.at_eof()
    except BaseException:
        answer.close()
        raise
    return opened


def _media_type(answer: aiohttp.ClientResponse) -> str:
    """Not the client library's: its parser trips over what some upstreams write behind the type."""
    return answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()


async def _all(answer: aiohttp.ClientResponse, data: bytes, limit: int) -> bytes:
    parts, size = [data], len(data)
    while data := await read_some(answer):
        parts.append(data)
        size += len(data)
        if size > limit:
            raise BadGateway(f"The upstream's answer is larger than the {limit} bytes that can be looked at.")
    return b"".join(parts)


def _is_error(events: bytes) -> bool:
    """Whether a stream begins with an error: status 200 was sent before it was known."""
    if _FAILED not in events:
        return False
    try:
        error = Body(data_of(split_events(events)[0])).get(("error",))
    except InvalidRequest:  # no object, or one that is nested too deeply to look into
        return False
    return error is not MISSING and not _NOTHING.fullmatch(bytes(error))


async def relay(
    client: ClientSide, opened: Opened, extra: list[tuple[bytes, bytes]], *, before_more: Hook, before_end: Hook, named: bool
) -> bool:
    """Sends the answer on; whether all of it came. A broken event stream ends with an error event, another body short."""
    answer, cutter = opened.answer, opened.cutter
    out = _read(opened, opened.first, opened.unread)
    opened.first = b""  # may be large, and the stream long
    whole = opened.ended
    if whole:
        await before_end()
    changed = opened.reads
    headers = [*answer_headers(answer.raw_headers, status=answer.status, changed=changed), *extra]
    if changed and whole and has_body(answer.status):
        headers.append((b"content-length", b"%d" % len(out)))
    await client.start(answer.status, headers)
    if whole:
        await client.finish(out)
        return True
    await client.write(out)
    del out  # as above
    try:
        while data := await read_some(answer):
            await before_more()
            if cutter is not None:
                data = cutter.feed(data)
            data = _read(opened, data, 0 if cutter is None else cutter.unread)
            if data:
                await client.write(data)
            del data
    except HttpError as error:
        if cutter is not None:
            ending = b"\n\n" if cutter.inside else b""  # else the error would be a part of the event that broke
            await client.finish(ending + error_event(error, named=named))
        return False
    opened.ended = True
    await before_end()
    await client.finish(b"" if cutter is None else _read(opened, cutter.end(), 0))
    return True


def _read(opened: Opened, data: bytes, unread: int) -> bytes:
    if unread and opened.readers:
        return data[:unread] + _read(opened, data[unread:], 0)
    if not data:
        return data
    for reader in opened.readers:
        data = reader.events(data) if opened.cutter is not None else reader.body(data)
    return data
