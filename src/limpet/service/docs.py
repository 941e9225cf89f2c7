"""``/docs``: one page, made from the OpenAPI document, that needs no script and no other host."""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any, Final

from limpet.service.openapi import document

__all__ = ["CSP", "page"]

CSP: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"

_STYLE: Final = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--accent:#0a7d6b}
body{font:16px/1.55 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1.5rem}
h1{margin:0}h2{margin:2.2rem 0 .5rem;border-bottom:1px solid var(--line)}
code,pre{font:14px/1.5 ui-monospace,monospace;background:var(--soft);border-radius:4px}
code{padding:.1em .3em}pre{padding:.8rem;overflow-x:auto}
details{border:1px solid var(--line);border-radius:6px;margin:.5rem 0;padding:.5rem .8rem}
summary{cursor:pointer}b.m{display:inline-block;min-width:4.2rem;color:var(--accent)}
table{border-collapse:collapse;width:100%;margin:.5rem 0}
td,th{border-top:1px solid var(--line);padding:.3rem .6rem .3rem 0;text-align:left;vertical-align:top}
:target{outline:2px solid var(--accent)}
"""

_EXAMPLE: Final = """curl -s {url}/v1/resolve -H 'Content-Type: application/json' \\
  -d '{{"key": "telegram:dm:42", "session_id": "resp_9", "bind": true}}'"""


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{escape(name)}">{escape(name)}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(part) for part in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    bounds = [
        f"{word} {schema[name]}"
        for name, word in (("minimum", "from"), ("maximum", "to"), ("minLength", "length from"), ("maxLength", "to"))
        if name in schema
    ]
    extra = ", ".join(filter(None, [" ".join(bounds), str(schema.get("description", ""))]))
    return escape(kind) + (f" <small>({escape(extra)})</small>" if extra else "")


def _fields(schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code>{' *' if name in required else ''}</td><td>{_type(field)}</td></tr>"
        for name, field in schema.get("properties", {}).items()
    )
    return f"<table>{rows}</table>" if rows else ""


def _route(method: str, path: str, operation: dict[str, Any]) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    answers = operation["responses"]["200"]["content"]
    answer = next(iter(answers.values()))["schema"]
    parameters = "".join(
        f"<tr><td><code>{p['name']}</code></td><td>{p['in']}</td><td>{escape(p.get('description', ''))}</td></tr>"
        for p in operation.get("parameters", ())
    )
    return (
        f"<details><summary><b class=m>{method.upper()}</b> <code>{escape(path)}</code> "
        f"{escape(operation['summary'])}</summary>"
        + (f"<p>Body: {_type(body)}</p>" if body else "")
        + f"<p>Answer: {_type(answer)}</p>"
        + (f"<table>{parameters}</table>" if parameters else "")
        + "</details>"
    )


@cache
def page(url: str = "http://127.0.0.1:5467") -> bytes:
    """The page. ``url`` is what its example calls."""
    spec = document()
    routes = "".join(
        _route(method, path, operation) for path, methods in spec["paths"].items() for method, operation in methods.items()
    )
    schemas = "".join(
        f"<h3 id='{escape(name)}'>{escape(name)}</h3><p>{escape(schema.get('description', ''))}</p>{_fields(schema)}"
        for name, schema in sorted(spec["components"]["schemas"].items())
    )
    codes = "".join(
        f"<tr id='{escape(code)}'><td><code>{escape(code)}</code></td><td>{escape(text)}</td></tr>"
        for code, text in spec["x-problem-codes"].items()
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Limpet API</title><style>{_STYLE}</style><h1>Limpet</h1>"
        f"<p>{escape(spec['info']['description'])} Version {escape(spec['info']['version'])}. "
        "Machines read <a href='openapi.json'>openapi.json</a>.</p>"
        f"<pre>{escape(_EXAMPLE.format(url=url))}</pre>"
        f"<h2>Routes</h2>{routes}<h2>Problems</h2><table>{codes}</table><h2>Types</h2>{schemas}</html>"
    ).encode()
