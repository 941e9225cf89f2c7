"""What ``limpet serve`` is measured against: ``python -m limpet.bench.http_servers constant | storeless | fastapi``.

``constant``: the same server (uvicorn as we run it), an application that reads the body and answers a constant.
``storeless``: the service with its short way past ASGI, over a client that answers a constant at once.
``fastapi``: the same job by FastAPI and redis-py.
"""

from __future__ import annotations

import os
import socket
import sys
from types import SimpleNamespace
from typing import Any, Final, cast

from starlette.types import Receive, Scope, Send

from limpet.service import logs
from limpet.service.build import Built, build
from limpet.service.clients import Client
from limpet.service.serving import serve
from limpet.settings import Settings

__all__ = ["fastapi_is_there", "main"]

ANSWER: Final = (
    b'{"key":"conversation 1","session_id":"s","epoch":28861479864234,"ordinal":1,"scope":"gwk_0123456789abcdef01234567",'
    b'"source":"declared","created":false,"epoch_reason":"new","epoch_started_ms":1796087079864,"reset":null,"binding":'
    b'{"action":"continue","state":"bound","worker":"w","address":null,"dp_rank":null,"holder":"h:1","fence":28861479864234,'
    b'"expires_in_ms":299999,"retry_after_ms":null,"rebound":false,"incarnation":null,"durable":null},"parent_scope":null,'
    b'"degraded":false,"durable":null}'
)
"""As long as a real one."""


async def _constant(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": ANSWER})


class _Storeless:
    """A client that knows one answer."""

    def __init__(self) -> None:
        import msgspec

        from limpet.results import Resolution

        self._answer = msgspec.json.decode(ANSWER, type=Resolution)

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to close."""

    async def resolve(self, key: str | None = None, **options: object) -> Any:
        """The answer."""
        return self._answer

    def resolve_soon(self, *asked: Any) -> bool:
        """The answer, at once."""
        asked[-1](self._answer)
        return True


def _make(kind: str) -> Any:
    def make(settings: Settings) -> Built:
        if kind == "storeless":
            return build(settings, lambda _: cast(Client, _Storeless()))
        return cast(Built, SimpleNamespace(app=_constant, pages=SimpleNamespace(refusal=None)))

    return make


def fastapi_is_there() -> bool:
    """Whether the dependency group ``bench`` is installed."""
    try:
        import fastapi  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
    except ImportError:
        return False
    return True


def _fastapi(listener: socket.socket) -> None:
    """What a good engineer writes first: a model, a route, redis-py, one script call."""
    import redis.asyncio
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    from limpet.bind import Bind
    from limpet.commands import Commands

    class Turn(BaseModel):
        session_id: str
        key: str
        bind: bool = False

    # Annotations are texts here, and FastAPI looks names up in the module.
    globals()["Turn"] = Turn
    store = redis.asyncio.Redis.from_url(os.environ["LIMPET_REDIS_URL"], max_connections=1024)
    commands = Commands(namespace=os.environ.get("LIMPET_NAMESPACE", "default"))
    app = FastAPI()

    @app.post("/v1/resolve")  # type: ignore[untyped-decorator, unused-ignore]
    async def resolve(turn: Turn) -> dict[str, Any]:
        bind = Bind() if turn.bind else None
        call = commands.resolve(
            commands.declared(turn.key), session_id=turn.session_id, bind=bind, request_id=os.urandom(8).hex(), look_up=False
        )
        try:
            reply = await store.evalsha(call.script.sha, len(call.keys), *call.keys, *call.args)
        except redis.exceptions.NoScriptError:
            reply = await store.eval(call.script.text, len(call.keys), *call.keys, *call.args)
        found = call.parse(reply).result
        binding = found.binding
        answer = {name: getattr(found, name) for name in found.__struct_fields__ if name not in ("binding", "reset")}
        answer["binding"] = binding and {name: getattr(binding, name) for name in binding.__struct_fields__}
        return answer

    config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="warning")
    _say(listener)
    uvicorn.Server(config).run([listener])


def _say(listener: socket.socket) -> None:
    sys.stdout.write(f"listening on http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stdout.flush()


def main(kind: str) -> int:
    """Serves until it is terminated."""
    logs.configure("error")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2048)
        listener.setblocking(False)
        if kind == "fastapi":
            _fastapi(listener)
            return 0
        return serve(Settings.load(), listener, lambda _: _say(listener), _make(kind))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
