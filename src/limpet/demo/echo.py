"""An OpenAI-compatible upstream that says who served: ``python -m limpet.demo.echo`` (the sample of ``docker-compose.yml``).

``/v1/chat/completions``, ``/v1/completions`` and ``/v1/responses`` repeat the last text that was asked, streamed where the body
asks for it. ``served_by`` of the answer (of each event), and the header ``X-Served-By``, name the server; ``received`` is what
the gateway stamped: the ``prompt_cache_key``, and the names (never the values) of headers that could carry a key.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from itertools import count
from typing import Any, Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from limpet.clock import SystemClock

__all__ = ["application", "main"]

DEFAULT_PORT: Final = 8000
GRACE_S: Final = 10
_encode: Final = msgspec.json.Encoder().encode


def application(name: str, pause_s: float = 0.0) -> Starlette:
    """The server. ``name``: who it says it is. ``pause_s``: seconds between two words of a stream."""
    clock, numbers = SystemClock(), count(1)

    async def serve(request: Request) -> Response:
        try:
            body = msgspec.json.decode(await request.body())
        except msgspec.DecodeError:
            body = None
        if not isinstance(body, dict):
            return JSONResponse({"error": {"message": "The body is no JSON object.", "type": "invalid_request_error"}}, 400)
        kind = request.url.path.removeprefix("/v1/")
        frame = _frame(kind, body, f"{name}-{next(numbers)}", int(clock.now().timestamp()))
        frame |= {"served_by": name, "received": _received(request, body)}
        text = f"{name} heard: {_last_text(body)}"
        headers = {"X-Served-By": name}
        if body.get("stream"):
            return StreamingResponse(_events(kind, frame, text, pause_s), headers=headers, media_type="text/event-stream")
        return JSONResponse(frame | _whole(kind, text), headers=headers)

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "echo", "object": "model", "created": 0, "owned_by": "limpet"}]})

    async def alive(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    paths = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
    routes = [Route(path, serve, methods=["POST"]) for path in paths]
    return Starlette(routes=[*routes, Route("/v1/models", models), Route("/livez", alive)])


def _received(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    names = sorted(name for name in request.headers if name.startswith("x-limpet") or "session" in name)
    return {"prompt_cache_key": body.get("prompt_cache_key"), "headers": names}


def _last_text(body: dict[str, Any]) -> str:
    asked = body.get("messages") or body.get("input") or body.get("prompt") or ""
    if isinstance(asked, list):
        asked = asked[-1]
    if isinstance(asked, dict):
        asked = asked.get("content", "")
    return asked if isinstance(asked, str) else msgspec.json.encode(asked).decode()


def _frame(kind: str, body: dict[str, Any], number: str, created: int) -> dict[str, Any]:
    model = body.get("model", "echo")
    if kind == "responses":
        return {"id": f"resp_{number}", "object": "response", "created_at": created, "model": model}
    name = "chat.completion" if kind == "chat/completions" else "text_completion"
    return {"id": f"cmpl-{number}", "object": name, "created": created, "model": model}


def _whole(kind: str, text: str) -> dict[str, Any]:
    words = len(text.split())
    if kind == "responses":
        content = [{"type": "output_text", "text": text, "annotations": []}]
        message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}
        return {"status": "completed", "output": [message]}
    usage = {"prompt_tokens": words, "completion_tokens": words, "total_tokens": 2 * words}
    said: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if kind == "chat/completions" else {"text": text}
    return {"choices": [{"index": 0, **said, "finish_reason": "stop"}], "usage": usage}


async def _events(kind: str, frame: dict[str, Any], text: str, pause_s: float) -> AsyncIterator[bytes]:
    if kind == "responses":
        yield _event({"type": "response.created", "response": frame | {"status": "in_progress", "output": []}})
    for word in text.split(" "):
        yield _event(_part(kind, frame, f"{word} "))
        await asyncio.sleep(pause_s)
    if kind == "responses":
        yield _event({"type": "response.completed", "response": frame | _whole(kind, text)})
        return
    end: dict[str, Any] = {"delta": {}} if kind == "chat/completions" else {"text": ""}
    yield _event(frame | _chunked(kind) | {"choices": [{"index": 0, **end, "finish_reason": "stop"}]})
    yield b"data: [DONE]\n\n"


def _part(kind: str, frame: dict[str, Any], word: str) -> dict[str, Any]:
    if kind == "responses":
        return {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": word}
    said: dict[str, Any] = {"delta": {"role": "assistant", "content": word}} if kind == "chat/completions" else {"text": word}
    return frame | _chunked(kind) | {"choices": [{"index": 0, **said, "finish_reason": None}]}


def _chunked(kind: str) -> dict[str, Any]:
    return {"object": "chat.completion.chunk"} if kind == "chat/completions" else {}


def _event(data: dict[str, Any]) -> bytes:
    name = f"event: {data['type']}\n".encode() if "type" in data else b""
    return name + b"data: " + _encode(data) + b"\n\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; 0 after a graceful end."""
    parser = argparse.ArgumentParser(prog="python -m limpet.demo.echo", description="An upstream that says who served.")
    parser.add_argument("--name", default=socket.gethostname(), help="who it says it is; by default the host's name")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on; by default all of them")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"port to listen on; by default {DEFAULT_PORT}")
    parser.add_argument("--pause-s", type=float, default=0.0, help="seconds between two words of a stream")
    given = parser.parse_args(arguments)
    config = uvicorn.Config(
        application(given.name, given.pause_s),
        host=given.host,
        port=given.port,
        log_level="warning",
        timeout_graceful_shutdown=GRACE_S,
    )
    uvicorn.Server(config).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
