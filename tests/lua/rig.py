"""What the tests of the scripts hold in hand: a namespace, an injected clock, and a look behind the scripts' back."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import redis

from limpet.bind import Bind
from limpet.calls import Answer, Call, Target
from limpet.commands import Commands
from limpet.executors.simple import run
from limpet.record import Record, split_reply
from limpet.scripts import script

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
START = 334 * DAY + 11 * HOUR
"""1 December 2026, 11:00 UTC: fourteen digits, like the ticks of today."""
GRANULARITY = 1 * SECOND
RETENTION_MS = 30 * 86_400_000
BIND_TTL, CLAIM_TTL = 300 * SECOND, 10 * SECOND
PAST_ANY_GRACE = 400 * SECOND
SENTINEL = b""
RING = ("request_id", "operation", "epoch", "ordinal", "reason", "previous", "bits", "fence", "worker", "dp_rank")
NEW_RECORD_BODY = [1, "new", 0, -1, "", "", 0, 0, 0, []]
"""ordinal, reason, previous, dp_rank, incarnation, holder, fence, rebound, suspend, ring."""


def packed(
    schema: int = 1,
    mark: int = 0,
    last: int = 0,
    due: int = 0,
    epoch: int = 0,
    keep_ms: int = 1000,
    worker: str = "",
    body: Any = None,
) -> bytes:
    """A record as the scripts would write it, or as they never would."""
    prefix = b"".join(b"\xcf" + value.to_bytes(8, "big") for value in (last, due, epoch, keep_ms))
    name = b"\xda" + len(worker.encode()).to_bytes(2, "big") + worker.encode()
    return bytes((schema, mark)) + prefix + name + msgspec.msgpack.encode(NEW_RECORD_BODY if body is None else body)


def knows_flags(client: redis.Redis) -> bool:
    """Whether the server reads a script's first line ``#!lua flags=...``: 7.0 and later."""
    return int(client.info("server")["redis_version"].partition(".")[0]) >= 7  # type: ignore[index]


