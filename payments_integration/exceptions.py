"""The errors that this app raises. All but :class:`WireError` are subclasses of :class:`PaymentsError`."""

from __future__ import annotations

from typing import Any


class PaymentsError(Exception):
    """The base class of this app's errors.

    Attributes:
        was_repeated (bool): The client sent the request twice with the same key, because its connection was lost
            before an answer came. The first one may have been executed, even if this error denies it.
    """

    was_repeated: bool = False


#: The members of a stored refusal that are codes. Other members may repeat what was sent.
REFUSAL_CODES = ("status_code", "type", "code", "request_id")
_REFUSAL_TEXTS = ("message", "param")


class ProviderError(PaymentsError):
    """The provider answered with its error envelope (spec, "Errors").

    ``str()`` shows code, param and request id, which the provider's support asks for.

    Attributes:
        status_code (int): The HTTP status.
        type (str): The envelope's type; each type of the spec has a subclass.
        code (str): What went wrong, for programs.
        message (str): What went wrong, for people.
        param (str | None): The parameter that is wrong.
        request_id (str): Names the request at the provider; may be empty.
        retry_after (float | None): Seconds that the provider asks to wait, from 1 to 60 (429 only).
    """

    type: str = "api_error"

    def __init__(
        self,
        message: str = "",
        copied: dict[str, Any] | None = None,
        *,
        status_code: int = 0,
        code: str = "",
        request_id: str = "",
        param: str | None = None,
        type: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        if copied is not None:
            # From ``args``: Celery's results carry nothing else.
            self.__init__(message, **copied)  # type: ignore[misc]
            return
        values = {"status_code": status_code, "code": code, "request_id": request_id, "param": param}
        super().__init__(message, {**values, "type": type, "retry_after": retry_after})
        self.message = message
        self.status_code = status_code
        self.code = code
        self.param = param
        self.request_id = request_id
        self.retry_after = retry_after
        if type is not None:
            self.type = type

    def __str__(self) -> str:
        where = f", param {self.param}" if self.param else ""
        request = f", request {self.request_id}" if self.request_id else ""
        return f"{self.code} (HTTP {self.status_code}{where}{request}): {self.message}"

    def fields(self) -> dict[str, Any]:
        """Return the error envelope and the HTTP status, as the ledger stores them: see :func:`provider_error`."""
        return {name: getattr(self, name) for name in (*REFUSAL_CODES, *_REFUSAL_TEXTS)}


class InvalidRequest(ProviderError):
    """A parameter is missing or wrong (type invalid_request_error)."""

    type = "invalid_request_error"


class AuthenticationFailed(ProviderError):
    """The API key is missing, wrong or revoked (type authentication_error)."""

    type = "authentication_error"


class PermissionRefused(ProviderError):
    """The merchant or the API key is not allowed to do this (type permission_error)."""

    type = "permission_error"


class NotFound(ProviderError):
    """The provider does not know this object (type not_found_error)."""

    type = "not_found_error"


class InvalidState(ProviderError):
    """The object's status does not allow the call, or the balance is too low (type invalid_state_error)."""

    type = "invalid_state_error"


class IdempotencyError(ProviderError):
    """The idempotency key was used before (type idempotency_error); ``code`` says how."""

    type = "idempotency_error"


class RateLimited(ProviderError):
    """Too many requests (type rate_limit_error, HTTP 429)."""

    type = "rate_limit_error"


class ApiError(ProviderError):
    """The provider failed (type api_error), or answered with a type that this version does not know."""

    type = "api_error"


#: Each type of the spec, and its class above.
PROVIDER_ERRORS: dict[str, type[ProviderError]] = {cls.type: cls for cls in ProviderError.__subclasses__()}
#: The spec binds these codes to no status, and all but one to no type.
_BY_CODE: dict[str, type[ProviderError]] = {
    "api_key_invalid": AuthenticationFailed,
    "api_key_revoked": AuthenticationFailed,
    "merchant_not_active": PermissionRefused,
    "resource_not_found": NotFound,
}


def error_class(type: str, code: str) -> type[ProviderError] | None:
    """Return the class of a refusal: by its code if that decides, otherwise by its type; None for an unknown type."""
    return _BY_CODE.get(code) or PROVIDER_ERRORS.get(type)


def request_id_of(error: BaseException) -> str:
    """Return the provider's id of the request that failed; empty if the error names none."""
    return str(getattr(error, "request_id", ""))


def provider_error(fields: dict[str, Any]) -> ProviderError:
    """Return a stored refusal as an exception again."""
    values = {"message": "", "status_code": 0, "code": "", **fields}
    return (error_class(values.get("type", ""), values["code"]) or ApiError)(**values)


class NoAnswer(PaymentsError):
    """No usable answer arrived: a timeout, a reset, HTML, a redirect, or an object of another kind.

    Functions that only read raise this error. A call that changes something raises it only if nothing was sent: the
    same call with the same key is then sent. If something may have been sent, it raises :class:`OutcomeUnknown`.

    Attributes:
        status_code (int | None): The HTTP status, if there was one.
        request_id (str): Names the request at the provider; may be empty.
        was_connected (bool): False: no byte of the request has left, so it was not executed.
    """

    def __init__(
        self, message: str, *, status_code: int | None = None, request_id: str = "", was_connected: bool = True
    ) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.request_id = request_id
        self.was_connected = was_connected

    def fields(self) -> dict[str, Any]:
        """Return what the ledger stores of a call that found no connection; see :func:`closing_error`."""
        return {"status_code": 0, "type": NOT_CONNECTED, "code": NOT_CONNECTED, "message": str(self)}


class KeyReplaced(NoAnswer):
    """The account's API key is of another project than its mirror; the message says why, and what to do.

    A test key was replaced by a live one, or the reverse; or the provider knows none of the ten newest objects under
    the new key. Nothing was recorded or sent, because the objects of two projects would be mixed. Deliveries are
    stored, and wait. It is over when the old key is back, the new key has an alias of its own, or ``payments_forget``
    has run.
    """


#: ``type`` and ``code`` of an operation's ``error`` if there was no connection.
NOT_CONNECTED = "not_connected"
_NOTHING_SENT = "Nothing was sent: "


#: Codes that say, with any status, that another request with the key runs or that the provider failed.
_MAY_HAVE_RUN = frozenset({"idempotency_in_progress", "internal_error", "provider_unavailable", "service_unavailable"})
#: Codes that say, with any 4xx, that the object or the balance does not allow the call.
_ABOUT_STATE = frozenset({"invalid_state", "insufficient_balance"})
#: Codes of the spec about the API key and its merchant.
_ACCESS = frozenset({"api_key_invalid", "api_key_revoked", "merchant_not_active"})


def is_refusal(error: ProviderError) -> bool:
    """Return True if the provider says that it did not execute the request: a 4xx that is not about its own failure.

    A 409 is about the key, unless its code says otherwise: another request with it runs or ran, perhaps ours.
    """
    if error.code in _MAY_HAVE_RUN or error.type in (ApiError.type, IdempotencyError.type):
        return False
    if error.status_code == 409:
        return error.code in _ABOUT_STATE
    return 400 <= error.status_code < 500 and error.status_code != 408


def is_passing(error: dict[str, Any]) -> bool:
    """Return True if a refusal (``ProviderError.fields``) is about access or rate, not about the call itself."""
    if error.get("code") == "idempotency_conflict":
        return False
    # The spec binds a status to few codes.
    is_access = error.get("type") == AuthenticationFailed.type or error.get("code") in _ACCESS
    return is_access or error.get("status_code") in (401, 429)


def nothing_sent(why: object) -> str:
    """Return the text of an error before which no byte of a request left."""
    return f"{_NOTHING_SENT}{str(why).removeprefix(_NOTHING_SENT)}"


def not_connected(text: str) -> NoAnswer:
    """Return the error of a call that was not sent because there was no connection. ``text`` says why."""
    text = text if text.endswith((".", "?", "!")) else f"{text}."
    return NoAnswer(f"{nothing_sent(text)} Call again with the same key.", was_connected=False)


def closing_error(fields: dict[str, Any]) -> ProviderError | NoAnswer:
    """Return the stored error of an operation as an exception again."""
    if fields.get("type") == NOT_CONNECTED:
        return not_connected(str(fields.get("message", "")))
    return provider_error(fields)


def recorded_error(error: BaseException) -> str:
    """Return an error as a record of a pass keeps it: its class and its text."""
    return f"{type(error).__name__}: {error}"


#: How a recorded error begins if the provider refused the API key; and if it did not answer, or failed.
KEY_REFUSED = (f"{AuthenticationFailed.__name__}:",)
UNREACHABLE = (f"{NoAnswer.__name__}:", f"{ApiError.__name__}:")


class UnsendableRequest(PaymentsError, ValueError):
    """The request cannot be sent: it is too large, has an invalid id, key or filter, or would pay an order twice.

    Nothing was sent.
    """


class PagingError(PaymentsError):
    """A list of the provider does not advance: reading on would not end, or would skip objects."""


class _OfOperation(PaymentsError):
    """An error about one operation. A copy by pickle or through Celery carries the operation's id, not its data.

    ``args`` are the id and the message. Celery makes a copy by ``cls(*args)``.
    """

    def __init__(self, operation: Any, message: str) -> None:
        self._row = None if isinstance(operation, str) else operation
        super().__init__(operation if self._row is None else operation.pk, message)

    def __str__(self) -> str:
        return str(self.args[1])

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), self.args, {"was_repeated": self.was_repeated})

    @property
    def operation(self) -> Any:
        """The row of the ledger. A copy reads it."""
        if self._row is None:
            from django.apps import apps  # noqa: PLC0415  (this module is imported without Django too)

            self._row = apps.get_model("payments_integration", "Operation").objects.get(pk=self.args[0])
        return self._row


