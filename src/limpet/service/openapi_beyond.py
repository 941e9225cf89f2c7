"""The part of ``/openapi.json`` that describes workers, events, history and stats."""

from __future__ import annotations

from typing import Any, Final

from limpet.service.drains import Drain
from limpet.service.feed import Told
from limpet.service.history import History
from limpet.service.stats import StatsDocument
from limpet.service.workers import HeartbeatRequest, RegisterRequest, WorkerList, WorkerView
from limpet.workers import Worker

__all__ = ["TYPES", "paths"]

TYPES: Final[tuple[type, ...]] = (
    Drain, HeartbeatRequest, History, RegisterRequest, StatsDocument, Told, Worker, WorkerList, WorkerView,
)  # fmt: skip
_MEDIA: Final = ("application/json", "application/msgpack")
_EITHER: Final = "Needs the right resolve or admin."
_ADMIN: Final = "Needs the right admin."


def paths(schema: dict[Any, dict[str, Any]], errors: dict[str, Any], namespace: dict[str, Any]) -> dict[str, Any]:
    """Path -> operations. ``schema`` refers to each of TYPES."""

    def operation(
        name: str,
        summary: str,
        rights: str,
        answer: type,
        *parameters: dict[str, Any],
        body: type | None = None,
        needed: bool = True,
    ) -> dict[str, Any]:
        found: dict[str, Any] = {
            "summary": f"{summary} {rights}",
            "operationId": name,
            "security": [{"bearer": []}],
            "parameters": [*parameters, namespace],
            "responses": {"200": {"description": "OK", "content": {media: {"schema": schema[answer]} for media in _MEDIA}}}
            | errors,
        }
        if body is not None:
            found["requestBody"] = {"required": needed, "content": {media: {"schema": schema[body]} for media in _MEDIA}}
        return found

    worker = _in_path("id", "The worker's name, percent-encoded, slashes too.")
    key = _in_path("key", "Percent-encoded.")
    at = "/v1/workers/{id}"
    return {
        "/v1/workers": {"get": operation("workers_get", "Every worker.", _EITHER, WorkerList)},
        at: {
            "get": operation("worker_get", "A worker.", _EITHER, WorkerView, worker),
            "put": operation("worker_put", "A worker comes, or comes back.", _ADMIN, Worker, worker, body=RegisterRequest),
            "delete": operation("worker_delete", "A worker is taken out.", _ADMIN, Worker, worker),
        },
        f"{at}/heartbeat": {
            "post": operation(
                "worker_heartbeat", "A worker is alive.", _EITHER, Worker, worker, body=HeartbeatRequest, needed=False
            )
        },
        f"{at}/drain": {
            "post": operation("worker_drain", "Start, or go on with, taking its bindings off a worker.", _ADMIN, Drain, worker),
            "get": operation("worker_drain_get", "How far a drain is.", _EITHER, Drain, worker),
        },
        f"{at}/undrain": {"post": operation("worker_undrain", "A worker may be proposed again.", _ADMIN, Worker, worker)},
        "/v1/history/{key}": {"get": operation("history_get", "What is known of a conversation's past.", _EITHER, History, key)},
        "/v1/stats": {"get": operation("stats_get", "The counters.", _ADMIN, StatsDocument)},
        "/v1/events": {"get": _events(schema[Told], errors, namespace)},
    }


def _in_path(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": text}


def _events(event: dict[str, Any], errors: dict[str, Any], namespace: dict[str, Any]) -> dict[str, Any]:
    text = (
        "Server-Sent Events; the data of each is a Told. Ids belong to one process: an id that it does not know, or is too old, "
        "is answered with an event `reset`."
    )
    kind = {
        "name": "kind",
        "in": "query",
        "required": False,
        "schema": {"type": "string"},
        "description": "advance, bind, rebind, release, suspend, forget, worker, drain: one or more, by commas.",
    }
    last = {
        "name": "Last-Event-ID",
        "in": "header",
        "required": False,
        "schema": {"type": "string"},
        "description": "Where to go on.",
    }
    return {
        "summary": f"What happens, as it happens. {_EITHER}",
        "description": text,
        "operationId": "events_get",
        "security": [{"bearer": []}],
        "parameters": [kind, last, namespace],
        "responses": {"200": {"description": text, "content": {"text/event-stream": {"schema": event}}}} | errors,
    }
