"""Every setting of Limpet, read from flags, ``LIMPET_*`` variables and ``.env`` (design, section 9).

One model for all commands: a flag wins over the environment, the environment over ``.env``, that over the default.
What is wrong is said in one line that names the variable, and never repeats a value (it may be a secret).
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, TypeAlias

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from limpet import settings_text as texts
from limpet.errors import InvalidRequest
from limpet.settings_text import PREFIX
from limpet.validate import check_namespace
from limpet.weak import is_weak, weak_hashes

__all__ = ["DEFAULT_KEY_SOURCES", "Setting", "Settings", "SettingsInvalid", "Token"]

DEFAULT_KEY_SOURCES: Final = (
    "header:X-Limpet-Key",
    "header:X-Hermes-Session-Key",
    "header:X-Session-ID",
    "header:X-Session-Affinity",
    "header:X-Dynamo-Session-ID",
    "header:X-SMG-Routing-Key",
    "header:x-claude-code-session-id",
    "header:session_id",
    "header:session-id",
    "body:session_id",
    "body:prompt_cache_key",
)
"""Where a conversation key is read from, first hit wins (design, section 7)."""

_Names: TypeAlias = Annotated[tuple[str, ...], NoDecode]


class SettingsInvalid(InvalidRequest):
    """A setting is wrong. The message is one line, names the variable, and holds no value."""

    code = "invalid_settings"


class Token(BaseModel):
    """One entry of ``LIMPET_TOKENS``: the SHA-256 of a bearer token, the namespace it opens, and what it may do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    namespace: str = "default"
    rights: frozenset[Literal["resolve", "admin"]] = frozenset({"resolve"})

    def __str__(self) -> str:
        return f"{self.namespace} ({'+'.join(sorted(self.rights, reverse=True))})"

    @field_validator("sha256")
    @classmethod
    def _sha256(cls, value: str) -> str:
        lowered = value.lower()
        if not re.fullmatch("[0-9a-f]{64}", lowered):
            raise ValueError("must be the 64 hex digits of the token's SHA-256, not the token itself")
        if len(set(lowered)) < 4 or lowered in weak_hashes():
            raise ValueError(
                "is a placeholder, or the hash of a token that anyone guesses; make one with limpet config --new-token"
            )
        return lowered

    @field_validator("namespace")
    @classmethod
    def _namespace(cls, value: str) -> str:
        return check_namespace(value)


class Setting(NamedTuple):
    """One row of ``limpet config``. ``value`` is printable: secrets are masked. ``origin`` says where it came from."""

    name: str
    type: str
    default: str
    value: str
    origin: str
    help: str


def _alias(*names: str) -> AliasChoices:
    return AliasChoices(*names)


