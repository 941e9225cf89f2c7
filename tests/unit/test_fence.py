"""The worker's guard: fences only grow, in bounded memory; and its ASGI form."""

from __future__ import annotations

from typing import Any

import pytest

from limpet.errors import StaleFence
from limpet.fence import FenceMiddleware, Guard


def test_fences_only_grow() -> None:
    """The same and larger ones pass, older ones never."""
    guard = Guard()
    assert guard.admit("a", 5)
    assert guard.admit("a", 5)
    assert guard.admit("a", 7)
    assert not guard.admit("a", 6)
    assert guard.admit("b", 1)
    with pytest.raises(StaleFence):
        guard.check("a", 6)
    guard.check("a", 8)


def test_memory_is_bounded_and_the_oldest_goes() -> None:
    """A conversation that is served again stays."""
    guard = Guard(capacity=3)
    for name in "abc":
        guard.admit(name, 9)
    guard.admit("a", 9)
    guard.admit("d", 9)
    assert len(guard) == 3
    assert not guard.admit("a", 1)
    assert guard.admit("b", 1)
    with pytest.raises(ValueError, match="at least 1"):
        Guard(0)


async def call(middleware: FenceMiddleware, headers: list[tuple[bytes, bytes]]) -> tuple[int, bytes]:
    """Status and body of one request."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    await middleware({"type": "http", "headers": headers}, receive, send)
    return sent[0]["status"], sent[1]["body"]


async def served(scope: Any, receive: Any, send: Any) -> None:
    """The application behind."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"served"})


def with_fence(fence: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"X-Limpet-Scope", b"gwk_1"), (b"X-Limpet-Fence", fence)]


async def test_middleware() -> None:
    """A stale fence is 409, a malformed one 400, none at all passes."""
    middleware = FenceMiddleware(served)
    assert await call(middleware, with_fence(b"10")) == (200, b"served")
    status, body = await call(middleware, with_fence(b"9"))
    assert status == 409
    assert b"stale_fence" in body
    for wrong in (b"x", b"-1", b"1.5", b"", b"9" * 40, "٣".encode()):
        assert (await call(middleware, with_fence(wrong)))[0] == 400
    assert await call(middleware, []) == (200, b"served")
    assert await call(middleware, [(b"x-limpet-fence", b"1")]) == (200, b"served")


async def test_other_protocols_pass() -> None:
    """Lifespan and websockets are none of its business."""
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    async def nothing(*_: Any) -> Any:
        return None

    await FenceMiddleware(app)({"type": "lifespan"}, nothing, nothing)
    assert seen == ["lifespan"]
