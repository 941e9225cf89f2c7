"""What one gateway process is set to do, checked once at start-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from limpet.bind import Bind
from limpet.errors import InvalidRequest
from limpet.gateway.identity import Sources
from limpet.gateway.upstreams import Upstream, parse_upstream
from limpet.gateway.vitals import Limits
from limpet.settings import Settings
from limpet.validate import check_text
from limpet.wire import Profile, find_profile, load_profiles

__all__ = ["Options"]

OWN_POOL: Final = "upstreams"
"""Where upstreams are registered if no pool is named. Each gateway then sends to its own upstreams only."""
_ASK: Final = "nvext.extra_fields"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """``router``: the upstreams choose the worker themselves (Dynamo), so they are no workers. ``learns``: the profile asks for
    the worker's id in the answer. ``pool``: where the upstreams are registered; ``open_pool``: it was named, so that whoever else
    is registered there is sent to as well. ``health_path``: from the server's root. ``bind``: what a turn asks
    for. Times in seconds."""

    upstreams: tuple[Upstream, ...]
    pool: str
    open_pool: bool
    limits: Limits
    health_path: str
    health_interval_s: float
    health_timeout_s: float
    profile: Profile
    router: bool
    learns: bool
    sources: Sources
    bind: Bind
    ttl_s: float
    max_body: int
    connect_timeout_s: float
    read_timeout_s: float
    headers: bool
    cache_bust: str
    debug_samples: int
    debug_chars: int

    @staticmethod
    def of(settings: Settings) -> Options:
        """The options that the settings describe.

        Raises:
            InvalidRequest: neither upstream nor pool, no profile, one that is not valid, or an upstream that is named twice.
        """
        if not settings.upstreams and settings.pool is None:
            raise InvalidRequest(
                "The gateway needs at least one --upstream (LIMPET_UPSTREAMS), or a --pool of registered workers (LIMPET_POOL).",
                field="upstreams",
            )
        upstreams = tuple(parse_upstream(text) for text in settings.upstreams)
        if len({each.name for each in upstreams}) != len(upstreams):
            raise InvalidRequest("An upstream is named twice.", field="upstreams")
        if settings.profile is None:
            raise InvalidRequest(
                "The gateway needs a --profile (LIMPET_PROFILE): how its upstreams want the scope.", field="profile"
            )
        profile = find_profile(settings.profile, load_profiles(settings.profiles))
        # The Dynamo rows and what users derive from them are the ones that put a session id with a fence on the wire.
        router = any(field.fenced for field in profile.fields)
        if router and not upstreams:
            raise InvalidRequest(
                f"The upstreams of the profile {settings.profile} are routers, which are no workers of a pool; "
                "name them with --upstream (LIMPET_UPSTREAMS).",
                field="upstreams",
            )
        pool = check_text(settings.pool, "pool") if settings.pool is not None else OWN_POOL
        return Options(
            upstreams=upstreams,
            pool=pool,
            open_pool=settings.pool is not None and not router,
            limits=Limits(
                settings.health_down_after,
                settings.health_up_after,
                settings.eject_after,
                settings.eject_s,
                max(settings.eject_s, settings.eject_max_s),
            ),
            health_path=settings.health_path,
            health_interval_s=settings.health_interval_s,
            health_timeout_s=settings.health_timeout_s,
            profile=profile,
            router=router,
            learns=any(field.body == _ASK and field.do == "add" for field in profile.fields),
            sources=Sources(settings.key_sources),
            bind=Bind(wait_ms=settings.wait_ms) if router else Bind(pool=pool, wait_ms=settings.wait_ms),
            ttl_s=settings.bind_ttl_ms / 1000,
            max_body=settings.max_body_bytes,
            connect_timeout_s=settings.connect_timeout_s,
            read_timeout_s=settings.read_timeout_s,
            headers=settings.gateway_headers,
            cache_bust=settings.cache_bust,
            debug_samples=settings.debug_samples,
            debug_chars=settings.debug_chars,
        )