class OutcomeUnknown(_OfOperation):
    """The request may have reached the provider; ``operation`` is kept and is being resolved.

    Money may still move after this error and after :class:`ApprovalRequired`, and after no other, but for
    KeyboardInterrupt, SystemExit, GeneratorExit and the cancellation of an ``await``. Do not repeat the call with
    another key: wait until ``resume_operations`` settles the operation, or repeat it with the same key.

    The message says what happened last and what happens next.

    Attributes:
        operation (Operation): The row of the ledger.
    """

    def __init__(self, operation: Any, last: BaseException | str | None = None) -> None:
        if isinstance(last, str):
            super().__init__(operation, last)
            return
        happened = f" {_last(last)}" if last is not None else ""
        super().__init__(
            operation,
            f"The outcome of operation {operation.pk} ({operation.operation}) is not known yet.{happened} "
            f"{_next(operation)} Do not repeat the call with another key.",
        )


def _last(error: BaseException) -> str:
    """Say what happened, without texts that may repeat an argument: other libraries', and an envelope's message."""
    if isinstance(error, ProviderError):
        return f"The provider answered {error.code} (HTTP {error.status_code})."
    if isinstance(error, NoAnswer):
        text = str(error)
        return text if text.endswith((".", "?", "!")) else f"{text}."
    return f"{type(error).__name__} was raised while it was carried out."


