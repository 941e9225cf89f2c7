"""Debug sampling (design, section 6): the first turns of each session, in a bounded ring, without secrets and keys."""

from __future__ import annotations

import json
import re
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

import msgspec

from limpet.service.logs import logger

__all__ = ["Sample", "Samples"]

RING: Final = 1000
SESSIONS: Final = 10_000
_SECRET: Final = re.compile(
    r"""(?xi)
    (?P<keep>
      "(?:[a-z_-]*(?:api[_-]?key|secret|passw(?:or)?d|authorization|credential|private[_-]?key)[a-z_-]*|(?:access|auth|refresh|bearer)[_-]?token|token)"
      \s*:\s* ")(?:[^"\\]|\\.)*
    | (?P<bearer>\b(?:bearer|basic)\s+)[a-z0-9._~+/=-]{8,}
    | \b(?:sk|pk|rk|xai|gsk|hf|ghp|gho|ghs|glpat|xox[abprs]|AKIA|AIza)[-_]?[a-z0-9_-]{12,}
    | \beyJ[a-z0-9_-]{8,}\.[a-z0-9_-]{8,}\.[a-z0-9_-]*
    """
)
_MASK: Final = "[redacted]"


class Sample(msgspec.Struct, frozen=True):
    """One sampled turn. ``body`` is the beginning of what went upstream, redacted."""

    namespace: str
    scope: str
    epoch: int | None
    action: str | None
    fence: int | None
    turn: int
    body: str


class Samples:
    """Keeps the first ``turns`` turns of each session, ``chars`` characters of each body."""

    def __init__(self, turns: int, chars: int) -> None:
        self._turns = turns
        self._chars = chars
        self._seen: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._ring: deque[Sample] = deque(maxlen=RING)

    def wants(self, namespace: str, scope: str) -> bool:
        """Whether the next turn of this session is to be sampled."""
        return self._turns > 0 and self._seen.get((namespace, scope), 0) < self._turns

    def take(
        self,
        namespace: str,
        scope: str,
        *,
        epoch: int | None,
        action: str | None,
        fence: int | None,
        body: bytes,
        private: Iterable[str | None],
    ) -> None:
        """Keep and log one turn. ``private``: the key and the session ids, which are struck out of the body."""
        turn = self._seen.pop((namespace, scope), 0) + 1
        self._seen[namespace, scope] = turn
        if len(self._seen) > SESSIONS:
            self._seen.popitem(last=False)
        sample = Sample(namespace, scope, epoch, action, fence, turn, self._excerpt(body, [word for word in private if word]))
        self._ring.append(sample)
        logger.info("sample", **msgspec.structs.asdict(sample))

    def _excerpt(self, body: bytes, private: list[str]) -> str:
        if not self._chars:
            return ""
        # A margin beyond the cut: a secret that the cut would halve must still be recognised as one.
        text = redact(body[: 4 * self._chars + 4096].decode(errors="replace"))
        for word in private:
            for form in {
                word,
                json.dumps(word)[1:-1],
                json.dumps(word, ensure_ascii=False)[1:-1],
            }:  # as it is, and as JSON has it
                text = text.replace(form, _MASK)
        return text[: self._chars]

    def of(self, namespace: str) -> list[Sample]:
        """The samples of a namespace, the oldest first."""
        return [sample for sample in self._ring if sample.namespace == namespace]


def redact(text: str) -> str:
    """The text without what looks like a credential."""
    return _SECRET.sub(lambda match: (match["keep"] or match["bearer"] or "") + _MASK, text)
