"""Make the exception for a reply that is not a success (spec, "Errors")."""

from __future__ import annotations

from datetime import UTC, datetime

from payments_integration import schemas
from payments_integration.client.answers import Reply, http_date, number_in
from payments_integration.exceptions import (
    ApiError,
    AuthenticationFailed,
    IdempotencyError,
    InvalidRequest,
    InvalidState,
    NoAnswer,
    NotFound,
    PermissionRefused,
    ProviderError,
    RateLimited,
    error_class,
)

TOO_MANY = 429
#: The longest wait that a header may cause. After it, the next request asks the provider again.
MAX_WAIT = 60.0
MIN_RETRY_AFTER = 1.0
#: For a 429 without a usable Retry-After.
DEFAULT_RETRY_AFTER = 2.0

#: For an envelope whose ``type`` this version does not know.
_BY_STATUS: dict[int, type[ProviderError]] = {
    400: InvalidRequest,
    401: AuthenticationFailed,
    403: PermissionRefused,
    404: NotFound,
    405: InvalidRequest,
    409: IdempotencyError,
    422: InvalidState,
}
_MAX_MESSAGE = 500
_MAX_CODE = 64
_MAX_NAME = 255

#: Fields of a request whose values an error message might repeat.
_PERSONAL = frozenset(
    {"name", "email", "phone", "ip", "device_id", "number", "account_number", "account_holder", "holder_name"}
)
#: Shorter values would mask half of every message.
_MIN_MASKED = 4


def error_of(reply: Reply, *, mask: tuple[str, ...] = ()) -> ProviderError | NoAnswer:
    """Return the exception for any reply that is not 2xx. It repeats none of the texts in ``mask``.

    A 429 is RateLimited even if its envelope is malformed, with a ``retry_after`` of 1 to 60 seconds.
    """
    if not 400 <= reply.status_code < 600:
        return reply.no_answer("a redirect, not followed" if 300 <= reply.status_code < 400 else "no usable status")
    body = _envelope(reply)
    if reply.status_code == TOO_MANY:
        kind: type[ProviderError] = RateLimited
        body = body or schemas.ErrorBody(
            type=kind.type, code="rate_limited", message="too many requests", request_id=reply.request_id
        )
    elif body is None:
        # A proxy answers with a 5xx of its own; any other status comes from a server that is not the provider.
        foreign = "the answer is not the provider's; check BASE_URL"
        return reply.no_answer(reply.problem or (foreign if reply.status_code < 500 else "no error envelope"))
    elif reply.status_code >= 500:
        # A 5xx does not say if the work was done, even if its envelope does.
        kind = ApiError
    else:
        kind = error_class(body.type, body.code) or _BY_STATUS.get(reply.status_code, ApiError)
    return kind(
        _clean(body.message, _MAX_MESSAGE, mask),
        status_code=reply.status_code,
        code=_clean(body.code, _MAX_CODE),
        request_id=_clean(body.request_id, _MAX_NAME),
        param=None if body.param is None else _clean(body.param, _MAX_NAME, mask),
        type=_clean(body.type, _MAX_CODE),
        retry_after=retry_after(reply) if kind is RateLimited else None,
    )


def personal_texts(body: bytes | None) -> tuple[str, ...]:
    """Return the names, documents, account numbers and addresses in a request body, longest first."""
    if body is None:
        return ()
    try:
        texts = schemas.texts_in(schemas.decode_object(body))
    except schemas.WireError:
        return ()
    found = {text for name, text in texts if name in _PERSONAL and len(text) >= _MIN_MASKED}
    return tuple(sorted(found, key=len, reverse=True))


def retry_after(reply: Reply) -> float:
    """Return the seconds to wait after a 429: between 1 and 60, even if the header is malformed."""
    value = reply.headers.get("Retry-After", "").strip()
    wait: float | None = number_in(value)
    if wait is None:
        until = http_date(value)
        # The provider's own clock if the answer shows it: ours may be wrong.
        now = reply.answered_at or datetime.now(UTC)
        wait = DEFAULT_RETRY_AFTER if until is None else (until - now).total_seconds()
    return min(max(wait, MIN_RETRY_AFTER), MAX_WAIT)


def _envelope(reply: Reply) -> schemas.ErrorBody | None:
    if reply.problem:
        return None
    try:
        return schemas.decode_error(reply.body)
    except schemas.WireError:
        return None


def _clean(text: str, length: int, mask: tuple[str, ...] = ()) -> str:
    """Make the provider's text safe for a log line: one line, at most ``length``, without the texts in ``mask``."""
    for secret in mask:
        text = text.replace(secret, "***")
    return "".join(letter if letter.isprintable() else " " for letter in text[:length])
