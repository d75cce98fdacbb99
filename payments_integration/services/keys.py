"""Keys from a merchant's own callers."""

from __future__ import annotations

import hashlib
import json

from django.core.exceptions import ValidationError


def scoped_key(key: str, *scope: object) -> str:
    """The ``idempotency_key`` for a key that a caller of the merchant's API chose.

    The ledger knows one key per account, and two customers may choose the same one: what each of them owns is named
    in ``scope`` (a user's id, say), and other scopes are other keys. Any text may be a key; the result is visible
    ASCII, and shows neither. Raises ValidationError for an empty key or none; ValueError without a scope, or with one
    that is None or empty: an anonymous user's id says nothing about who it is.
    """
    if not scope or any(part is None or part == "" for part in scope):
        raise ValueError("scoped_key() needs to know whose key it is; None and empty values do not say it")
    if not isinstance(key, str) or not key:
        raise ValidationError({"key": "A key is a text that is not empty."})
    parts = [key, *(str(part) for part in scope)]
    # As JSON, so that no two lists of parts run together; surrogates are escaped.
    return f"scoped-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}"
