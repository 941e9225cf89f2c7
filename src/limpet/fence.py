"""The worker's side of fencing: work that carries an older fence than one already seen for its conversation is refused (G5).

A lease alone cannot keep a stale holder from writing: it may have been paused while its claim ran out and another was made.
Whoever does the work compares fences instead, and a fence only grows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import msgspec

from limpet.errors import StaleFence
from limpet.validate import check_epoch, check_text

__all__ = ["FENCE_HEADER", "SCOPE_HEADER", "FenceMiddleware", "Guard"]

SCOPE_HEADER: Final = "x-limpet-scope"
FENCE_HEADER: Final = "x-limpet-fence"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Guard:
    """Remembers the largest fence per conversation, for the last ``capacity`` conversations.

    A conversation that has fallen out of a full memory is taken as new; choose the capacity above the number of conversations
    that a worker serves within a claim's lifetime. Not thread-safe beyond what a dict is; one per process.
    """

    def __init__(self, capacity: int = 65_536) -> None:
        if capacity < 1:
            raise ValueError("capacity must be at least 1.")
        self._capacity = capacity
        self._seen: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def admit(self, name: str, fence: int) -> bool:
        """Whether work under this fence may be done; ``name`` is whatever names the conversation (its scope, say)."""
        newest = self._seen.get(name, 0)
        if fence < newest:
            return False
        self._seen[name] = fence
        self._seen.move_to_end(name)
        if len(self._seen) > self._capacity:
            self._seen.popitem(last=False)
        return True

    def check(self, name: str, fence: int) -> None:
        """The same, raising StaleFence."""
        if not self.admit(name, fence):
            raise StaleFence(f"Fence {fence} is older than one already served for this conversation; resolve again.")


class FenceMiddleware:
    """ASGI: refuses requests whose ``X-Limpet-Fence`` is older than one seen for their ``X-Limpet-Scope`` with 409.

    Requests without both headers pass: fencing is for those who take part. A malformed fence is 400.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], guard: Guard | None = None) -> None:
        self._app = app
        self.guard = guard or Guard()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http":
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            name, fence = headers.get(SCOPE_HEADER), headers.get(FENCE_HEADER)
            if name is not None and fence is not None:
                try:
                    number = check_epoch(int(fence) if fence.isascii() and fence.isdigit() and len(fence) <= 16 else -1, "fence")
                    check_text(name, "scope")
                except ValueError as error:
                    await _refuse(send, 400, "invalid_request", str(error))
                    return
                if not self.guard.admit(name, number):
                    detail = f"Fence {number} is older than one already served for this conversation; resolve again."
                    await _refuse(send, 409, StaleFence.code, detail)
                    return
        await self._app(scope, receive, send)


async def _refuse(send: Send, status: int, code: str, detail: str) -> None:
    body = msgspec.json.encode({"type": "about:blank", "status": status, "code": code, "detail": detail})
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
