"""``limpet serve``: the whole of it, from settings to exit code."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from pydantic import SecretStr

from limpet.errors import LimpetError
from limpet.executors.urls import parse_store_url
from limpet.service import logs
from limpet.service.build import Built, build
from limpet.service.serving import serve
from limpet.service.supervisor import Supervisor
from limpet.service.tls import make_context
from limpet.settings import Settings

__all__ = ["DEFAULT_PORT", "SERVICE", "Program", "run"]

DEFAULT_PORT: Final = 5467
BACKLOG: Final = 2048


class Program(NamedTuple):
    """What :func:`run` serves. ``module`` is what a worker process of it runs; ``words`` follow the address once it listens."""

    make: Callable[[Settings], Built]
    module: str
    port: int
    words: str


SERVICE: Final = Program(build, "limpet.service.worker", DEFAULT_PORT, "the API is described at {here}/docs")


def run(settings: Settings, program: Program = SERVICE) -> int:
    """Serve until SIGTERM or SIGINT.

    Without a store's URL the embedded store runs as long as we do. Says on stdout where the data is, if they are ours,
    and where it listens, once it does.

    Returns:
        0 after a graceful end, 1 when it could not start, 2 when the settings ask for something that is refused.

    Raises:
        SettingsInvalid: the TLS files cannot be used.
    """
    logs.configure(settings.log_level)
    if settings.off_loopback and not settings.tokens and not settings.insecure:
        return _say_error(
            f"Refused to listen on {settings.host} without tokens: anyone who reaches it could read and change every "
            "conversation. Set LIMPET_TOKENS, or pass --insecure if something in front of it checks callers.",
            2,
        )
    if settings.redis_url is not None:
        try:
            parse_store_url(settings.redis_url.get_secret_value())
        except LimpetError as error:
            return _say_error(str(error), 2)
    secure = make_context(settings) is not None  # what is wrong with the files is said before anything starts
    for name in settings.unknown_variables():
        logs.logger.warning("unknown variable", name=name)
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(_listen(settings, program.port))
        except OSError as error:
            port = program.port if settings.port is None else settings.port
            why = error.strerror or str(error)
            return _say_error(
                f"Cannot listen on {settings.host}:{port} ({why}); free that port, or choose another with --port.", 1
            )
        if settings.redis_url is None:
            from limpet.embedded import EmbeddedStore  # only where it is used: it needs a binary that fits the machine

            try:
                store = EmbeddedStore.acquire(settings.data_dir)
            except (LimpetError, OSError) as error:
                return _say_error(f"The embedded store did not start: {error}", 1)
            stack.callback(store.release)
            _say(f"No LIMPET_REDIS_URL is set: using the embedded store (pid {store.pid}), {store.url}")
            settings = settings.model_copy(update={"redis_url": SecretStr(store.url)})
        here = _address(listener, secure)

        def announce() -> None:
            many = f" with {settings.workers} workers" if settings.workers > 1 else ""
            _say(f"Limpet is listening on {here}{many}; {program.words.format(here=here)}")

        if settings.workers == 1:
            return 1 if serve(settings, listener, lambda _: announce(), program.make) else 0
        return Supervisor(settings, listener, announce, module=program.module).run()


def _listen(settings: Settings, default_port: int) -> socket.socket:
    port = default_port if settings.port is None else settings.port
    host = settings.host.strip("[]")
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _address(listener: socket.socket, secure: bool) -> str:
    host, port = listener.getsockname()[:2]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _say(text: str) -> None:
    """Says it, if anybody listens: those whom we serve have nothing to do with our stdout."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.EBADF:  # closed on purpose, or told already
            why = error.strerror or str(error)
            logs.logger.warning("cannot write to stdout", reason=why, means="it serves, but does not say where it listens")


def _say_error(text: str, code: int) -> int:
    sys.stderr.write(f"limpet: {text}\n")
    return code
