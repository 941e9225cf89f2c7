"""``/openapi.json``: generated from the types that the service really decodes, so it cannot drift from them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any, Final

import msgspec

from limpet import results
from limpet.service import openapi_beyond
from limpet.service.operations import HOT
from limpet.service.problems import CODES, Problem

__all__ = ["document", "encoded"]

_REF: Final = "#/components/schemas/{name}"
_MEDIA: Final = ("application/json", "application/msgpack")


class ReadinessCheck(msgspec.Struct, frozen=True):
    """One check: ``level`` is ok, warn or fail."""

    name: str
    level: str
    message: str


class Readiness(msgspec.Struct, frozen=True):
    """Whether this process can do its work."""

    ok: bool
    checks: list[ReadinessCheck]


def _header(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}


_NAMESPACE: Final = _header("X-Limpet-Namespace", "The namespace, where no tokens are configured.")
_IDEMPOTENCY: Final = _header("Idempotency-Key", "A retry with the same value returns the first result.")
_DURABLE: Final = _header("X-Limpet-Require-Durable", "1: a write that no replica acknowledged is answered 503.")


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {media: {"schema": schema} for media in _MEDIA}


def _errors() -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": {"$ref": _REF.format(name="Problem")}}}
    return {"default": {"description": "A problem; look at its `code`.", "content": problem}}


def _get(summary: str, answer: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": "OK", "content": answer}} | _errors()} | more


@cache
def document() -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    types: list[Any] = [Problem, Readiness, results.Resolution, results.Forgotten, *openapi_beyond.TYPES]
    for operation in HOT.values():
        types += [operation.request, operation.answer]
    types = list(dict.fromkeys(types))
    shapes, components = msgspec.json.schema_components(types, ref_template=_REF)
    schema = dict(zip(types, shapes, strict=True))
    paths: dict[str, Any] = {}
    for path, operation in HOT.items():
        paths[path] = {
            "post": {
                "summary": (operation.request.__doc__ or "").strip().split("\n")[0],
                "operationId": path.removeprefix("/v1/").replace("/", "_"),
                "security": [{"bearer": []}],
                "parameters": [_NAMESPACE, _IDEMPOTENCY, _DURABLE],
                "requestBody": {"required": True, "content": _content(schema[operation.request])},
                "responses": {"200": {"description": "OK", "content": _content(schema[operation.answer])}} | _errors(),
            }
        }
    key = {
        "name": "key",
        "in": "path",
        "required": True,
        "schema": {"type": "string"},
        "description": "Percent-encoded.",
    }
    epoch = {"name": "expected_epoch", "in": "query", "required": False, "schema": {"type": "integer", "minimum": 1}}
    paths["/v1/conversations/{key}"] = {
        "get": _get(
            "Look at a conversation; touches nothing.",
            _content(schema[results.Resolution]),
            operationId="conversation_get",
            security=[{"bearer": []}],
            parameters=[key, _NAMESPACE],
        ),
        "delete": _get(
            "Forget a conversation; its epoch is not forgotten. Needs the right admin.",
            _content(schema[results.Forgotten]),
            operationId="conversation_delete",
            security=[{"bearer": []}],
            parameters=[key, epoch, _NAMESPACE, _IDEMPOTENCY],
        ),
    }
    paths |= openapi_beyond.paths(schema, _errors(), _NAMESPACE)
    ready = {"application/json": {"schema": schema[Readiness]}}
    text = {"text/plain": {"schema": {"type": "string"}}}
    paths["/livez"] = {"get": _get("The process runs.", {"application/json": {"schema": {"type": "object"}}})}
    paths["/readyz"] = {"get": _get("The process can do its work; 503 if not.", ready)}
    paths["/metrics"] = {"get": _get("Prometheus metrics.", text)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Limpet",
            "version": version("limpet"),
            "description": "One epoch, one scope, one bind, everywhere. JSON or MessagePack, as the headers say.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "x-problem-codes": CODES,
    }


@cache
def encoded() -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(document())
