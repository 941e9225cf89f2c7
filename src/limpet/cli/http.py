"""A small HTTP client for the commands that ask the service: the standard library's, one connection, one request."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
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

        ca: of an https URL, a PEM file; None for the system's, or what SSL_CERT_FILE names.
        cert: certificate and key that are shown to a service that asks for one, a PEM file.

    Raises:
        InvalidRequest: the URL, the token or a file cannot be used.
    """

    def __init__(
        self, url: str, token: str | None = None, namespace: str | None = None, ca: Path | None = None, cert: Path | None = None
    ) -> None:
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
        self._context = _context(ca, cert) if self._secure else None
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
        connection = self._connection(silence_s)
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
        except ssl.SSLError as error:
            raise self._untrusted(error) from None
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
        connection = self._connection(timeout_s)
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
            raise self._untrusted(error) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise self._silent(f"broke off ({reason})", "it may not be a Limpet service") from None
        finally:
            connection.close()
        if answer.status == 200 and answer.headers.get_content_type() == "application/json":
            return content
        raise self._refused(answer.status, answer.headers.get_content_type(), content)

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._context)

    def _untrusted(self, error: ssl.SSLError) -> ServiceProblem:
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._silent(
                f"shows a certificate that is not trusted ({error.verify_message.rstrip('.')})",
                "set LIMPET_URL_CA to the CA that signed it",
            )
        reason = error.reason or "TLS failed"
        if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
            return self._silent(f"asks for a client certificate ({reason})", "set LIMPET_URL_CERT to one that it trusts")
        return self._silent(f"does not speak TLS as we do ({reason})", "write http:// if it speaks none")

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


def _context(ca: Path | None, cert: Path | None) -> ssl.SSLContext:
    for path, name in ((ca, "LIMPET_URL_CA"), (cert, "LIMPET_URL_CERT")):
        if path is not None and not path.is_file():
            raise InvalidRequest(f"{name}: there is no file {path}; mend the path.", field=name)
    try:
        context = ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise InvalidRequest(f"LIMPET_URL_CA: {ca} holds no CA certificate in PEM form.", field="url_ca") from None
    if cert is not None:
        try:
            context.load_cert_chain(cert, password=lambda: "")
        except ssl.SSLError:
            raise InvalidRequest(
                f"LIMPET_URL_CERT: {cert} must hold a certificate and its plain private key in PEM form.", field="url_cert"
            ) from None
    return context


class _ProblemDocument(msgspec.Struct, frozen=True):
    code: str
    detail: str
