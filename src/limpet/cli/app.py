"""The commands: their options and their help. What they do is imported when they run, so that help is quick."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["LogLevel", "TlsCert", "TlsClientCa", "TlsKey", "app"]

app = typer.Typer(
    name="limpet",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 it worked, 1 it did not, 2 wrong usage. Settings are LIMPET_* variables: limpet config.",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The service to ask [LIMPET_URL, or http://127.0.0.1:5467].", show_default=False),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", metavar="NAME", help="The tenant [LIMPET_NAMESPACE, or the token's own].", show_default=False
    ),
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The conversation key that the host declares.")]
RequestId = Annotated[
    str | None,
    typer.Option(
        metavar="ID", help="Makes a retry safe: a repeated call with this id gets the first answer.", show_default=False
    ),
]
Durable = Annotated[bool, typer.Option("--require-durable", help="Fail unless a replica of the store has it too.")]

TlsCert = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Speak TLS with this certificate (chain), a PEM file [LIMPET_TLS_CERT].", show_default=False
    ),
]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key [LIMPET_TLS_KEY].", show_default=False)]
TlsClientCa = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Callers must show a certificate of this CA (mutual TLS) [LIMPET_TLS_CLIENT_CA].", show_default=False
    ),
]


class Kind(StrEnum):
    """What a turn is to its conversation."""

    turn = "turn"
    fork = "fork"
    delegate = "delegate"
    tool = "tool"
    background = "background"


class LogLevel(StrEnum):
    """The least severe log line shown."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def _version(wanted: bool) -> None:
    if wanted:
        import limpet

        typer.echo(f"limpet {limpet.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Keeps every turn of a conversation on one cache bucket and one worker, whichever gateway replica it arrives at.

    \b
    Begin here:
      limpet demo                   see it work, with nothing to set up
      limpet serve                  run the service, on a store of its own
      limpet resolve my-chat        ask it where a turn of my-chat belongs
    """


@app.command(short_help="See it work: four gateways, one store, with and without.")
def demo(
    conversations: Annotated[int, typer.Option(min=10, max=5000, metavar="N", help="How many keys are spoken to.")] = 300,
    replay: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Send these recorded requests instead, a JSON object a line: {"path": "/v1/chat/completions", '
            '"headers": [["X-Session-ID", "s1"]], "body": {}}.',
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Four gateways, one store, a few hundred conversations: with Limpet and without.

    Starts a throw-away store and four gateway processes, sends first turns to all of them at once, a new session id with
    every response, /new and idle resets, and kills one gateway in the middle of a claim. Then counts what was answered.
    Exits with 1 if a guarantee did not hold.

    \b
    Examples:
      limpet demo
      limpet demo --replay requests.jsonl --json
    """
    from limpet.cli.demo import demo as run

    return run(conversations=conversations, replay=replay, as_json=as_json)


@app.command(short_help="Run the HTTP service.")
def serve(
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Address to listen on [LIMPET_HOST, or 127.0.0.1].", show_default=False)
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Port to listen on [LIMPET_PORT, or 5467].", show_default=False)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Server processes [LIMPET_WORKERS, or 1].", show_default=False)
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the embedded store keeps its data.", show_default=False)
    ] = None,
    memo_ttl_ms: Annotated[
        int | None,
        typer.Option(
            metavar="MS", help="How long a process may answer from memory [LIMPET_MEMO_TTL_MS, or 0: never].", show_default=False
        ),
    ] = None,
    deadline_ms: Annotated[
        int | None,
        typer.Option(
            metavar="MS",
            help="How long the store may take before a turn degrades [LIMPET_DEADLINE_MS, or 250].",
            show_default=False,
        ),
    ] = None,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(metavar="LEVEL", help="The least severe log line: debug, info, warning or error.", show_default=False),
    ] = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Listen off loopback without LIMPET_TOKENS.")] = False,
) -> int:
    """Run the HTTP service.

    Without LIMPET_REDIS_URL (or REDIS_URL) it runs its own Valkey, append-only file on, in the data directory; a second
    limpet serve on the same directory shares it. Options win over LIMPET_* variables, those over .env.

    \b
    Examples:
      limpet serve
      LIMPET_REDIS_URL=rediss://cache:6379 limpet serve --host 0.0.0.0 --workers 4   (with LIMPET_TOKENS set)
    """
    from limpet.cli.serve import serve as run

    return run(
        host=host,
        port=port,
        workers=workers,
        data_dir=data_dir,
        memo_ttl_ms=memo_ttl_ms,
        deadline_ms=deadline_ms,
        log_level=log_level and log_level.value,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        insecure=insecure or None,
    )


