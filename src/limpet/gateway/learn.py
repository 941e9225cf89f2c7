"""What the gateway reads in an answer: Dynamo's worker, and the id of a response. What it asked for, it takes out again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from limpet.errors import InvalidRequest
from limpet.gateway.events import data_of, split_events, with_data
from limpet.validate import check_text
from limpet.wire.body import MISSING, Body, array_of, text_of

__all__ = ["Reader", "ResponseReader", "WorkerReader", "asked_for_worker"]

_FIELDS: Final = ("nvext", "extra_fields")
_WORKER: Final = ("nvext", "worker_id")
_NAME: Final = "worker_id"
_MARK: Final = b'"worker_id"'
_INT: Final = msgspec.json.Decoder(int)
MAX_RANK: Final = 2**31 - 1


class Reader(Protocol):
    """Sees an answer go by: whole events of a stream, or the whole body."""

    def events(self, data: bytes) -> bytes:
        """Complete events; what comes back goes to the client."""

    def body(self, data: bytes) -> bytes:
        """A complete body; what comes back goes to the client."""


def asked_for_worker(body: Body) -> bool:
    """Whether the client itself asked for ``nvext.worker_id``."""
    return any(text_of(item) == _NAME for item in array_of(body.get(_FIELDS)) or ())


class WorkerReader:
    """Learns ``decode_worker_id`` and ``decode_dp_rank`` once, and takes ``nvext.worker_id`` out if the client did not ask.

    Ids are kept as the text that stands in the answer: Dynamo's are integers up to 2^64, beyond what a double holds.
    """

    def __init__(self, *, keep: bool, learned: Callable[[str, int | None], None]) -> None:
        self._keep = keep
        self._learned: Callable[[str, int | None], None] | None = learned

    def events(self, data: bytes) -> bytes:
        """Looks closer only at events that name a worker, and at none once there is nothing to do."""
        if _MARK not in data or (self._keep and self._learned is None):
            return data
        return b"".join(self._event(event) if _MARK in event else event for event in split_events(data))

    def _event(self, event: bytes) -> bytes:
        data = data_of(event)
        changed = self.body(data)
        return event if changed is data else with_data(event, changed)

    def body(self, data: bytes) -> bytes:
        """The body without what the client did not ask for; the very same bytes if that changes nothing."""
        if _MARK not in data:
            return data
        try:
            return self._looked(data, Body(data))
        except InvalidRequest:  # no JSON, here or further inside
            return data

    def _looked(self, data: bytes, body: Body) -> bytes:
        if body.get(_WORKER) is MISSING:
            return data
        if self._learned is not None:
            worker = _id_text(body.get((*_WORKER, "decode_worker_id")))
            if worker is not None:
                rank = _rank(body.get((*_WORKER, "decode_dp_rank")))
                learned, self._learned = self._learned, None
                learned(worker, rank)
        if self._keep:
            return data
        body.remove(_WORKER)
        out: bytes = body.finish()
        return out


def _id_text(value: Any) -> str | None:
    text = text_of(value)
    if text is None and isinstance(value, msgspec.Raw):
        digits = bytes(value)
        text = digits.decode() if digits.isdigit() else None
    try:
        return check_text(text, _NAME) if text and text.isprintable() else None
    except InvalidRequest:  # longer than a worker's name may be: in bytes, which only the store would find out
        return None


def _rank(value: Any) -> int | None:
    if not isinstance(value, msgspec.Raw):
        return None
    try:
        rank = _INT.decode(value)
    except msgspec.MsgspecError:
        return None
    return rank if 0 <= rank <= MAX_RANK else None


class ResponseReader:
    """Learns the id of a response of ``/v1/responses``, in a stream or a body, and changes nothing."""

    def __init__(self, learned: Callable[[str], None]) -> None:
        self._learned: Callable[[str], None] | None = learned

    def events(self, data: bytes) -> bytes:
        """The id stands in the first event (``response.created``)."""
        if self._learned is not None:
            for event in split_events(data):
                if self._learned is not None:
                    self._look(data_of(event), ("response", "id"))
        return data

    def body(self, data: bytes) -> bytes:
        """The id is a field of the response itself."""
        self._look(data, ("id",))
        return data

    def _look(self, data: bytes, path: tuple[str, ...]) -> None:
        if not data.startswith(b"{") and not data.lstrip().startswith(b"{"):
            return
        try:
            text = Body(data).text(path)
        except InvalidRequest:
            return
        if text and self._learned is not None:
            learned, self._learned = self._learned, None
            learned(text)
