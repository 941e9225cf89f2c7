"""The short way of the common turn: one that asks for nothing unusual, most often of a key that was served here before.

It does what the long way does (the same script, the same arguments), with everything that is the same from turn to turn
prepared: the command's bytes up to its last argument per key, that argument but for two fields per (policy, bind), and the
result per record, since an unchanged record comes back to the byte. Whatever is unusual goes the long way, under the same
request id.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

import msgspec

from limpet.bind import Bind
from limpet.calls import Target
from limpet.commands import Commands
from limpet.policy import Policy
from limpet.results import Resolution

__all__ = ["Known", "QuickPath"]

CAPACITY: Final = 16_384
"""Keys kept; the oldest goes first."""
TEMPLATES: Final = 1024


class Known(msgspec.Struct, eq=False, gc=False):
    """A key that was served before: its command so far, and its last unchanged record with what it meant."""

    target: Target
    record_key: str
    prefix: bytes
    raw: bytes | None = None
    resolution: Resolution | None = None


class QuickPath:
    """The preparations of one client. Not for another client: they hold its namespace, partitions and granularity."""

    __slots__ = ("_commands", "_known", "_templates")

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._templates: dict[Hashable, tuple[bytes, bytes] | None] = {}

    def known(self, key: str) -> Known | None:
        """What is prepared for a key, or None."""
        return self._known.get(key)

    def learn(self, key: str, target: Target) -> Known:
        """Prepares a key, so that its next turn may go the short way."""
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= CAPACITY:
                self._known.popitem(last=False)
            known = self._known[key] = Known(target, *self._commands.resolve_prefix(target))
        return known

    def template(self, policy: Policy, exempt: bool, bind: Bind | None, glance: bool = False) -> tuple[bytes, bytes] | None:
        """The last argument before and after the seen epoch, or None where it differs from turn to turn. ``glance``: of a turn
        that decides nothing, whatever is due; so it needs no proposal of a worker, and waits for nobody's claim."""
        name = (policy, exempt, bind, glance)
        try:
            return self._templates[name]
        except KeyError:
            pass
        usual = (policy.daily is None or exempt) and (glance or bind is None or (bind.pool is None and not bind.wait_ms))
        made = self._commands.resolve_template(policy, exempt, bind, glance) if usual else None
        if len(self._templates) >= TEMPLATES:
            self._templates.clear()
        self._templates[name] = made
        return made

    def command(self, known: Known, template: tuple[bytes, bytes], seen_epoch: int, request_id: str) -> bytes:
        """The bytes to send."""
        before, after = template
        tail = request_id.encode()
        size = len(before) + 8 + len(after) + 2 + len(tail)
        return b"%b%d\r\n%b%b%b\xd9%c%b\r\n" % (known.prefix, size, before, seen_epoch.to_bytes(8), after, len(tail), tail)