@app.command(short_help="Ask where a turn belongs.")
def resolve(
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="The conversation key that the host declares.", show_default=False)
    ] = None,
    session_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The caller's own id, perhaps new with every response.", show_default=False)
    ] = None,
    kind: Annotated[
        Kind,
        typer.Option(
            metavar="KIND", help="turn, fork, delegate, tool or background; all but turn keep to their session's own scope."
        ),
    ] = Kind.turn,
    parent_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="For a fork: whose scope to show beside.", show_default=False)
    ] = None,
    idle_s: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="A silence this long begins a new conversation.", show_default=False)
    ] = None,
    daily_at: Annotated[
        str | None, typer.Option(metavar="HH:MM", help="So does the first turn after this time of day...", show_default=False)
    ] = None,
    tz: Annotated[
        str | None, typer.Option(metavar="ZONE", help="...in this zone, as in Europe/Paris.", show_default=False)
    ] = None,
    exempt: Annotated[bool, typer.Option("--exempt", help="Neither idle nor daily may fire.")] = False,
    seen_epoch: Annotated[
        int | None,
        typer.Option(metavar="EPOCH", help="The epoch that you remember, so that a lost advance is noticed.", show_default=False),
    ] = None,
    bind: Annotated[bool, typer.Option("--bind", help="Ask for a worker, and perhaps be told to bind one.")] = False,
    worker: Annotated[str | None, typer.Option(metavar="WORKER", help="With --bind: your candidate.", show_default=False)] = None,
    wait_ms: Annotated[
        int | None,
        typer.Option(
            min=0, max=30_000, metavar="MS", help="With --bind: wait this long for another's claim.", show_default=False
        ),
    ] = None,
    ttl_ms: Annotated[
        int | None, typer.Option(metavar="MS", help="With --bind: the idle time that unbinds.", show_default=False)
    ] = None,
    claim_ttl_ms: Annotated[
        int | None, typer.Option(metavar="MS", help="With --bind: the time to confirm.", show_default=False)
    ] = None,
    commit: Annotated[bool, typer.Option("--commit", help="With --bind: claim and confirm at once.")] = False,
    request_id: RequestId = None,
    require_durable: Durable = False,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Ask where a turn belongs: its scope, its epoch, and with --bind its worker.

    \b
    Examples:
      limpet resolve telegram:dm:42
      limpet resolve telegram:dm:42 --session-id resp_9 --bind --worker gpu-3 --json
      limpet resolve telegram:dm:42 --daily-at 04:00 --tz Europe/Paris
    """
    from limpet.cli.ask import resolve as run

    policy: dict[str, Any] = {} if idle_s is None else {"idle_s": idle_s}
    if (daily_at is None) != (tz is None):
        raise typer.BadParameter("--daily-at and --tz go together: a time of day means nothing without its zone")
    if daily_at is not None:
        policy["daily"] = {"at": daily_at, "tz": tz}
    wishes = {"worker": worker, "wait_ms": wait_ms, "ttl_ms": ttl_ms, "claim_ttl_ms": claim_ttl_ms, "commit": commit or None}
    wishes = {name: value for name, value in wishes.items() if value is not None}
    if wishes and not bind:
        raise typer.BadParameter(f"--{next(iter(wishes)).replace('_', '-')} says how to bind, so --bind has to be there too")
    return run(
        key,
        session_id=session_id,
        kind=kind.value,
        parent_key=parent_key,
        policy=policy,
        exempt=exempt,
        seen_epoch=seen_epoch,
        bind=wishes if bind else None,
        request_id=request_id,
        require_durable=require_durable,
        url=url,
        namespace=namespace,
        as_json=as_json,
    )


@app.command(short_help="Begin a new conversation under a key.")
def advance(
    key: Key,
    reason: Annotated[str, typer.Option(metavar="REASON", help="Why: new, switch, recycled, or a word of yours.")] = "new",
    expected_epoch: Annotated[
        int | None,
        typer.Option(metavar="EPOCH", help="Only if this is the current epoch; otherwise exit with 1.", show_default=False),
    ] = None,
    request_id: RequestId = None,
    require_durable: Durable = False,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Begin a new conversation under a key: a new epoch, a new scope, no worker.

    \b
    Examples:
      limpet advance telegram:dm:42
      limpet advance telegram:dm:42 --reason recycled --expected-epoch 28861479864234
    """
    from limpet.cli.ask import advance as run

    return run(
        key,
        reason=reason,
        expected_epoch=expected_epoch,
        request_id=request_id,
        require_durable=require_durable,
        url=url,
        namespace=namespace,
        as_json=as_json,
    )


