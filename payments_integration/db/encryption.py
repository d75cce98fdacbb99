"""Encrypt stored webhook secrets (MultiFernet: the first key encrypts, every key decrypts)."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

from django.conf import settings

from payments_integration import conf

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet


class DecryptionError(RuntimeError):
    """None of the keys can read a stored secret: the key that wrote it is missing."""


def encrypt(text: str) -> str:
    """Return the text as an ASCII token that only the configured keys can read."""
    return _fernet(_keys()).encrypt(text.encode()).decode("ascii")


def decrypt(token: str) -> str:
    """Return the text of a token. Raises DecryptionError if no key fits."""
    from cryptography.fernet import InvalidToken  # noqa: PLC0415  (slow to import; most processes read no secret)

    try:
        return _fernet(_keys()).decrypt(token.encode("ascii")).decode()
    except (InvalidToken, UnicodeError):
        raise DecryptionError(
            "A stored webhook secret cannot be read. Put the key that wrote it back into "
            'PAYMENTS_INTEGRATION["ENCRYPTION_KEYS"] (or the old SECRET_KEY into SECRET_KEY_FALLBACKS).'
        ) from None


def _keys() -> tuple[str, ...]:
    return conf.current().ENCRYPTION_KEYS or tuple(
        key if isinstance(key, str) else key.decode("latin-1")
        for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    )


@lru_cache(maxsize=8)
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415

    # Hashing allows any text as a key. The prefix separates it from other uses of SECRET_KEY.
    return MultiFernet(
        [
            Fernet(base64.urlsafe_b64encode(hashlib.sha256(b"payments_integration:" + key.encode()).digest()))
            for key in keys
        ]
    )
