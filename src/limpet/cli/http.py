"""A small HTTP client for the commands that ask the service: the standard library's, one connection, one request."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from limpet.cli.problem import ServiceProblem
from limpet.errors import InvalidRequest

__all__ = ["Service"]

TIMEOUT_S: Final = 10.0
T = TypeVar("T")


class Service:
    """The service at ``url``.

    Args:
        url: ``http://`` or ``https://``, host, perhaps a port and a path that it lives under.
        token: the bearer token, or None.
        namespace: sent as ``X-Limpet-Namespace``, or None for the token's own or the service's default.

    Raises:
        InvalidRequest: the URL or the token cannot be used.
    """

    def __init__(self, url: str, token: str | None = None, namespace: str | None = None) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise InvalidRequest("LIMPET_URL is no URL; it looks like http://127.0.0.1:5467.", field="url") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None or parts.query:
            raise InvalidRequest(
                "LIMPET_URL must be http://host:port or https://host:port, without user or query (tokens go into LIMPET_TOKEN).",
                field="url",
            )
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            raise InvalidRequest("LIMPET_TOKEN must be printable ASCII without spaces.", field="token")
        self._url = url
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, port
        self._base = parts.path.rstrip("/")
        self._headers = {"Accept": "application/json", "User-Agent": "limpet-cli"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        if namespace is not None:
            self._headers["X-Limpet-Namespace"] = namespace

    def get(self, path: str, kind: type[T]) -> tuple[T, bytes]:
        """The answer to a GET, decoded and as it came. Raises ServiceProblem."""
        return self._decoded(self._ask("GET", path, None, {}, TIMEOUT_S), kind)

    def post(
        self, path: str, body: dict[str, Any], kind: type[T], *, request_id: str | None = None, patience_s: float = 0
    ) -> tuple[T, bytes]:
        """The answer to a POST of JSON, decoded and as it came. ``patience_s``: how much longer than usual it may take.

        Raises ServiceProblem.
        """
        headers = {"Content-Type": "application/json"}
        if request_id is not None:
            headers["Idempotency-Key"] = request_id
        return self._decoded(self._ask("POST", path, msgspec.json.encode(body), headers, TIMEOUT_S + patience_s), kind)

    def events(self, path: str, last_id: str, silence_s: float) -> Iterator[tuple[str, bytes]]:
        """Server-Sent Events as (id, data), either of which may be empty; ends when the service ends the stream.

        Raises ServiceProblem, also when nothing at all came for ``silence_s``.
        """
        headers = {**self._headers, "Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=silence_s)
        try:
            connection.request("GET", self._base + path, None, headers)
            answer = connection.getresponse()
            found = answer.headers.get_content_type()
            if answer.status != 200 or found != "text/event-stream":
                raise self._refused(answer.status, found, answer.read())
            name, data = "", b""
            while line := answer.readline():
                field, _, value = line.rstrip(b"\r\n").partition(b":")
                value = value.removeprefix(b" ")
                if field == b"id":
                    name = value.decode("latin-1")
                elif field == b"data":
                    data = value
                elif not line.strip():
                    yield name, data
                    name, data = "", b""
        except ConnectionRefusedError:
            raise self._silent("does not answer (connection refused)", "start it with `limpet serve`") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise self._silent(f"broke off ({reason})", "it may be restarting") from None
        finally:
            connection.close()

    def _decoded(self, content: bytes, kind: type[T]) -> tuple[T, bytes]:
        try:
            return msgspec.json.decode(content, type=kind), content
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._foreign("JSON of another kind") from None

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout_s: float) -> bytes:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=timeout_s)
        try:
            connection.request(method, self._base + path, body, {**self._headers, **headers})
            answer = connection.getresponse()
            content = answer.read()
        except TimeoutError:
            raise self._silent(f"did not answer within {timeout_s:.0f} s", "it may be overloaded") from None
        except ConnectionRefusedError:
            raise self._silent("does not answer (connection refused)", "start it with `limpet serve`") from None
        except socket.gaierror:
            raise self._silent("cannot be found (no such host)", "mend the host name") from None
        except ssl.SSLError as error:
            reason = error.reason or "TLS failed"
            raise self._silent(
                f"cannot be trusted or does not speak TLS ({reason})", "mend the certificate or the scheme"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise self._silent(f"broke off ({reason})", "it may not be a Limpet service") from None
        finally:
            connection.close()
        if answer.status == 200 and answer.headers.get_content_type() == "application/json":
            return content
        raise self._refused(answer.status, answer.headers.get_content_type(), content)

    def _silent(self, what: str, todo: str) -> ServiceProblem:
        return ServiceProblem(
            f"The Limpet service at {self._url} {what}; {todo}, or point LIMPET_URL to where it is.",
            problem_code="service_unreachable",
        )

    def _refused(self, status: int, content_type: str, content: bytes) -> ServiceProblem:
        if content_type == "application/problem+json":
            try:
                problem = msgspec.json.decode(content, type=_ProblemDocument)
            except msgspec.DecodeError:
                pass  # said to be a problem and is none: not ours, as below
            else:
                return ServiceProblem(problem.detail, problem_code=problem.code, status=status)
        return self._foreign(f"HTTP {status}, {content_type}")

    def _foreign(self, what: str) -> ServiceProblem:
        return ServiceProblem(
            f"What answers at {self._url} is no Limpet service ({what}); point LIMPET_URL to one.", problem_code="not_limpet"
        )


class _ProblemDocument(msgspec.Struct, frozen=True):
    code: str
    detail: str
