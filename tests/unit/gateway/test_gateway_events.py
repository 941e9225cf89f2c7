"""Cutting event streams: nothing is lost, nothing incomplete goes out."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.gateway.events import MAX_EVENT, EventCutter, data_of, split_events, with_data

LINES = st.sampled_from([b"data: x", b"data:y", b"event: e", b": c", b"", b"", "data: €".encode(), b"id: 1"])
ENDINGS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(LINES, max_size=12), ENDINGS, st.lists(st.integers(1, 9), max_size=40))
def test_any_cut_gives_the_same_bytes(lines: list[bytes], ending: bytes, sizes: list[int]) -> None:
    """However the stream is cut into chunks, the bytes are the same, and what is held back is at most one event."""
    stream = b"".join(line + ending for line in lines)
    cutter, out, at = EventCutter(), b"", 0
    for size in sizes:
        piece = cutter.feed(stream[at : at + size])
        assert piece == b"" or piece.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))
        out += piece
        at += size
        assert stream.startswith(out)
    out += cutter.feed(stream[at:]) + cutter.end()
    assert out == stream
    assert b"".join(split_events(stream)) == stream


def test_complete_chunks_pass_at_once() -> None:
    """The usual case: one event per chunk, no copy."""
    cutter = EventCutter()
    event = b"data: 1\n\n"
    assert cutter.feed(event) is event
    assert cutter.feed(b"data: 2\n\ndata: 3") == b"data: 2\n\n"
    assert cutter.end() == b"data: 3"
    assert cutter.end() == b""


@pytest.mark.parametrize("size", [999, 65_536, MAX_EVENT])
@pytest.mark.parametrize("blank", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n"])
def test_a_giant_event_is_not_held(blank: bytes, size: int) -> None:
    """Beyond the bound it goes out as it comes, marked as not to be read; the events around it are whole."""
    before, after = b"data: 1" + blank, b"data: 2" + blank
    giant = b"data: " + b"x" * (3 * MAX_EVENT) + blank
    stream = before + giant + after + giant + after
    cutter, out, unread, most = EventCutter(), b"", b"", 0
    for at in range(0, len(stream), size):
        chunk = stream[at : at + size]
        piece = cutter.feed(chunk)
        most = max(most, cutter.held)
        out += piece
        unread += piece[: cutter.unread]
        assert not cutter.inside or piece.endswith(chunk[-1:])  # nothing waits within one
    assert most <= MAX_EVENT <= 1024 * 1024
    assert out + cutter.end() == stream
    assert unread == 2 * giant
    assert not cutter.inside


def test_two_giants_in_one_chunk() -> None:
    """The end of one and the beginning of the next are both not to be read."""
    cutter = EventCutter()
    giant = b"data: " + b"x" * MAX_EVENT
    assert cutter.feed(giant) == giant
    rest = b"x\n\n" + giant
    assert cutter.feed(rest) == rest
    assert (cutter.unread, cutter.held, cutter.inside) == (len(rest), 0, True)
    assert cutter.feed(b"\n\ndata: 2\n\ndata: 3") == b"\n\ndata: 2\n\n"
    assert (cutter.unread, cutter.held, cutter.inside) == (2, 7, False)


def test_holding_an_event_is_linear() -> None:
    """A large event in small pieces: the whole of it is neither copied nor searched for each piece."""
    cutter, piece = EventCutter(), b"x" * 64
    begun = time.process_time()
    for _ in range(MAX_EVENT // len(piece)):
        assert cutter.feed(piece) == b""
    assert time.process_time() - begun < 1  # some 20 ms; several seconds otherwise


def test_data() -> None:
    """Several data lines are one text; replacing it keeps the other lines and the kind of line ending."""
    assert data_of(b'event: x\ndata: {"a":\ndata: 1}\n\n') == b'{"a":\n1}'
    assert data_of(b": comment\n\n") == b""
    assert with_data(b"event: x\r\ndata: 1\r\ndata: 2\r\nid: 7\r\n\r\n", b"3") == b"event: x\r\ndata: 3\r\nid: 7\r\n\r\n"
