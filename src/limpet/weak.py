"""Tokens that anyone guesses. A hash does not tell how good its token is, but those of the usual words are known."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Final

__all__ = ["is_weak", "weak_hashes"]

_WORDS: Final = (
    "", "0", "1", "123", "1234", "12345", "123456", "1234567", "12345678", "123456789", "1234567890", "abc", "abc123",
    "access", "admin", "api", "apikey", "api-key", "api_key", "bearer", "changeit", "changeme", "change-me",
    "change_me", "default", "demo", "dev", "development", "dummy", "example", "foo", "foobar", "gateway", "guest",
    "hello", "key", "letmein", "limpet", "local", "localhost", "master", "metrics", "mytoken", "my-token", "none",
    "null", "pass", "passw0rd", "password", "placeholder", "prod", "production", "qwerty", "replace-me", "replaceme",
    "root", "s3cr3t", "sample", "scrape", "secret", "sesame", "staging", "string", "super-secret", "supersecret",
    "test", "test123", "testing", "testtoken", "test-token", "todo", "token", "user", "xxx", "xxxx", "your-token",
    "your-token-here",
)  # fmt: skip


def is_weak(token: str) -> bool:
    """Whether a token is one of the usual words, in whatever case, or one character over and over."""
    return token.strip().lower() in _WORDS or len(set(token)) < 2


@cache
def weak_hashes() -> frozenset[str]:
    """The SHA-256 of those words, in the usual cases, also with the newline that ``echo`` adds."""
    spelt = {form for word in _WORDS for form in (word, word.upper(), word.capitalize())}
    return frozenset(hashlib.sha256((form + end).encode()).hexdigest() for form in spelt for end in ("", "\n"))
