"""Settings as text: their variables, their values with secrets masked, and what is wrong with them in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from dotenv import dotenv_values
from pydantic import AliasChoices, BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import SettingsError

__all__ = ["PREFIX", "dotenv", "explain", "explain_source", "plain", "show", "type_name", "variable", "variables"]

PREFIX: Final = "LIMPET_"
_MASK: Final = "********"
_USERINFO: Final = re.compile("//.*@")  # to the last @: a password may hold one that should have been escaped
_QUERY_SECRET: Final = re.compile(r"(password=)[^&]*", re.IGNORECASE)


def variables(name: str, field: FieldInfo) -> tuple[str, ...]:
    """The environment variables that a setting is read from, the one that wins first."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return tuple(str(choice) for choice in alias.choices)
    return (PREFIX + name.upper(),)


def variable(name: str, field: FieldInfo) -> str:
    """The variable that names a setting."""
    return variables(name, field)[0]


def dotenv() -> dict[str, object]:
    """What ``.env`` sets, names in upper case."""
    values = dotenv_values(".env", encoding="utf-8") if Path(".env").is_file() else {}
    return {name.upper(): value for name, value in values.items() if value}


def type_name(field: FieldInfo) -> str:
    """The type of a setting, for people."""
    text = field.annotation.__name__ if isinstance(field.annotation, type) else str(field.annotation)
    text = re.sub(r"\b(?:typing|pathlib|pydantic\.types|limpet\.settings)\.", "", text).replace("SecretStr", "secret")
    text = re.sub(r"Literal\[([^]]*)\]", lambda match: match[1].replace("'", "").replace(", ", "|"), text)
    text = re.sub(r"Optional\[(.*)\]", r"\1", text)
    text = text.replace(" | None", "").replace("tuple[str, ...]", "list").replace("tuple[Token, ...]", "JSON list")
    return text.replace("dict[str, Any]", "JSON")


def show(name: str, value: object) -> str:
    """A value as it may be printed: secrets masked, also those inside a URL."""
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        if name != "redis_url":
            return _MASK
        masked = _USERINFO.sub(f"//{_MASK}@", value.get_secret_value())
        return _QUERY_SECRET.sub(rf"\1{_MASK}", masked)
    if isinstance(value, dict):
        return json.dumps(value) if value else ""
    if isinstance(value, tuple):
        return ",".join(_USERINFO.sub(f"//{_MASK}@", str(part)) for part in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def plain(value: object) -> str:
    """A value as a variable holds it, secrets included."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, tuple):
        return json.dumps([part.model_dump(mode="json") if isinstance(part, BaseModel) else part for part in value])
    return str(value).lower() if isinstance(value, bool) else str(value)


def explain(error: ValidationError) -> str:
    """One line for all of pydantic's findings. Only their messages and places are used, never their inputs."""
    lines = []
    for finding in error.errors(include_url=False, include_input=False, include_context=False):
        place = [str(part) for part in finding["loc"]]
        head = place[0] if place else "settings"
        name = head if head.isupper() else PREFIX + head.upper()
        inner = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in place[1:])
        message = finding["msg"].removeprefix("Value error, ")
        lines.append(f"{name}{inner}: {message[:1].lower()}{message[1:].rstrip('.')}")
    return "; ".join(lines) + "."


def explain_source(error: SettingsError) -> str:
    """The source could not be decoded: only a JSON setting can do that."""
    match = re.search(r'field "(\w+)"', str(error))
    name = PREFIX + match[1].upper() if match else "a setting"
    return f"{name}: must be JSON, and is not; check its quotes and brackets."
