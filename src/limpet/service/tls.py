"""TLS of the service and of the gateway: a context of the ``LIMPET_TLS_*`` files, and its renewal.

TLS 1.2 at least, forward secrecy only. With a client CA, callers must show a certificate of it (mutual TLS), beside their token.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from limpet.settings import Settings, SettingsInvalid

__all__ = ["make_context", "renew"]

_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2; what TLS 1.3 brings is all fit."""


def make_context(settings: Settings) -> ssl.SSLContext | None:
    """The context, or None where no certificate is set.

    Raises:
        SettingsInvalid: a file is missing, cannot be read, holds something else, or the key is not the certificate's.
    """
    cert, key, ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if cert is None and key is None and ca is None:
        return None
    if cert is None or key is None:
        missing = "LIMPET_TLS_CERT" if cert is None else "LIMPET_TLS_KEY"
        raise SettingsInvalid(f"{missing} is not set; TLS needs a certificate (chain) and its private key, both PEM files.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    _load(context, cert, key)
    if ca is not None:
        _readable(ca, "LIMPET_TLS_CLIENT_CA")
        try:
            context.load_verify_locations(ca)
        except ssl.SSLError:
            raise SettingsInvalid(
                f"LIMPET_TLS_CLIENT_CA: {ca} holds no CA certificate; it must be a PEM file with one or more."
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def renew(context: ssl.SSLContext, settings: Settings) -> None:
    """Reads certificate and key again; connections made from now on get them. The client CA stays as it was.

    Raises:
        SettingsInvalid: as :func:`make_context`; the context then goes on with what it had.
    """
    make_context(settings)  # on a context of its own first: a certificate without its key must not get into the live one
    assert settings.tls_cert is not None
    assert settings.tls_key is not None
    _load(context, settings.tls_cert, settings.tls_key)


def _load(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    _readable(cert, "LIMPET_TLS_CERT")
    _readable(key, "LIMPET_TLS_KEY")

    def locked() -> str:
        raise SettingsInvalid(
            f"LIMPET_TLS_KEY: {key} is encrypted; a service cannot be asked for its password, so store it plain."
        )

    try:
        context.load_cert_chain(cert, key, password=locked)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SettingsInvalid(
                f"LIMPET_TLS_KEY: {key} is not the key of the certificate in {cert}; give the two that belong together."
            ) from None
        raise SettingsInvalid(
            f"LIMPET_TLS_CERT, LIMPET_TLS_KEY: {cert} must hold a PEM certificate and {key} its PEM private key, "
            f"and one of them does not ({error.reason or 'not PEM'})."
        ) from None


def _readable(path: Path, name: str) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise SettingsInvalid(f"{name}: {path} cannot be read ({error.strerror}); mend the path or its permissions.") from None