class Rig:
    """One namespace. ``now`` is the clock that every call is sent with; :meth:`passes` moves it."""

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        self.client = client
        self.commands = Commands(namespace=namespace, partitions=4, holder="replica-1", retention_ms=RETENTION_MS)
        self.now = START
        self._subscription: Any = None

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()

    def passes(self, microseconds: int) -> int:
        self.now += microseconds
        return self.now

    # -- calls ---------------------------------------------------------------------------------------------------------

    def key(self, text: str = "telegram:dm:42") -> Target:
        return self.commands.declared(text)

    def session(self, text: str = "resp_1") -> Target:
        return self.commands.physical(text)

    def call(self, name: str, target: Target, *args: Any, **kwargs: Any) -> Call[Any]:
        """The call of that name at the rig's time."""
        if name == "resolve":
            kwargs.setdefault("session_id", "resp_1")
            if kwargs.get("bind") is True:
                kwargs["bind"] = Bind()
        return getattr(self.commands, name)(target, *args, **({"now_us": self.now} | kwargs))  # type: ignore[no-any-return]

    def do(self, name: str, target: Target, *args: Any, **kwargs: Any) -> Any:
        """Runs it; what the parser makes of the reply (an Answer, mostly)."""
        return run(self.client, self.call(name, target, *args, **kwargs))

    def reply(self, name: str, target: Target, *args: Any, **kwargs: Any) -> tuple[int, bytes, list[Any] | None]:
        """Runs it; the reply as the script gave it: the time, the record, the outcome."""
        return split_reply(self.sent(self.call(name, target, *args, **kwargs)))

    def sent(self, call: Call[Any]) -> Any:
        """Runs a call; the raw reply, or the typed refusal."""
        return run(self.client, Call(call.script, call.keys, call.args, lambda reply: reply))

    def resolve(self, target: Target, **kwargs: Any) -> Answer:
        answer: Answer = self.do("resolve", target, **kwargs)
        return answer

    def claim(self, target: Target, **kwargs: Any) -> int:
        """Resolves with bind; the fence of the claim."""
        binding = self.resolve(target, bind=kwargs.pop("bind", True), **kwargs).result.binding
        assert binding.action == "bind"
        return int(binding.fence)

    def bind(self, target: Target, worker: str = "w1", **kwargs: Any) -> int:
        """Claims and confirms; the fence."""
        fence = self.claim(target, **kwargs)
        self.do("confirm", target, fence, worker=worker)
        return fence

    def action(self, target: Target, **kwargs: Any) -> str | None:
        """What a resolve with bind is told."""
        binding = self.resolve(target, bind=kwargs.pop("bind", True), **kwargs).result.binding
        return None if binding is None else str(binding.action)

    # -- behind the scripts' back --------------------------------------------------------------------------------------

    def name(self, target: Target) -> str:
        return self.commands.keyspace.record(target.domain, target.digest)

    def clock_name(self, target: Target) -> str:
        return self.commands.keyspace.clock(self.commands.keyspace.partition(target.digest))

    def bound_name(self, target: Target) -> str:
        return self.commands.keyspace.bound(self.commands.keyspace.partition(target.digest))

    def raw(self, target: Target) -> bytes | None:
        return self.client.get(self.name(target))  # type: ignore[return-value]

    def put(self, target: Target, raw: bytes) -> None:
        self.client.set(self.name(target), raw)

    def record(self, target: Target) -> Record:
        raw = self.raw(target)
        assert raw is not None
        return Record(raw)

    def ring(self, target: Target) -> list[SimpleNamespace]:
        entries = msgspec.msgpack.decode(self.record(target).body.ring)
        return [SimpleNamespace(**dict(zip(RING, entry, strict=False))) for entry in entries]

    def ttl_ms(self, target: Target) -> int:
        return int(self.client.pttl(self.name(target)))  # type: ignore[arg-type]

    def clock(self, target: Target) -> int:
        return int(self.client.get(self.clock_name(target)) or 0)  # type: ignore[arg-type]

    def bound(self, target: Target) -> dict[bytes, int]:
        """The partition's index of bindings, its sentinel left out; the sentinel must be there if anything ever was."""
        rows: list[tuple[bytes, float]] = self.client.zrange(self.bound_name(target), 0, -1, withscores=True)  # type: ignore[assignment]
        assert not rows or (SENTINEL, float("inf")) in rows
        return {member: int(score) for member, score in rows if member != SENTINEL}

    def member(self, target: Target, worker: str) -> bytes:
        return f"{target.domain}:{target.digest}:{worker}".encode()

    def snapshot(self) -> dict[bytes, bytes]:
        """Every key of the namespace, as DUMP has it: to show that a call changed nothing."""
        names: list[bytes] = sorted(self.client.keys(f"limpet:{{{self.commands.namespace}[:}}]*"))  # type: ignore[type-var]
        return {name: self.client.dump(name) for name in names}  # type: ignore[misc]

    def listen(self) -> Callable[[], list[list[Any]]]:
        """Subscribes; what it returns gives the events since."""
        self._subscription = self.client.pubsub(ignore_subscribe_messages=True)
        self._subscription.subscribe(self.commands.keyspace.events)
        assert self._subscription.get_message(timeout=5) is None  # the subscription itself

        def events() -> list[list[Any]]:
            # Whatever was published before this marker comes before it.
            self.client.publish(self.commands.keyspace.events, msgspec.msgpack.encode("marker"))
            found = []
            while True:
                message = self._subscription.get_message(timeout=5)
                assert message is not None
                event = msgspec.msgpack.decode(message["data"])
                if event == "marker":
                    return found
                found.append(event)

        return events

    def calls_of(self, call: Call[Any]) -> list[str]:
        """Runs a call under MONITOR; the commands the script itself made, in order, each with its key."""
        self.client.script_load(call.script.text)
        with self.client.monitor() as monitor:
            self.sent(call)
            self.client.echo("end-of-script")
            found = []
            for entry in monitor.listen():
                if "end-of-script" in entry["command"]:
                    return found
                if entry["client_type"] == "lua":
                    words = entry["command"].split(" ")
                    found.append(" ".join(words[:2]))
        raise AssertionError("MONITOR ended")

    def prune(self, target: Target, members: list[bytes]) -> int:
        """Runs binding_prune over these members, as the maintenance does."""
        bound = self.bound_name(target)
        prefix = bound.removesuffix("bound").encode()
        records = tuple((prefix + member[:37]).decode() for member in members)
        head = self.now.to_bytes(8, "big") + GRANULARITY.to_bytes(8, "big")
        return run(self.client, Call(script("binding_prune"), (bound, *records), (head, *members), int))
