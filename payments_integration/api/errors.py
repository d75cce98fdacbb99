"""Answer every error of the API in the provider's envelope (spec, "Errors"), and map exceptions of services to it.

    {"error": {"type": …, "code": …, "message": …, "param": …, "errors": […], "request_id": …}}

``errors`` has every wrong field, for forms. ``code``, ``message`` and ``param`` describe the first one. An error
between the merchant and the provider is not the caller's fault: the answer says that the provider is unavailable, and
the log says why.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.core.exceptions import PermissionDenied, ValidationError
from django.db import InterfaceError, OperationalError
from django.http import Http404, UnreadablePostError
from django.utils.translation import gettext as _, gettext_lazy
from rest_framework import exceptions as drf
from rest_framework.response import Response

from payments_integration.exceptions import (
    ApiError,
    IdempotencyMismatch,
    InvalidRequest,
    InvalidState,
    NoAnswer,
    NotFound,
    OperationClosed,
    PagingError,
    PaymentsError,
    PermissionRefused,
    ProviderError,
    RateLimited,
    is_passing,
    request_id_of,
)
from payments_integration.runtime.logs import get_logger
from payments_integration.schemas import WireError
from payments_integration.services import PreconditionFailed
from payments_integration.validation.text import StrOrPromise
from payments_integration.validation.validator import NestedError, PythonError

logger = get_logger(__name__)

INVALID_REQUEST = InvalidRequest.type
#: The type of an error by its status. Every other 4xx is an invalid request, and a 5xx an API error.
_TYPES = {
    401: "authentication_error", 403: "permission_error", 404: NotFound.type, 409: "idempotency_error",
    422: InvalidState.type, 429: RateLimited.type,
}  # fmt: skip

#: Seconds after which the caller may try again, if the provider does not say.
_RETRY_AFTER = 5
NO_ACCOUNT = gettext_lazy("There is no such account.")
#: Arguments of services that have another name in the API.
_RENAMED = {"payment": "payment_id"}
#: The grammar of a parameter's name.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
#: The provider's refusals of a request, in words for the person at the form (spec, "Errors"). The provider's own
#: message is in English and for developers, so it goes to the log.
_REFUSALS = {
    "parameter_invalid": gettext_lazy("The payment provider does not accept this value."),
    "parameter_missing": gettext_lazy("This is required."),
    "amount_out_of_range": gettext_lazy("This amount is not possible here."),
    "method_not_allowed": gettext_lazy("This payment method is not offered. Choose another one."),
    "method_not_available": gettext_lazy("This payment method is not available now. Choose another one."),
    "country_not_allowed": gettext_lazy("Payments from this country are not possible."),
    "blocked_payer": gettext_lazy("This payment was declined. Contact the shop."),
    "invalid_state": gettext_lazy("This is not possible in the present status."),
    "insufficient_balance": gettext_lazy("The available balance does not cover this."),
}
#: The codes of this API's own answers. The provider's codes are added to them.
CODES = (
    "parameter_missing", "parameter_invalid", "not_authenticated", "credentials_invalid", "permission_denied",
    "resource_not_found", "method_not_allowed", "not_acceptable", "length_required", "request_too_large",
    "unsupported_media_type", "idempotency_conflict", "invalid_state", "insufficient_balance", "amount_out_of_range",
    "operation_closed", "rate_limited", "internal_error", "not_installed", "provider_unavailable",
    "database_unavailable",
)  # fmt: skip
#: Codes of the type permission_error that are about the request, not about the merchant's permissions.
_OF_THE_REQUEST = ("method_not_allowed", "method_not_available", "country_not_allowed", "blocked_payer")


@dataclass(frozen=True, slots=True)
class WrongField:
    #: The field's name, with dots if it is nested, such as ``payer.email``.
    param: str
    #: ``parameter_missing`` or ``parameter_invalid``.
    code: str
    message: str


class Problem(Exception):
    """An error answer. Views raise it."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        type: str = "",
        errors: Sequence[WrongField] = (),
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type or (ApiError.type if status >= 500 else _TYPES.get(status, INVALID_REQUEST))
        self.code = code
        self.message = message
        #: None unless it looks like a name. Callers may send any text, which must not reach the answer or the log.
        self.param = param if param is not None and _NAME.fullmatch(param) else None
        self.headers = headers or {}
        self.errors = [each for each in errors if _NAME.fullmatch(each.param)]
        #: For the log only: the option that the project can set.
        self.hint = hint

    def __str__(self) -> str:
        where = f", param {self.param}" if self.param else ""
        return f"{self.status} {self.code}{where}" + (f"; {self.hint}" if self.hint else "")


