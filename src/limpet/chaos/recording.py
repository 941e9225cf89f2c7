"""Makes a call of the public API and writes down what came of it."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from limpet.chaos.history import Answer, Call, Op, Writer
from limpet.clock import SystemClock
from limpet.coordinator import Limpet
from limpet.errors import LimpetError, NotDurable, StaleFence
from limpet.results import Advanced, Binding, Forgotten, Resolution, Suspended

__all__ = ["Recorder", "answer_of", "now_us"]

_clock = SystemClock()


def now_us() -> int:
    """Microseconds of CLOCK_MONOTONIC."""
    return int(_clock.monotonic() * 1_000_000)


class Recorder:
    """One client object, and the history its calls go to."""

    def __init__(self, client: Limpet, name: str, process: str, writer: Writer) -> None:
        self.client = client
        self.name = name
        self._process = process
        self._writer = writer
        self._count = itertools.count()

    async def call(self, op: Op, made: Callable[[], Awaitable[object]], **details: Any) -> Call:
        """Makes the call. Never raises what the call raises: that is its outcome."""
        settings, seq = self.client.settings, next(self._count)
        outcome, result = "ok", None
        start = now_us()
        try:
            result = await made()
        except NotDurable as error:
            outcome, result = error.code, error.result
        except StaleFence as error:
            outcome, result = error.code, error.binding
        except LimpetError as error:
            outcome = error.code
        except Exception as error:  # noqa: BLE001  (whatever else it raises is a finding, which the checker reports)
            outcome = f"crash:{type(error).__name__}"
        end = now_us()
        call = Call(
            client=self.name,
            process=self._process,
            seq=seq,
            op=op,
            start_us=start,
            end_us=end,
            allowed_ms=settings.deadline_ms + details.get("wait_ms", 0),
            outcome=outcome,
            answer=answer_of(result, empty=outcome == "ok"),
            **details,
        )
        self._writer.write(call)
        return call


def answer_of(result: object, *, empty: bool = False) -> Answer | None:
    """A result, flat. ``empty``: None is an answer too (there is no such record)."""
    if isinstance(result, Resolution):
        reset, binding = result.reset, result.binding
        return Answer(
            epoch=result.epoch,
            ordinal=result.ordinal,
            scope=result.scope,
            source=result.source,
            created=result.created,
            reason=result.epoch_reason,
            reset=reset.reason if reset else None,
            previous_epoch=reset.previous_epoch if reset else None,
            parent_scope=result.parent_scope,
            degraded=result.degraded,
            durable=result.durable,
            action=binding.action if binding else None,
            state=binding.state if binding else None,
            fence=binding.fence if binding else None,
        )
    if isinstance(result, Advanced):
        return Answer(
            epoch=result.epoch,
            ordinal=result.ordinal,
            scope=result.scope,
            previous_epoch=result.previous_epoch,
            applied=result.applied,
            durable=result.durable,
        )
    if isinstance(result, Binding):
        return Answer(action=result.action, state=result.state, fence=result.fence, durable=result.durable)
    if isinstance(result, (Suspended, Forgotten)):
        return Answer(epoch=result.epoch, applied=result.applied, durable=result.durable)
    return Answer() if empty else None
