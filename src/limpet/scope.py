"""The affinity token that goes on the wire (design, section 2, "Scope").

    declared:  "gwk_" + sha256(f"{key}:{epoch}")[:24 hex digits]
    physical:  "gws_" + sha256(session_id)[:24 hex digits]

In a namespace other than ``default`` the hashed text is prefixed with the namespace and a NUL byte. With a secret it is
HMAC-SHA256 under that secret over the same text. Injective: an epoch holds no colon, and nothing but that prefix holds
a NUL (keys and session ids hold no control characters), so two different inputs never hash the same text.
"""

from __future__ import annotations

import hashlib
import hmac

from limpet.errors import InvalidRequest
from limpet.validate import check_epoch, check_namespace, check_text

__all__ = ["DEFAULT_NAMESPACE", "declared", "physical"]

DEFAULT_NAMESPACE = "default"
_DIGITS = 24


def declared(key: str, epoch: int, namespace: str = DEFAULT_NAMESPACE, secret: str | bytes | None = None) -> str:
    """The scope of one epoch of a declared conversation key: ``gwk_`` and 24 hex digits.

    ``epoch`` is a tick (an integer from 1 to 2^53 - 1); no value of it is special. Raises
    :class:`~limpet.errors.InvalidRequest` for a key, epoch, namespace or secret that breaks its rules.
    """
    text = f"{check_text(key, 'key')}:{check_epoch(epoch, 'epoch')}"
    return "gwk_" + _hash(text, namespace, secret)


def physical(session_id: str, namespace: str = DEFAULT_NAMESPACE, secret: str | bytes | None = None) -> str:
    """The scope of a physical session id: ``gws_`` and 24 hex digits. It needs no store, so it is what a fork, a missing
    key and a degraded answer get. Raises :class:`~limpet.errors.InvalidRequest` as :func:`declared` does."""
    return "gws_" + _hash(check_text(session_id, "session_id"), namespace, secret)


def _hash(text: str, namespace: str, secret: str | bytes | None) -> str:
    if namespace != DEFAULT_NAMESPACE:
        text = f"{check_namespace(namespace)}\0{text}"
    data = text.encode()
    if secret is None:
        return hashlib.sha256(data).hexdigest()[:_DIGITS]
    return hmac.digest(_secret_bytes(secret), data, "sha256").hex()[:_DIGITS]


def _secret_bytes(secret: str | bytes) -> bytes:
    # An empty secret would look protected and be guessable, so it is refused and not taken for "no secret".
    if not isinstance(secret, str | bytes) or not secret:
        raise InvalidRequest("scope_secret must be a non-empty string or bytes; leave it out for none.", field="scope_secret")
    return secret.encode() if isinstance(secret, str) else secret