def wrong(fields: Sequence[WrongField]) -> Problem:
    """Return a 400 with all wrong fields, at least one."""
    first = fields[0]
    return Problem(400, first.code, first.message, first.param, errors=fields)


def invalid(param: str, message: StrOrPromise) -> Problem:
    return wrong([WrongField(param, "parameter_invalid", str(message))])


def missing(param: str, message: str | None = None) -> Problem:
    return wrong([WrongField(param, "parameter_missing", message or _("This is required."))])


def too_large() -> Problem:
    return Problem(413, "request_too_large", _("The request is larger than 256 KB."))


def broke_off() -> Problem:
    return Problem(400, "parameter_invalid", _("The request broke off."))


def length_required() -> Problem:
    return Problem(411, "length_required", _("Send the body's size in the header Content-Length."))


def not_found(param: str | None = None, *, message: str = "") -> Problem:
    return Problem(404, "resource_not_found", message or _("There is no such object."), param)


def refused(message: str, param: str | None = None, *, hint: str = "") -> Problem:
    return Problem(403, "permission_denied", message, param, hint=hint)


def respond(problem: Problem, request_id: str) -> Response:
    error: dict[str, Any] = {"type": problem.type, "code": problem.code, "message": problem.message}
    if problem.param is not None:
        error["param"] = problem.param
    if problem.errors:
        error["errors"] = [asdict(each) for each in problem.errors]
    return Response(
        {"error": {**error, "request_id": request_id}}, status=problem.status, headers=dict(problem.headers)
    )


def problem_of(error: Exception, sent: Collection[str], *, is_change: bool) -> Problem | None:
    """Return the error answer for an exception; None for an unexpected one.

    ``sent`` holds the names of the parameters that the caller sent. ``is_change`` is True if the request is a POST.
    """
    if isinstance(error, Problem):
        return error
    if isinstance(error, ValidationError):
        return _of_validation(error, sent)
    if isinstance(error, Http404):
        return not_found()
    if isinstance(error, PermissionDenied):
        return refused(str(error) or _("You may not do this."))
    if isinstance(error, drf.APIException):
        return _of_framework(error)
    if isinstance(error, UnreadablePostError):
        return broke_off()
    if isinstance(error, IdempotencyMismatch):
        words = _("This Idempotency-Key was used for another call. Nothing was done.")
        return Problem(409, "idempotency_conflict", words, "Idempotency-Key")
    if isinstance(error, OperationClosed):
        words = _("This call was closed: it did not happen and will not. Another call needs another key.")
        return Problem(422, "operation_closed", words)
    if isinstance(error, ProviderError):
        return _of_provider(error, sent, is_change=is_change)
    if isinstance(error, NoAnswer | PagingError):
        return _unavailable(503, {"Retry-After": str(_RETRY_AFTER)})
    if isinstance(error, WireError):
        return _unavailable(502)
    if isinstance(error, OperationalError | InterfaceError):
        # The connection was lost or refused: during authentication, a read, or the recording of an operation.
        words = _("The database does not answer. Try again; a POST with the same Idempotency-Key.")
        return Problem(503, "database_unavailable", words, headers={"Retry-After": str(_RETRY_AFTER)})
    return None


def log(error: Exception, problem: Problem, request_id: str, route: str) -> None:
    """Log one line. Only the log gets the provider's own message."""
    extra = {"api_request_id": request_id, "request_id": request_id_of(error)}
    if problem.status >= 500:
        # A provider's error contains its request id. No message repeats what was sent.
        reason = f"{type(error).__name__}: {error}" if isinstance(error, PaymentsError) else type(error).__name__
        logger.error("API request %s, %s: answered %s; %s", request_id, route, problem, reason, extra=extra)
    elif problem.hint:  # Django's own logging shows no INFO, and the hint is for a project that is being set up
        logger.warning("API request %s, %s: answered %s", request_id, route, problem, extra=extra)
    else:
        logger.info("API request %s, %s: answered %s", request_id, route, problem, extra=extra)


def internal() -> Problem:
    words = _("Something went wrong here. It was recorded. Repeat a POST with the same Idempotency-Key only.")
    return Problem(500, "internal_error", words)


