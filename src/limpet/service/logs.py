"""Log lines: one JSON object each, on stderr, without keys, session ids, scopes or tokens.

An unexpected exception is logged by its type and the places it passed, not by its message, which may hold any of them.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

__all__ = ["configure", "log_unexpected", "logger"]

_FRAMES: Final = 12

logger: Any = structlog.get_logger("limpet")


def configure(level: str = "info") -> None:
    """Send our log lines, and those of the libraries below, to stderr as JSON.

    The server's own chatter (uvicorn) is kept to warnings; its access log is off, since paths hold keys.
    """
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _no_traceback],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi"):
        logging.getLogger(name).setLevel(logging.WARNING)
    access = logging.getLogger("uvicorn.access")
    access.handlers, access.propagate = [], False


def _no_traceback(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    info = event.pop("exc_info", None)
    if isinstance(info, tuple):
        info = info[1]
    if isinstance(info, BaseException):
        event.update(_describe(info))
    return event


def _describe(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    where = [f"{frame.filename.rpartition('site-packages/')[2]}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "where": where}


def log_unexpected(doing: str, error: BaseException) -> None:
    """Log an exception that nobody planned for."""
    logger.error("unexpected error", doing=doing, **_describe(error))
