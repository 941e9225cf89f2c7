"""``limpet gateway``: its options over the settings, then the gateway's own runner."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limpet.cli.app import LogLevel, TlsCert, TlsClientCa, TlsKey, app

__all__ = ["gateway"]


@app.command(short_help="Run the OpenAI-compatible gateway.")
def gateway(
    upstream: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL[;capacity=N]",
            help="An upstream; may be given several times [LIMPET_UPSTREAMS].",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="How the upstreams want the scope: openai-chat, vllm ... [LIMPET_PROFILE].", show_default=False
        ),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Send to the workers registered in this pool, and the upstreams with them [LIMPET_POOL].",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Address to listen on [LIMPET_HOST, or 127.0.0.1].", show_default=False)
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Port to listen on [LIMPET_PORT, or 5468].", show_default=False)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Server processes [LIMPET_WORKERS, or 1].", show_default=False)
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the embedded store keeps its data.", show_default=False)
    ] = None,
    cache_bust: Annotated[
        str | None,
        typer.Option(metavar="TARGET", help="Where a cache-bust marker goes [LIMPET_CACHE_BUST, or none].", show_default=False),
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
    """Run the OpenAI-compatible gateway: every turn of a conversation reaches the same cache bucket and the same worker.

    Point a client's base URL at it; send the conversation key in X-Limpet-Key (or one of the headers and fields that
    hosts send anyway). Gateways that share a store agree. Without LIMPET_REDIS_URL it runs its own Valkey.

    \b
    Examples:
      limpet gateway --upstream https://api.openai.com --profile openai-chat
      limpet gateway --upstream http://frontend-1:8000 --upstream http://frontend-2:8000 --profile dynamo
      limpet gateway --upstream 'http://gpu-1:8000;capacity=2' --upstream http://gpu-2:8000 --profile vllm
      limpet gateway --pool gpus --profile vllm
    """
    from limpet.gateway.run import run
    from limpet.settings import Settings

    settings = Settings.load(
        host=host,
        port=port,
        workers=workers,
        data_dir=data_dir,
        upstreams=tuple(upstream) if upstream else None,
        profile=profile,
        pool=pool,
        cache_bust=cache_bust,
        log_level=log_level and log_level.value,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        insecure=insecure or None,
    )
    return run(settings)