def _next(operation: Any) -> str:
    at = f" after {operation.next_attempt_at:%H:%M:%S %Z}" if operation.next_attempt_at else ""
    if operation.state == "due":
        return f"The app sends it by itself{at}."
    if operation.state == "needs_person":
        return "A person decides about it: its note says why."
    if operation.state == "done":
        return "It was executed: the same call with the same key returns its object."
    return f"The app sends it again with the same key, or looks it up,{at or ' soon'}."


class ApprovalRequired(_OfOperation):
    """The operation is recorded and waits for the approval of another person; nothing was sent.

    ``services.approve`` sends it and ``services.reject`` closes it. Until then, the same call with the same key raises
    this error again.

    Attributes:
        operation (Operation): The row of the ledger.
    """

    def __init__(self, operation: Any, message: str = "") -> None:
        super().__init__(operation, message or f"operation {operation.pk} ({operation.operation}) waits for approval")


class IdempotencyMismatch(PaymentsError):
    """This idempotency key was used before for a different call; nothing was sent."""


class OperationClosed(_OfOperation):
    """A person closed this operation, or it was closed before it was sent. It did not happen and will not.

    Attributes:
        operation (Operation): The row of the ledger.
    """


class TransactionRefused(PaymentsError):
    """A call that sends a request was made inside a database transaction; use ``services.defer`` there."""


class StaleRow(PaymentsError):
    """A row of this app was saved from an instance that is older than the row. Nothing was written."""


class SignatureError(PaymentsError):
    """No known secret signed this webhook delivery, or its time is too far from now (spec, "Webhook signature").

    ``reason``: ``header``, ``time``, ``secret`` (the account has none) or ``signature``.
    """

    def __init__(self, message: str = "", *, reason: str = "signature") -> None:
        super().__init__(message)
        self.reason = reason


class WireError(ValueError):
    """JSON from the provider that the spec does not allow. The message names the place, never a value."""


_OURS = {
    each.__name__
    for each in list(globals().values())
    if isinstance(each, type) and issubclass(each, PaymentsError | WireError)
}


def public_error(recorded: str) -> str:
    """Return a recorded error for terminals and mails: only the class if it is a library's, such as the database's.

    The text of a database error may hold a row.
    """
    name = recorded.partition(":")[0]
    return recorded if name in _OURS else name


#: These end a process or a generator. Our code that contains every other error of a merchant's code raises them again,
#: after releasing what it claimed.
INTERRUPTIONS = (SystemExit, KeyboardInterrupt, GeneratorExit)
