"""``limpet resolve``, ``advance`` and ``inspect``: ask the service, print what it says."""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import quote

import msgspec

from limpet.cli.http import Service
from limpet.cli.render import advanced_lines, print_json, print_lines, resolution_lines
from limpet.errors import InvalidRequest
from limpet.results import Advanced, Resolution
from limpet.settings import Settings
from limpet.validate import check_text

__all__ = ["advance", "inspect", "resolve"]


def _service(url: str | None, namespace: str | None) -> Service:
    settings = Settings.load(url=url, namespace=namespace)
    # The header is sent only if somebody chose a namespace: a token has its own, and naming another one is refused.
    chosen = settings.namespace if "namespace" in settings.model_fields_set else None
    return Service(settings.url, settings.secret("token"), chosen, settings.url_ca, settings.url_cert)


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def resolve(
    key: str | None,
    *,
    session_id: str | None,
    kind: str,
    parent_key: str | None,
    policy: dict[str, Any],
    exempt: bool,
    seen_epoch: int | None,
    bind: dict[str, Any] | None,
    request_id: str | None,
    require_durable: bool,
    url: str | None,
    namespace: str | None,
    as_json: bool,
) -> int:
    """Where a turn belongs. Exit code 1 if the answer is degraded: it is safe, and not what was asked for."""
    if key is not None:
        check_text(key, "KEY")
    if session_id is None:
        if key is None or kind != "turn":
            raise InvalidRequest("Without a KEY, and for any --kind but turn, the scope is that of --session-id: give one.")
        session_id = f"cli-{secrets.token_hex(6)}"
    body = _given(
        key=key,
        session_id=check_text(session_id, "--session-id"),
        kind=kind,
        parent_key=parent_key and check_text(parent_key, "--parent-key"),
        policy=policy or None,
        exempt=exempt or None,
        seen_epoch=seen_epoch,
        bind=bind,
        require_durable=require_durable or None,
    )
    patience_s = (bind or {}).get("wait_ms", 0) / 1000
    service = _service(url, namespace)
    found, answer = service.post("/v1/resolve", body, Resolution, request_id=request_id, patience_s=patience_s)
    if as_json:
        print_json(msgspec.Raw(answer))
    else:
        print_lines(key or session_id, resolution_lines(found))
    return 1 if found.degraded else 0


def advance(
    key: str,
    *,
    reason: str,
    expected_epoch: int | None,
    request_id: str | None,
    require_durable: bool,
    url: str | None,
    namespace: str | None,
    as_json: bool,
) -> int:
    """A new conversation begins. Exit code 1 if ``expected_epoch`` was not the current one, so that nothing changed."""
    body = _given(
        key=check_text(key, "KEY"),
        reason=reason,
        expected_epoch=expected_epoch,
        require_durable=require_durable or None,
    )
    found, answer = _service(url, namespace).post("/v1/advance", body, Advanced, request_id=request_id)
    if as_json:
        print_json(msgspec.Raw(answer))
    elif found.applied:
        print_lines(f"{key}: a new conversation ({reason})", advanced_lines(found))
    else:
        print_lines(f"{key}: nothing changed, since another epoch than the expected one is current", advanced_lines(found))
    return 0 if found.applied else 1


def inspect(key: str, *, url: str | None, namespace: str | None, as_json: bool) -> int:
    """The conversation as it is. Touches nothing."""
    path = f"/v1/conversations/{quote(check_text(key, 'KEY'), safe='')}"
    found, answer = _service(url, namespace).get(path, Resolution)
    if as_json:
        print_json(msgspec.Raw(answer))
    else:
        print_lines(key, resolution_lines(found, looking=True))
    return 0