class Settings(BaseSettings):
    """All settings. Build it with :meth:`load`, which turns every mistake into one :class:`SettingsInvalid`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        validate_default=False,
    )

    redis_url: SecretStr | None = Field(
        None,
        validation_alias=_alias("LIMPET_REDIS_URL", "REDIS_URL"),
        description="Redis or Valkey: redis://, rediss://, unix://, redis+sentinel://, redis+cluster://. "
        "Without it, serve, gateway, demo, doctor, upgrade and chaos run an embedded store. REDIS_URL is read too.",
    )
    namespace: str = Field("default", description="The namespace when neither a token nor a header names one.")
    partitions: int = Field(1024, ge=1, le=16_384, description="Hash-tagged groups of keys; fixed once a namespace is used.")
    retention_s: int = Field(2_592_000, ge=1, le=315_360_000, description="Seconds a record outlives its last activity.")
    touch_granularity_ms: int = Field(
        1000,
        ge=0,
        le=60_000,
        description="A turn writes its activity at most this often; fixed once a namespace is used.",
    )
    deadline_ms: int = Field(250, ge=1, le=60_000, description="How long the store may take before a turn degrades.")
    memo_ttl_ms: int = Field(0, ge=0, le=60_000, description="How long a process may answer from memory; 0 is off.")
    bind_ttl_ms: int = Field(300_000, ge=1000, le=31_536_000_000, description="Idle time after which a binding lapses.")
    claim_ttl_ms: int = Field(10_000, ge=100, le=3_600_000, description="Time a claimer has to confirm.")
    durability: Literal["replica", "aof", "none"] | None = Field(
        None, description="What acknowledges a write before the answer; by default replica where there are replicas."
    )
    durable_replicas: int | None = Field(None, ge=1, le=64, description="Replicas to wait for; by default the most seen.")
    scope_secret: SecretStr | None = Field(None, description="Makes scopes an HMAC, so that keys cannot be guessed from them.")
    holder: str | None = Field(None, description="The name of this replica in claims; by default host and process.")
    key_sources: _Names = Field(DEFAULT_KEY_SOURCES, description="Where a key is read from, first hit wins (header:X or body:x).")
    profile: str | None = Field(None, description="The wire profile of the gateway.")
    profiles: dict[str, Any] = Field({}, description="Your own wire profiles, by name: JSON; see the README.")
    upstreams: _Names = Field(
        (),
        description="The gateway's upstreams: URLs, by commas or as a JSON list; http://a:8000;capacity=4 takes four times the "
        "conversations of http://b:8000. Unless they are routers they register themselves as workers.",
    )
    pool: str | None = Field(
        None,
        description="The pool of workers that the gateway and forward-auth bind to. The gateway's upstreams join it, and it "
        "sends to every worker registered there, callers' credentials included.",
    )
    health_path: str = Field("/health", pattern=r"^/[!-~]*$", description="What the gateway asks upstreams for, from the root.")
    health_interval_s: float = Field(10.0, ge=0, le=3600, description="Between two checks of an upstream; 0 makes none.")
    health_timeout_s: float = Field(2.0, gt=0, le=60, description="How long an upstream may take to answer a check.")
    health_down_after: int = Field(3, ge=1, le=100, description="Failed checks in a row that make an upstream unhealthy.")
    health_up_after: int = Field(2, ge=1, le=100, description="Good checks in a row that make it healthy again.")
    eject_after: int = Field(
        3,
        ge=1,
        le=1000,
        description="Failed requests in a row (5xx, reset, timeout) that eject an upstream; a refused connection does at once.",
    )
    eject_s: float = Field(0.5, gt=0, le=3600, description="How long the first ejection lasts; each further one twice as long.")
    eject_max_s: float = Field(15.0, gt=0, le=3600, description="The longest ejection.")
    wait_ms: int = Field(30_000, ge=0, le=30_000, description="How long the gateway waits for another's claim.")
    max_body_bytes: int = Field(67_108_864, ge=1024, le=2**31, description="The largest body that the gateway stamps.")
    connect_timeout_s: float = Field(5.0, gt=0, le=600, description="How long the gateway tries to reach an upstream.")
    read_timeout_s: float = Field(600.0, gt=0, le=86_400, description="The longest silence of an upstream.")
    gateway_headers: bool = Field(True, description="Answer with X-Limpet-Epoch and X-Limpet-Action.")
    cache_bust: Literal["none", "system_prefix", "system_suffix", "first_turn_prefix", "first_turn_suffix"] = Field(
        "none", description="Where a cache-bust marker goes (benchmark replays)."
    )
    debug_samples: int = Field(0, ge=0, le=10_000, description="Turns of each session to sample for debugging.")
    debug_chars: int = Field(0, ge=0, le=65_536, description="Characters of the body in a debug sample.")
    quota_per_s: float = Field(0, ge=0, le=1e9, description="Requests a second of a namespace to a process; 0 is no bound.")
    quota_burst: int = Field(0, ge=0, le=10**9, description="Requests that it may ask at once; 0 is what comes in a second.")
    tokens: tuple[Token, ...] = Field((), description='JSON: [{"sha256": "...", "namespace": "prod", "rights": ["resolve"]}].')
    metrics_token: SecretStr | None = Field(None, description="Bearer token that /metrics then asks for.")
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int | None = Field(None, ge=0, le=65_535, description="Port to listen on: 5467 for serve, 5468 for gateway.")
    workers: int = Field(1, ge=1, le=256, description="Server processes.")
    data_dir: Path | None = Field(None, description="Where the embedded store keeps its data.")
    insecure: bool = Field(False, description="Listen off loopback without tokens.")
    tls_cert: Path | None = Field(None, description="PEM file: the certificate, and its chain; serve and gateway then speak TLS.")
    tls_key: Path | None = Field(None, description="PEM file: the private key of that certificate.")
    tls_client_ca: Path | None = Field(None, description="PEM file: CAs; callers must show a certificate of one (mutual TLS).")
    max_connections: int = Field(4096, ge=1, le=1_000_000, description="Connections to a process at once; more get a 503.")
    head_timeout_s: float = Field(10, gt=0, le=3600, description="Time that a client has to send a request's head.")
    body_timeout_s: float = Field(
        30, gt=0, le=3600, description="A body that brings less than 512 bytes a second over this time is given up."
    )
    shutdown_grace_s: int = Field(35, ge=0, le=3600, description="How long a shutdown waits for requests in flight.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least severe log line shown.")
    url: str = Field("http://127.0.0.1:5467", description="The service that resolve, advance, inspect ... talk to.")
    token: SecretStr | None = Field(None, description="The bearer token that those commands send.")
    url_ca: Path | None = Field(
        None, description="PEM file: the CA of an https LIMPET_URL; by default the system's, or SSL_CERT_FILE."
    )
    url_cert: Path | None = Field(None, description="PEM file: certificate and key that those commands show (mutual TLS).")

    _flags: frozenset[str] = PrivateAttr(default=frozenset())

    @field_validator("namespace")
    @classmethod
    def _check_namespace(cls, value: str) -> str:
        return check_namespace(value)

    @field_validator("key_sources", "upstreams", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            try:
                return tuple(json.loads(value))
            except ValueError:
                raise ValueError("must be a JSON list of strings, or names separated by commas") from None
        return tuple(part.strip() for part in value.split(",") if part.strip())

    @field_validator("key_sources")
    @classmethod
    def _sources(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(re.fullmatch(r"(header|body):[!-~]+", source) for source in value):
            raise ValueError("must hold header:<name> or body:<name>")
        return value

    @field_validator("metrics_token")
    @classmethod
    def _strong(cls, value: SecretStr | None) -> SecretStr | None:
        plain = value.get_secret_value() if value is not None else ""
        if value is not None and (len(plain) < 8 or is_weak(plain)):
            raise ValueError("is guessed by anyone: take 8 characters or more, for instance from limpet config --new-token")
        return value

    @field_validator("tokens")
    @classmethod
    def _unique(cls, value: tuple[Token, ...]) -> tuple[Token, ...]:
        if len({token.sha256 for token in value}) != len(value):
            raise ValueError("names one token twice; a token opens one namespace")
        return value

    @classmethod
    def load(cls, **flags: Any) -> Self:
        """Read flags (``None`` means "not given"), environment and ``.env``.

        Raises:
            SettingsInvalid: with one line that names each variable at fault.
        """
        given = {name: value for name, value in flags.items() if value is not None}
        unknown = sorted(given.keys() - cls.model_fields.keys())
        if unknown:
            raise SettingsInvalid(f"There is no setting named {', '.join(unknown)}.")
        try:
            settings = cls(**given)
        except ValidationError as error:
            raise SettingsInvalid(texts.explain(error)) from None
        except SettingsError as error:
            raise SettingsInvalid(texts.explain_source(error)) from None
        except UnicodeDecodeError:
            raise SettingsInvalid("The file .env is not UTF-8; save it as UTF-8.") from None
        settings._flags = frozenset(given)
        return settings

    def secret(self, name: str) -> str | None:
        """The plain value of a secret setting, or None."""
        value: SecretStr | None = getattr(self, name)
        return None if value is None else value.get_secret_value()

    @property
    def off_loopback(self) -> bool:
        """Whether ``host`` can be reached from other machines."""
        if self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return True

    def describe(self) -> list[Setting]:
        """One row per setting, for ``limpet config`` and the README; secrets are masked."""
        file = texts.dotenv()
        return [
            Setting(
                name=texts.variable(name, field),
                type=texts.type_name(field),
                default=texts.show(name, field.default),
                value=texts.show(name, getattr(self, name)),
                origin=self._origin(name, field, file),
                help=field.description or "",
            )
            for name, field in type(self).model_fields.items()
        ]

    def unknown_variables(self) -> list[str]:
        """``LIMPET_*`` names in the environment or ``.env`` that are no setting: most likely typing mistakes."""
        known = {variable for name, field in type(self).model_fields.items() for variable in texts.variables(name, field)}
        seen = {name.upper() for name in (*os.environ, *texts.dotenv()) if name.upper().startswith(PREFIX)}
        return sorted(seen - known)

    def to_environ(self) -> dict[str, str]:
        """The variables that give a child process these settings, secrets included (for worker processes).

        Defaults are written out too, so that the child's own environment and ``.env`` change nothing.
        """
        out: dict[str, str] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value is not None:
                out[texts.variable(name, field)] = texts.plain(value)
        return out

    def _origin(self, name: str, field: FieldInfo, file: Mapping[str, object]) -> str:
        if name in self._flags:
            return "flag"
        environ = {key.upper() for key, value in os.environ.items() if value}
        for variable in texts.variables(name, field):
            if variable in environ:
                return f"environment {variable}"
        for variable in texts.variables(name, field):
            if variable in file:
                return f".env {variable}"
        return "default"
