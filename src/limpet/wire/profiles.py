"""Where each provider wants the scope: the table of the design, section 6, as data.

A profile is a list of fields, a field is one place (a header or a body path) and what belongs there. :mod:`limpet.wire.stamp`
is the only code that acts on them, so a provider is added by adding a row here, or in configuration
(:mod:`limpet.wire.config`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from limpet.errors import InvalidRequest, UnknownProfile

__all__ = ["PROFILES", "Field", "Profile", "When", "find_profile", "profile_table"]

Value = Literal["scope", "session_id", "parent_scope", "worker", "dp_rank", "ttl"]


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a field has a value at all; every condition that is set must hold.

    ``model``: globs for the body's ``model``, compared without case. ``action``: of the turn's binding, ``none`` for a turn
    without one. ``final``: the last turn or not. ``fork``: a turn with a parent scope or not.
    """

    model: tuple[str, ...] = ()
    action: tuple[Literal["bind", "continue", "wait", "none"], ...] = ()
    final: bool | None = None
    fork: bool | None = None


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One place on the wire: ``header``, or ``body`` (a path with dots), exactly one of the two.

    ``value`` is what belongs there, ``literal`` a fixed text instead. ``do``:

    * ``set``: write it, unless the caller has written a value of their own;
    * ``keep``: never add it, only put it in the place of the key (an owned field);
    * ``add``: the field is a list that gains the value, after ``prefix``, once;
    * ``remove``: the provider refuses this field, whoever wrote it.

    ``limit`` is in characters, in bytes of UTF-8 with ``limit_bytes``; ``charset`` is a regular expression's class that every
    character must match. What breaks either is hashed. ``nonempty``: an empty string there is no value. ``fenced``: after a
    rebind the value gets a suffix from the fence. ``beside``: only beside this header, and only if that holds our value.
    """

    header: str | None = None
    body: str | None = None
    value: Value = "scope"
    literal: str | None = None
    do: Literal["set", "keep", "add", "remove"] = "set"
    prefix: str = ""
    limit: int | None = None
    limit_bytes: bool = False
    charset: str | None = None
    nonempty: bool = False
    fenced: bool = False
    beside: str | None = None
    when: When = When()

    @property
    def path(self) -> tuple[str, ...]:
        """The body path as names; empty for a header."""
        return _names(self.body) if self.body is not None else ()


@lru_cache(maxsize=256)
def _names(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


class Profile(msgspec.Struct, frozen=True, cache_hash=True):
    """A named list of fields. Immutable: :meth:`with_options` makes another."""

    name: str
    fields: tuple[Field, ...]

    def with_options(self, *, value: str | None = None, open: bool | None = None) -> Profile:
        """The profile with the options of the two Dynamo rows.

        ``value``: ``scope`` (the default) or ``session_id`` (the caller's own id goes on the wire verbatim). ``open``: the
        claim's turn says ``open`` instead of ``bind``, as Dynamo 1.1 and 1.2 want it. Raises
        :class:`~limpet.errors.InvalidRequest` where the profile does not have the option.
        """
        fields = self.fields
        if value is not None:
            if value not in ("scope", "session_id"):
                raise InvalidRequest("The option value must be scope or session_id.", field="profile.value")
            if not any(f.fenced for f in fields):
                raise InvalidRequest(f"The profile {self.name} does not have the option value.", field="profile.value")
            fields = tuple(
                msgspec.structs.replace(f, value="session_id" if value == "session_id" else "scope") if f.fenced else f
                for f in fields
            )
        if open is not None:
            if not isinstance(open, bool):
                raise InvalidRequest("The option open must be true or false.", field="profile.open")
            words = ("bind", "open")
            if not any(f.literal in words for f in fields):
                raise InvalidRequest(f"The profile {self.name} does not have the option open.", field="profile.open")
            word = words[open]
            fields = tuple(msgspec.structs.replace(f, literal=word) if f.literal in words else f for f in fields)
        return Profile(self.name, fields)


def _header(name: str, limit: int | None = None, *, when: When | None = None) -> Field:
    return Field(header=name, limit=limit, when=when or When())


def _cache_key(limit: int | None = 64) -> Field:
    return Field(body="prompt_cache_key", limit=limit)


_GROK: Final = When(model=("x-ai/grok-*", "xai/grok-*"))
_FINAL: Final = When(final=True)
_CLAIM: Final = When(action=("bind",))

_DYNAMO: Final = (
    Field(header="X-Dynamo-Session-ID", limit=256, limit_bytes=True, fenced=True),
    Field(header="X-Dynamo-Parent-Session-ID", value="parent_scope", limit=256, limit_bytes=True),
    Field(header="X-Dynamo-Session-Final", literal="true", when=_FINAL),
    # Whoever waits is not bound: the claim may still die, so it goes where the router sends it.
    Field(header="x-worker-instance-id", value="worker", when=When(action=("bind", "continue", "none"))),
    Field(
        header="x-dp-rank",
        value="dp_rank",
        beside="x-worker-instance-id",
        when=When(action=("bind", "continue", "none")),
    ),
    Field(body="nvext.extra_fields", literal="worker_id", do="add", when=_CLAIM),
    Field(body="nvext.session_control", do="remove"),
)

_SESSION_CONTROL: Final = (
    Field(body="nvext.session_control.session_id", limit=256, limit_bytes=True, fenced=True),
    # A single turn that is the first and the last closes: there is nothing to keep a session open for.
    Field(body="nvext.session_control.action", literal="bind", when=When(action=("bind",), final=False)),
    Field(body="nvext.session_control.action", literal="close", when=_FINAL),
    Field(body="nvext.session_control.timeout", value="ttl", when=When(final=False)),
)

_TABLE: Final = (
    Profile("openai-chat", (_cache_key(),)),
    Profile("openai-responses", (_cache_key(),)),
    Profile(
        "codex",
        (
            _cache_key(),
            _header("x-client-request-id", 64),
            Field(header="session_id", value="session_id", do="keep", limit=64),
        ),
    ),
    Profile("openrouter", (Field(body="session_id", limit=256), _header("x-grok-conv-id", 256, when=_GROK))),
    Profile(
        "nous",
        (Field(body="session_id", limit=256), Field(body="tags", do="add", prefix="conversation=", limit=256)),
    ),
    Profile("xai-chat", (_header("x-grok-conv-id"),)),
    Profile("xai-responses", (_header("x-grok-conv-id"), _cache_key(None))),
    Profile("mistral", (_cache_key(), _header("x-affinity", 64))),
    Profile("fireworks", (_cache_key(), _header("x-session-affinity", 64))),
    Profile("deepseek", (Field(body="user_id", limit=512, charset="[A-Za-z0-9_-]"),)),
    Profile("vllm", (Field(body="cache_salt", nonempty=True),)),
    Profile("sglang-gateway", (_header("X-SMG-Routing-Key", 256),)),
    Profile("litellm", (_header("x-litellm-session-id", 256),)),
    Profile("cloudflare", (_header("x-session-affinity", 256),)),
    Profile("deepinfra", (_header("x-session-affinity", 256),)),
    Profile("dynamo", _DYNAMO),
    Profile("dynamo-session-control", _SESSION_CONTROL),
)

PROFILES: Final[Mapping[str, Profile]] = {profile.name: profile for profile in _TABLE}
"""The profiles that come with Limpet, by name."""


def find_profile(spec: str | Profile | Mapping[str, Any], known: Mapping[str, Profile] | None = None) -> Profile:
    """The profile that ``spec`` means: a name, a Profile, or ``{"profile": name, "value": ..., "open": ...}``.

    ``known`` are the user's own, looked up first. Raises :class:`~limpet.errors.UnknownProfile` for a name that nobody
    defined, :class:`~limpet.errors.InvalidRequest` for an option that the profile does not have.
    """
    if isinstance(spec, Profile):
        return spec
    if isinstance(spec, Mapping):
        unknown = set(spec) - {"profile", "value", "open"}
        if unknown:
            raise InvalidRequest("A profile with options has the fields profile, value and open only.", field="profile")
        return find_profile(spec.get("profile", ""), known).with_options(value=spec.get("value"), open=spec.get("open"))
    found = ((known or {}).get(spec) or PROFILES.get(spec)) if isinstance(spec, str) else None
    if found is None:
        names = ", ".join([*PROFILES, *(known or {})])
        raise UnknownProfile(f"There is no such wire profile; the known ones are {names}.", field="profile")
    return found


def profile_table(profiles: Mapping[str, Profile] | None = None) -> list[tuple[str, str, str]]:
    """Rows of (profile, where, limit) for the documentation, made from the data, so that they cannot disagree with it."""
    chosen = (PROFILES if profiles is None else profiles).values()
    return [(p.name, "; ".join(_where(f) for f in p.fields), _limits(p.fields)) for p in chosen]


def _where(field: Field) -> str:
    place = f"header `{field.header}`" if field.header else f"body `{field.body}`"
    what = (
        f"`{field.literal}`"
        if field.literal is not None
        else f"`{field.prefix}<{field.value}>`"
        if field.prefix
        else f"<{field.value}>"
    )
    verb = {"set": "", "keep": " stays", "add": " gains", "remove": " is removed"}[field.do]
    text = place + verb + ("" if field.do == "remove" else f" {what}" if verb else f" = {what}")
    when = field.when
    parts = [f"models {', '.join(f'`{m}`' for m in when.model)}"] if when.model else []
    parts += [f"action {' or '.join(when.action)}"] if when.action else []
    parts += [] if when.final is None else ["the last turn" if when.final else "every turn but the last"]
    parts += [] if when.fork is None else ["forks" if when.fork else "all but forks"]
    return text + (f" ({'; '.join(parts)})" if parts else "")


def _limits(fields: tuple[Field, ...]) -> str:
    texts: list[str] = []
    for f in fields:
        parts = [f"{f.limit} bytes" if f.limit_bytes else str(f.limit)] if f.limit else []
        parts += [f"`{f.charset}`"] if f.charset else []
        parts += ["non-empty"] if f.nonempty else []
        text = ", ".join(parts)
        if text and text not in texts:
            texts.append(text)
    return "; ".join(texts) or "none known"
