"""Every error this app raises on purpose. All descend from :class:`PaymentsError`, but :class:`WireError`."""

from __future__ import annotations

from typing import Any


class PaymentsError(Exception):
    """The root of this app's errors."""


class ProviderError(PaymentsError):
    """The provider answered with its error envelope (spec, "Errors").

    ``str()`` shows code, param and request id: what the provider's support will ask for.
    """

    type: str = "api_error"

    def __init__(
        self,
        message: str = "",
        *,
        status_code: int,
        code: str,
        request_id: str = "",
        param: str | None = None,
        type: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status_code = status_code
        self.code = code
        self.param = param
        self.request_id = request_id
        #: Seconds the provider asked to wait (429 only), within bounds.
        self.retry_after = retry_after
        if type is not None:
            self.type = type

    def __str__(self) -> str:
        where = f", param {self.param}" if self.param else ""
        request = f", request {self.request_id}" if self.request_id else ""
        return f"{self.code} (HTTP {self.status_code}{where}{request}): {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.__dict__))


def _rebuild(cls: type[ProviderError], message: str, state: dict[str, Any]) -> ProviderError:
    error = cls(message, status_code=state["status_code"], code=state["code"])
    error.__dict__.update(state)
    return error


class InvalidRequest(ProviderError):
    """A parameter is missing or wrong (type invalid_request_error)."""

    type = "invalid_request_error"


class AuthenticationFailed(ProviderError):
    """The API key is missing, wrong or revoked (type authentication_error)."""

    type = "authentication_error"


class PermissionRefused(ProviderError):
    """The merchant or the key may not do this (type permission_error)."""

    type = "permission_error"


class NotFound(ProviderError):
    """The provider does not know this object (type not_found_error)."""

    type = "not_found_error"


class InvalidState(ProviderError):
    """The object's state forbids the call, or the balance is too low (type invalid_state_error)."""

    type = "invalid_state_error"


class IdempotencyError(ProviderError):
    """The idempotency key is in use (type idempotency_error): see ``code``."""

    type = "idempotency_error"


class RateLimited(ProviderError):
    """Too many requests (type rate_limit_error, HTTP 429)."""

    type = "rate_limit_error"


class ApiError(ProviderError):
    """The provider failed (type api_error), or answered with a type this version does not know."""

    type = "api_error"


PROVIDER_ERRORS: dict[str, type[ProviderError]] = {
    cls.type: cls
    for cls in (
        InvalidRequest,
        AuthenticationFailed,
        PermissionRefused,
        NotFound,
        InvalidState,
        IdempotencyError,
        RateLimited,
        ApiError,
    )
}


class NoAnswer(PaymentsError):
    """No usable answer came: timeout, reset, HTML, a redirect, an object of another kind.

    Whether the provider did the work is not known. ``services`` never lets this out of a POST: it becomes
    :class:`OutcomeUnknown`. A GET lets it out as it is.
    """

    def __init__(self, message: str, *, status_code: int | None = None, request_id: str = "") -> None:
        super().__init__(message)
        self.status_code = status_code
        self.request_id = request_id


class UnsendableRequest(PaymentsError, ValueError):
    """The client refused a request before anything left: too large, or an id or key that cannot be sent."""


class PagingError(PaymentsError):
    """A list of the provider does not advance: reading on would never end or would skip objects."""


class OutcomeUnknown(PaymentsError):
    """The request may have reached the provider; ``operation`` is kept and being resolved.

    With :class:`ApprovalRequired` the only error after which money may still move. Do not repeat the call with
    another key: wait for the operation (``resume_operations`` settles it), or repeat it with the same key.
    """

    def __init__(self, operation: Any) -> None:
        super().__init__(
            f"the outcome of operation {operation.pk} ({operation.operation}) is not known yet; "
            "it is kept until it is settled: see its state and note"
        )
        self.operation = operation


class ApprovalRequired(PaymentsError):
    """The operation is recorded and waits for another person's approval; nothing was sent.

    ``services.approve`` sends it, ``services.reject`` closes it; until then the same call with the same key raises
    this.
    """

    def __init__(self, operation: Any) -> None:
        super().__init__(f"operation {operation.pk} ({operation.operation}) waits for approval")
        self.operation = operation


class IdempotencyMismatch(PaymentsError):
    """This idempotency key was used before for a different call; nothing was sent."""


class OperationClosed(PaymentsError):
    """This operation was closed by a person or before it was sent; it did not happen and will not."""

    def __init__(self, operation: Any, message: str) -> None:
        super().__init__(message)
        self.operation = operation


class TransactionRefused(PaymentsError):
    """A call that sends was made inside a database transaction; see ``services.defer``."""


class SignatureError(PaymentsError):
    """A webhook delivery is not signed by a secret we know, or not now (spec, "Webhook signature")."""


class WireError(ValueError):
    """Bytes or an object that the spec does not allow; the message names the place, never a value."""
