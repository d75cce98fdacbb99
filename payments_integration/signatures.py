"""Sign and verify webhook deliveries (spec, "Webhook signature"). Does not import Django.

Header value: ``t=<unix time>,v1=<hex>[,v1=<hex>]``; each ``v1`` is HMAC-SHA256 over ``<t>.<raw body>``.
"""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Iterable

from payments_integration.exceptions import SignatureError

HEADER = "Service-Signature"
TOLERANCE = 300

#: The spec has one or two v1. A few more are harmless; hundreds would cost time.
MAX_SIGNATURES = 8
MAX_HEADER_LENGTH = 1024
MAX_DIGITS = 15

_TIME = re.compile(rf"[0-9]{{1,{MAX_DIGITS}}}")  # [0-9], not \d: int() would accept Arabic digits too


def sign(body: bytes, secret: str, *, now: float | None = None) -> str:
    """Make the header value that signs a body (spec, "Webhook signature").

    Args:
        body: The exact bytes.
        secret: The endpoint's secret.
        now: Unix seconds; by default the local clock.

    Returns:
        ``t=<unix time>,v1=<hex>``.
    """
    timestamp = int(time.time() if now is None else now)
    return f"t={timestamp},v1={_digest(timestamp, body, secret)}"


def signed_at(header: str) -> int:
    """Return the time ``t`` of a header that ``verify`` has accepted, in Unix seconds."""
    return _parse(header)[0]


def verify(
    body: bytes, header: str, *, secrets: Iterable[str], now: float | None = None, tolerance: int = TOLERANCE
) -> None:
    """Return if a known secret signed these bytes (spec, "Webhook signature").

    Args:
        body: The exact bytes.
        header: The value of ``Service-Signature``.
        secrets: A list. Any of them may match any ``v1``; an empty one matches none.
        now: Unix seconds; by default the local clock.
        tolerance: Seconds that ``t`` may differ from ``now``, before or after.

    Raises:
        SignatureError: In every other case, for any body and header.
        TypeError: ``secrets`` is one text instead of a list.
    """
    if isinstance(secrets, str | bytes):
        raise TypeError("secrets must be a list, or each character would be a secret: write secrets=[secret].")
    timestamp, candidates = _parse(header)
    ahead = timestamp - (time.time() if now is None else now)
    if abs(ahead) > tolerance:
        where = "ahead of" if ahead > 0 else "behind"
        raise SignatureError(
            f"it was signed {abs(ahead):.0f} s {where} our clock, and {tolerance} s are allowed", reason="time"
        )
    matched = is_any_known = False
    for secret in filter(None, secrets):
        is_any_known = True
        expected = _digest(timestamp, body, secret).encode()
        for candidate in candidates:
            matched |= hmac.compare_digest(expected, candidate)
    if not is_any_known:
        raise SignatureError("no secret of the account is known", reason="secret")
    if not matched:
        raise SignatureError("none of the account's secrets signs this body")


def _parse(header: str) -> tuple[int, list[bytes]]:
    if not header:
        raise SignatureError(f"it has no header {HEADER}", reason="header")
    if len(header) > MAX_HEADER_LENGTH or not header.isascii():
        raise SignatureError("the signature header is malformed", reason="header")
    timestamp: int | None = None
    candidates: list[bytes] = []
    for part in header.split(","):
        name, _, value = part.strip(" ").partition("=")
        if name == "t":
            if timestamp is not None or not _TIME.fullmatch(value):
                raise SignatureError("the signature header needs exactly one t of digits", reason="header")
            timestamp = int(value)
        elif name == "v1":
            candidates.append(value.encode("ascii"))
    if timestamp is None or not candidates or len(candidates) > MAX_SIGNATURES:
        raise SignatureError("the signature header needs one t and one or two v1", reason="header")
    return timestamp, candidates


def _digest(timestamp: int, body: bytes, secret: str) -> str:
    return hmac.digest(secret.encode(), b"%d." % timestamp + body, "sha256").hex()
