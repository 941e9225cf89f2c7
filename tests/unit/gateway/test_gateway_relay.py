"""What goes by readers and what does not, and how much of a stream is held while it does."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from limpet.gateway.events import MAX_EVENT
from limpet.gateway.learn import WorkerReader
from limpet.gateway.problems import BadGateway
from limpet.gateway.relay import Opened, open_answer, relay

LONG = b"data: " + b"x" * MAX_EVENT + b"\n"
NAMES = b'data: {"nvext":{"worker_id":{"decode_worker_id":7}}}\n\n'
PLAIN = b'data: {"nvext":{}}\n\n'


class Answer:
    """An upstream's answer in pieces; an exception is raised in its place."""

    def __init__(self, *pieces: bytes | Exception, content_type: str = "text/event-stream") -> None:
        self.status = 200
        self.headers = {"Content-Type": content_type}
        self.raw_headers: tuple[tuple[bytes, bytes], ...] = ()
        self.content = self
        self._pieces = list(pieces)

    async def readany(self) -> bytes:
        if not self._pieces:
            return b""
        piece = self._pieces.pop(0)
        if isinstance(piece, Exception):
            raise piece
        return piece

    def at_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to close."""


class Client:
    """Keeps what was sent; ``largest``: of the pieces, where only their sizes are kept."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    async def start(self, *_: Any) -> None:
        """The head."""

    async def write(self, data: bytes) -> None:
        self.sent.append(data)

    finish = write


async def nothing() -> None:
    """A hook."""


async def run(answer: Any, learned: list[Any], client: Any) -> tuple[Opened, bool]:
    reader = WorkerReader(keep=False, learned=lambda *found: learned.append(found))
    opened = await open_answer(answer, [reader], 1000)
    whole = await relay(client, opened, [], before_more=nothing, before_end=nothing, named=False)
    return opened, whole


@pytest.mark.parametrize("first", [b"", b"data: 0\n\n"])
async def test_pieces_of_a_long_event_are_not_read(first: bytes) -> None:
    """One of its lines is not an event, whatever it says; the event behind it is read, also in the same piece."""
    learned: list[Any] = []
    client = Client()
    pieces = [each for each in (first, LONG, NAMES + NAMES) if each]
    _, whole = await run(Answer(*pieces), learned, client)
    assert whole
    assert b"".join(client.sent) == first + LONG + NAMES + b"data: {}\n\n"
    assert learned == [("7", None)]


@pytest.mark.parametrize("first", [b"", b"data: 0\n\n"])
async def test_a_break_inside_a_long_event(first: bytes) -> None:
    """The error is an event of its own, not the end of the broken one."""
    client = Client()
    pieces = [each for each in (first, LONG[:-1], b"yy", BadGateway("gone")) if each]
    _, whole = await run(Answer(*pieces), [], client)
    assert not whole
    assert b"".join(client.sent).startswith(first + LONG[:-1] + b'yy\n\ndata: {"error":')


async def test_first_bytes_are_let_go() -> None:
    """A long stream does not hold its first event as long as it lasts."""

    class Watching(Client):
        async def write(self, data: bytes) -> None:
            held = sum(len(each) for each in gc.get_referents(opened) if isinstance(each, bytes))
            self.sent.append(b"%d" % held)

        finish = write

    opened = await open_answer(Answer(LONG, b"\n", PLAIN), [], 1000)  # type: ignore[arg-type]
    assert len(opened.first) == len(LONG)
    client: Any = Watching()
    await relay(client, opened, [], before_more=nothing, before_end=nothing, named=False)
    assert set(client.sent) == {b"0"}


@pytest.mark.parametrize(
    ("event", "good"),
    [
        (b'{"error":' + b"[" * 200_000 + b"]" * 200_000 + b"}", True),
        (b'{"error":' + b"[" * 200_000, True),
        (b'{"error":{"message":"\\ud800"}}', False),
        (b'{"error":{"code":1e999}}', False),
        (b'{"error":{"code":99999999999999999999999}}', False),
        (b'{"n":1e999,"error":"x"}', False),
        (b'{"n":"\\ud800","error":null}', True),
    ],
)
async def test_the_first_event_says_whether_it_failed(event: bytes, good: bool) -> None:
    """However odd the rest of it is; what cannot be looked into goes on as it is."""
    opened = await open_answer(Answer(b"data: " + event + b"\n\n"), [], 1000)  # type: ignore[arg-type]
    assert (opened.good, opened.first) == (good, b"data: " + event + b"\n\n")


@pytest.mark.parametrize("value", ["null", "false", "0", '""', "{}", "[]", "{ }", "[ ]"])
async def test_an_error_that_is_none(value: str) -> None:
    """Some upstreams send the field in every event."""
    opened = await open_answer(Answer(b'data: {"error":%s}\n\n' % value.encode()), [], 1000)  # type: ignore[arg-type]
    assert opened.good


@pytest.mark.parametrize(
    ("value", "stream"),
    [
        ("text/event-stream;charset*", True),
        ("Text/Event-Stream ; charset=utf-8", True),
        (",;charset*", False),
        ("\udcff/\x7f;;*=", False),
        ("", False),
    ],
)
async def test_content_types(value: str, stream: bool) -> None:
    """Whatever stands there, and behind it."""
    opened = await open_answer(Answer(PLAIN, content_type=value), [], 1000)  # type: ignore[arg-type]
    assert (opened.cutter is not None) == stream