def _of_validation(error: ValidationError, sent: Collection[str]) -> Problem:
    """Return a 400 for wrong arguments. A failed precondition is a 422, because the request itself is correct."""
    by_name = error.error_dict if hasattr(error, "error_dict") else {"": error.error_list}
    name, errors = next(iter(by_name.items()))
    if isinstance(error, PreconditionFailed) and name != "destination":
        message = " ".join(text for each in errors for text in each.messages)
        code, param = errors[0].code, _RENAMED.get(name, name) or None
        if code == "insufficient_balance":
            return Problem(422, code, message, param)
        if code == "max_value":
            return Problem(422, "amount_out_of_range", message, param, type=INVALID_REQUEST)
        return Problem(422, "invalid_state", message)
    return wrong([_wrong_field(name, each, sent) for name, found in by_name.items() for each in found])


def _wrong_field(name: str, error: ValidationError, sent: Collection[str]) -> WrongField:
    param = _RENAMED.get(name, name)
    nested = isinstance(error, NestedError)
    is_missing = error.code == "required" if nested else bool(param) and param not in sent
    return WrongField(
        f"{param}.{error.place}" if isinstance(error, NestedError) else param,
        "parameter_missing" if is_missing else "parameter_invalid",
        error.reason if isinstance(error, NestedError | PythonError) else " ".join(error.messages),
    )


def _of_provider(error: ProviderError, sent: Collection[str], *, is_change: bool) -> Problem:
    """Pass on refusals of the request. Hide other errors, which are between the merchant and the provider."""
    # The caller sent the first part of a nested name such as payer.email.
    param = error.param if error.param and error.param.partition(".")[0] in sent else None
    message = str(_REFUSALS.get(error.code, error.message))
    errors = [WrongField(param, error.code, message)] if param else []
    if isinstance(error, InvalidRequest) or (isinstance(error, PermissionRefused) and error.code in _OF_THE_REQUEST):
        status = 400 if isinstance(error, InvalidRequest) and error.status_code != 422 else 422
        return Problem(status, error.code, message, param, type=INVALID_REQUEST, errors=errors)
    if isinstance(error, InvalidState):
        return Problem(422, error.code, message, param, errors=errors)
    if isinstance(error, NotFound):
        return not_found()
    if isinstance(error, RateLimited):
        wait = math.ceil(error.retry_after) if error.retry_after else _RETRY_AFTER
        return _unavailable(503, {"Retry-After": str(wait)}, advice=_key_for(error) if is_change else "")
    return _unavailable(502, advice=_key_for(error) if is_change else "")


def _key_for(error: ProviderError) -> str:
    """Return which key another try needs. A temporary refusal leaves it free; other answers are final for it."""
    if is_passing(error.fields()):
        return _("Nothing was done. Repeat the request with the same Idempotency-Key.")
    return _("Nothing was done. Another try needs another Idempotency-Key.")


def _unavailable(status: int, headers: Mapping[str, str] | None = None, *, advice: str = "") -> Problem:
    words = " ".join(filter(None, [_("The payment provider cannot do this now."), advice]))
    return Problem(status, "provider_unavailable", words, headers=headers)


def _of_framework(error: drf.APIException) -> Problem | None:
    if isinstance(error, drf.NotAuthenticated | drf.AuthenticationFailed):
        header = getattr(error, "auth_header", None)
        headers = {"WWW-Authenticate": header} if header else {}
        if isinstance(error, drf.NotAuthenticated):
            return Problem(401, "not_authenticated", _("Sign in first."), headers=headers)
        words = _("Your sign-in has expired or is not valid. Sign in again.")
        return Problem(401, "credentials_invalid", words, headers=headers)
    if isinstance(error, drf.PermissionDenied):
        return refused(str(error.detail))
    if isinstance(error, drf.Throttled):
        wait = {"Retry-After": str(max(1, math.ceil(getattr(error, "wait", None) or 1)))}
        return Problem(429, "rate_limited", _("Too many requests."), headers=wait)
    if isinstance(error, drf.NotFound):
        return not_found()
    if isinstance(error, drf.ValidationError) and isinstance(error.detail, dict):
        return wrong(
            [
                WrongField(str(name), "parameter_invalid", " ".join(dict.fromkeys(_texts(messages))))
                for name, messages in error.detail.items()
            ]
        )
    if error.status_code >= 500:
        return None
    code = "parameter_invalid" if error.status_code == 400 else error.default_code
    return Problem(error.status_code, code, str(error.detail), type=INVALID_REQUEST)


def _texts(detail: Any) -> Iterator[str]:
    """Yield the messages of a parameter. REST framework nests the messages for the items of a list."""
    if isinstance(detail, Mapping):
        detail = list(detail.values())
    if not isinstance(detail, list):
        yield str(detail)
        return
    for each in detail:
        yield from _texts(each)
