"""The console: one page and what it loads, served by the service itself (design, section 7).

Everything lies in this package; nothing is built and nothing is fetched from elsewhere. It is read once. The page asks the
service's own JSON endpoints, with the token that its user typed; it is no more trusted than any other client.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["CSP", "routes"]

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class _Asset(NamedTuple):
    body: bytes
    content_type: str
    etag: str


@cache
def _assets() -> dict[str, _Asset]:
    found: dict[str, _Asset] = {}
    for file in files(__name__).joinpath("static").iterdir():
        kind = _TYPES.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            body = file.read_bytes()
            found[file.name] = _Asset(body, kind, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return found


def _answer(request: Request, name: str) -> Response:
    asset = _assets().get(name)
    if asset is None:
        return Response(status_code=404)
    headers = {
        "etag": asset.etag,
        "cache-control": "no-cache",
        "content-security-policy": CSP,
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
    }
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    return Response(asset.body, headers=headers, media_type=asset.content_type)


async def _page(request: Request) -> Response:
    return _answer(request, "index.html")


async def _file(request: Request) -> Response:
    return _answer(request, request.path_params["name"])


def routes() -> list[Route]:
    """``/``, and ``/console/<file>`` for what the page loads."""
    return [Route("/", _page), Route("/console/{name}", _file)]
