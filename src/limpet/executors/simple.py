"""The plainest executor: one blocking redis-py client, one call at a time. For tools, tests and start-up checks."""

from __future__ import annotations

from typing import Any, TypeVar

import redis

from limpet.calls import Call
from limpet.errors import error_for_word

__all__ = ["run"]

T = TypeVar("T")


def run(client: redis.Redis, call: Call[T]) -> T:
    """Sends the call, loading its script where the server lacks it, and parses the reply.

    Raises:
        LimpetError: what the script refused, as its type.
        redis.RedisError: whatever else went wrong.
    """
    reply: Any
    try:
        try:
            reply = client.evalsha(call.script.sha, len(call.keys), *call.keys, *call.args)
        except redis.exceptions.NoScriptError:
            client.script_load(call.script.text)
            reply = client.evalsha(call.script.sha, len(call.keys), *call.keys, *call.args)
    except redis.ResponseError as error:
        typed = error_for_word(str(error))
        if typed is None:
            raise
        raise typed from error
    return call.parse(reply)
