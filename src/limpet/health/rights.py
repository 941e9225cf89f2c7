"""Whether this user may do what Limpet does, tried with commands that change nothing.

ACL DRYRUN would need a right of its own that nobody should have to give, so each command is really sent, in a form that
writes nothing: an update of what is not there, a removal of nothing. An ACL is looked at before anything else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from redis.exceptions import RedisError

from limpet.errors import StoreUnavailable
from limpet.health.asking import Asking, reason
from limpet.health.clocks import sampled
from limpet.health.model import Check
from limpet.keys import Keyspace

if TYPE_CHECKING:
    from limpet.executors.durable import Promise

__all__ = ["rights"]

READINESS_SAMPLE: Final = 3
SUBSCRIBE_S: Final = 1.0
_REFUSALS: Final = {
    "OOM": "it is out of memory; raise maxmemory",
    "MISCONF": "it cannot save to disk; mend its persistence",
    "NOREPLICAS": "too few replicas are in step (min-replicas-to-write); mend them",
    "READONLY": "it is a replica; point the URL at the primary",
}


class _Try(NamedTuple):
    key: str
    words: tuple[str | int, ...]
    writes: bool = False


def _tries(space: Keyspace, partitions: list[int], promise: Promise | None, thorough: bool) -> list[_Try]:
    """No digest is called ``doctor``, so nothing of anybody's is touched."""
    ours, config = space.config.removesuffix("config") + "doctor", space.config
    found = [
        _Try(config, ("HMGET", config, "schema")),
        _Try(config, ("HGET", config, "schema")),
        _Try(config, ("HLEN", space.workers)),
        _Try(config, ("HGETALL", ours)),
        _Try(config, ("HDEL", ours, "doctor"), writes=True),
        _Try(config, ("PUBLISH", ours, "")),
    ]
    if (
        thorough
    ):  # answered with an error of syntax, which a probe that comes every few seconds should not leave in the statistics
        found.append(_Try(config, ("HSET", ours, "an", "odd", "number"), writes=True))
    for partition in partitions:
        tag = space.clock(partition).removesuffix("clock")
        bound = space.bound(partition)
        found += [
            *(_Try(tag, ("GET", f"{tag}{domain}:doctor")) for domain in ("conv", "sess", "resp")),
            *(_Try(tag, ("SET", f"{tag}{domain}:doctor", "", "XX"), writes=True) for domain in ("conv", "sess", "resp")),
            _Try(tag, ("GET", f"{tag}clock")),
            _Try(tag, ("ZRANGEBYSCORE", bound, 0, 0, "LIMIT", 0, 1)),
            _Try(tag, ("ZRANGE", bound, 0, 0)),
            _Try(tag, ("ZADD", bound, "XX", 0, "doctor"), writes=True),
            _Try(tag, ("ZREM", bound, "doctor"), writes=True),
        ]
        if promise is not None:
            wait = ("WAITAOF", 0, 0, 1) if promise.mode == "aof" else ("WAIT", 0, 1)
            found.append(_Try(tag, wait))
    return found


async def rights(asking: Asking, space: Keyspace, promise: Promise | None, thorough: bool) -> list[Check]:
    """What is missing, named as ``ACL SETUSER`` takes it; and whether writes are refused for another reason."""
    partitions = sampled(space) if thorough else sampled(space, READINESS_SAMPLE)
    tries = _tries(space, partitions, promise, thorough)
    answers = await asyncio.gather(*(_try(asking, each) for each in tries))
    missing: set[str] = set()
    refused = untold = ""
    for each, answer in zip(tries, answers, strict=True):
        if answer.startswith("NOPERM"):
            missing.add(_right(each.words, answer))
        elif each.writes and answer.partition(" ")[0] in _REFUSALS:
            refused = answer.partition(" ")[0]
        elif answer.partition(" ")[0] not in ("", "ERR", "WRONGTYPE", *_REFUSALS):
            untold = answer
    if thorough and (denied := await _subscribe(asking, space.events)):
        missing.add(denied)
    checks = []
    if missing:
        text = (
            f"The store's ACL denies this user {' '.join(sorted(missing))}; add that with ACL SETUSER "
            "(deploy/redis/limpet.acl has all that is needed)."
        )
        checks.append(Check("rights", "fail", text))
    elif untold:
        checks.append(Check("rights", "warn", f"Not all could be tried: {untold}"))
    else:
        checks.append(Check("rights", "ok", "This user may do all that Limpet does."))
    if refused:
        text = f"The store refuses writes: {_REFUSALS[refused]}."
        checks.append(Check("writes", "fail" if thorough else "warn", text))
    return checks


async def _try(asking: Asking, each: _Try) -> str:
    """ "" or the server's refusal."""
    try:
        await asking.at(each.key, *each.words)
    except StoreUnavailable as error:
        return reason(error)
    return ""


def _right(words: tuple[str | int, ...], answer: str) -> str:
    """The right that is missing. Servers differ in their words, all of them say what kind it is."""
    text = answer.lower()
    if "channel" in text:
        return "&limpet:*"
    if "key" in text:
        return "~limpet:*"
    return f"+{str(words[0]).lower()}"


async def _subscribe(asking: Asking, channel: str) -> str:
    """Pub/sub has a connection of its own. What cannot be reached is told by other checks."""
    try:
        async with asyncio.timeout(min(SUBSCRIBE_S, asking.left_s())):
            client = await asking.executor.topology.client()
            try:
                async with client.pubsub() as pubsub:
                    await pubsub.subscribe(channel)
                    await pubsub.get_message(timeout=SUBSCRIBE_S)
                    await pubsub.unsubscribe(channel)
            finally:
                await client.aclose()
    except RedisError as error:
        text = str(error).lower()
        if "permission" in text:
            return "&limpet:*" if "channel" in text else "+subscribe"
    except (StoreUnavailable, OSError, TimeoutError):
        return ""
    return ""