@app.command(short_help="Look at a conversation without touching it.")
def inspect(key: Key, url: Url = None, namespace: Namespace = None, as_json: Json = False) -> int:
    """Look at a conversation without touching it: no activity, no reset, no claim.

    \b
    Examples:
      limpet inspect telegram:dm:42
      limpet inspect telegram:dm:42 --json | jq .binding.worker
    """
    from limpet.cli.ask import inspect as run

    return run(key, url=url, namespace=namespace, as_json=as_json)


class Right(StrEnum):
    """What a token may do."""

    resolve = "resolve"
    admin = "admin"


@app.command(short_help="Show every setting and where it comes from.")
def config(
    new_token: Annotated[bool, typer.Option("--new-token", help="Make a token, and its entry for LIMPET_TOKENS.")] = False,
    right: Annotated[
        list[Right] | None,
        typer.Option(metavar="RIGHT", help="With --new-token: resolve or admin; may be repeated.", show_default=False),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", metavar="NAME", help="With --new-token: the tenant it speaks for.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> int:
    """Show every setting, its value, and where it comes from. Secrets are masked.

    Settings are read from LIMPET_* variables and from .env in the current directory. With --new-token: make a token. The
    service knows its hash only, so the token is shown once.

    \b
    Examples:
      limpet config
      LIMPET_PORT=8080 limpet config --json
      limpet config --new-token --namespace prod --right resolve --right admin
    """
    from limpet.cli.config import config as run
    from limpet.cli.config import new_token as make

    if new_token:
        return make(namespace=namespace, rights=[each.value for each in right or ()], as_json=as_json)
    if right or namespace:
        raise typer.BadParameter("--right and --namespace say what a new token may do, so --new-token has to be there too")
    return run(as_json=as_json)


@app.command(short_help="Look whether the store is fit for the guarantees.")
def doctor(as_json: Json = False) -> int:
    """Look whether the store is fit for the guarantees, and say what to do where it is not.

    The first thing to run on a new store, and after a change to one. Exit code 1 when a check failed, 0 with warnings.

    \b
    Examples:
      limpet doctor
      LIMPET_REDIS_URL=redis+cluster://a,b limpet doctor --json
    """
    from limpet.cli.doctor import doctor as run

    return run(as_json=as_json)


class Mischief(StrEnum):
    """What ``chaos`` may do to the store."""

    script_flush = "script-flush"
    client_kill = "client-kill"
    client_pause = "client-pause"
    failover = "failover"


@app.command(short_help="Try to break the guarantees on a store, and judge.")
def chaos(
    minutes: Annotated[float, typer.Option(min=0.05, max=1440, metavar="N", help="How long the clients go on.")] = 1.0,
    processes: Annotated[int, typer.Option(min=1, max=64, metavar="N", help="Client processes.")] = 2,
    callers: Annotated[int, typer.Option(min=1, max=256, metavar="N", help="Concurrent callers in each.")] = 6,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Repeats the random choices of a run.", show_default=False)
    ] = None,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the recorded history here.", show_default=False)] = None,
    allow: Annotated[
        list[Mischief] | None,
        typer.Option(
            metavar="WHAT",
            help="Also do this to the store: script-flush, client-pause, failover, or client-kill, which drops all its clients, "
            "not only ours. May be repeated.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Try to break the guarantees on your store: random clients, then a checker that judges what they were told.

    Uses LIMPET_REDIS_URL in a namespace of its own that goes afterwards, or else a throw-away store. Nothing is done to the
    store but what --allow names; a failover that happens meanwhile is noticed. Exits with 1 if a guarantee did not hold.

    \b
    Examples:
      limpet chaos --minutes 10
      LIMPET_REDIS_URL=redis+cluster://a,b limpet chaos --allow failover --allow script-flush
    """
    from limpet.cli.chaos import chaos as run

    return run(
        minutes=minutes,
        processes=processes,
        callers=callers,
        seed=seed,
        keep=keep,
        actions=tuple(each.value for each in allow or ()),
        as_json=as_json,
    )
