"""Every error of the API in the provider's envelope (spec, "Errors"), and how a service's exceptions map to it.

    {"error": {"type": …, "code": …, "message": …, "param": …, "request_id": …}}

An error between the merchant and the provider is not the caller's: the answer says that the provider is unavailable,
and the log says why. Unexpected exceptions become Django's 500.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.core.exceptions import PermissionDenied, ValidationError
from django.db import InterfaceError, OperationalError
from django.http import Http404
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
    ProviderError,
    RateLimited,
    request_id_of,
)
from payments_integration.schemas import WireError
from payments_integration.services import PreconditionFailed

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

logger = logging.getLogger(__name__)

INVALID_REQUEST = InvalidRequest.type
INVALID_STATE = InvalidState.type
NOT_FOUND = NotFound.type
API_ERROR = ApiError.type
AUTHENTICATION = "authentication_error"
PERMISSION = "permission_error"
IDEMPOTENCY = "idempotency_error"
RATE_LIMIT = RateLimited.type

#: Seconds after which the caller may try again, if the provider does not say.
_RETRY_AFTER = 5
NO_ACCOUNT = gettext_lazy("There is no such account.")
#: The grammar of a parameter's name.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Problem(Exception):
    """An error answer. Views raise it."""

    def __init__(
        self,
        status: int,
        type: str,
        code: str,
        message: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.code = code
        self.message = message
        #: Callers may send any text as a name: text that is not a name goes neither into the answer nor into the log.
        self.param = param if param is not None and _NAME.fullmatch(param) else None
        self.headers = headers or {}

    def __str__(self) -> str:
        return f"{self.status} {self.code}" + (f", param {self.param}" if self.param else "")


@dataclass(frozen=True, slots=True)
class SentNames:
    """The names of what the caller sent, to distinguish a missing parameter from a wrong one. Without the values."""

    names: Collection[str] = ()
    #: A service's argument names that differ from the API's parameter names.
    renamed: Mapping[str, str] = field(default_factory=dict)
    #: Whether the request is a POST.
    is_change: bool = False


def invalid(param: str, message: StrOrPromise) -> Problem:
    return Problem(400, INVALID_REQUEST, "parameter_invalid", str(message), param)


def missing(param: str, message: str | None = None) -> Problem:
    return Problem(400, INVALID_REQUEST, "parameter_missing", message or _("This is required."), param)


def check_text(param: str, value: str, longest: int) -> None:
    """Raise Problem for a text that no column can hold: too long, or with a NUL character."""
    if len(value) > longest or "\x00" in value:
        raise invalid(
            param, _("This must have at most %(max)d characters, and none that cannot be stored.") % {"max": longest}
        )


def not_found(param: str | None = None) -> Problem:
    return Problem(404, NOT_FOUND, "resource_not_found", _("There is no such object."), param)


def respond(problem: Problem, request_id: str) -> Response:
    """The error envelope."""
    error = {"type": problem.type, "code": problem.code, "message": problem.message}
    if problem.param is not None:
        error["param"] = problem.param
    return Response(
        {"error": {**error, "request_id": request_id}}, status=problem.status, headers=dict(problem.headers)
    )


def problem_of(error: Exception, sent: SentNames) -> Problem | None:
    """The error answer for an exception; None for an unexpected one."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, ValidationError):
        return _of_validation(error, sent)
    if isinstance(error, Http404):
        return not_found()
    if isinstance(error, PermissionDenied):
        return Problem(403, PERMISSION, "permission_denied", str(error) or _("You may not do this."))
    if isinstance(error, drf.APIException):
        return _of_framework(error)
    if isinstance(error, IdempotencyMismatch):
        words = _("This Idempotency-Key was used for another call. Nothing was done.")
        return Problem(409, IDEMPOTENCY, "idempotency_conflict", words, "Idempotency-Key")
    if isinstance(error, OperationClosed):
        words = _("This call was closed: it did not happen and will not. Another call needs another key.")
        return Problem(422, INVALID_STATE, "operation_closed", words)
    if isinstance(error, ProviderError):
        return _of_provider(error, sent)
    if isinstance(error, NoAnswer | PagingError):
        return _unavailable(503, {"Retry-After": str(_RETRY_AFTER)})
    if isinstance(error, WireError):
        return _unavailable(502)
    if isinstance(error, OperationalError | InterfaceError):
        # Lost, or not reachable: in the authentication, in a read, or while an operation is recorded.
        words = _("The database does not answer. Try again; a POST with the same Idempotency-Key.")
        return Problem(503, API_ERROR, "database_unavailable", words, headers={"Retry-After": str(_RETRY_AFTER)})
    return None


def log(error: Exception, problem: Problem, request_id: str, route: str) -> None:
    """Log one line. Only the log gets the provider's own message."""
    extra = {"api_request_id": request_id, "request_id": request_id_of(error)}
    if problem.status >= 500:
        # A provider's error contains its request id; no message repeats what was sent.
        reason = f"{type(error).__name__}: {error}" if isinstance(error, PaymentsError) else type(error).__name__
        logger.error("API request %s, %s: answered %s; %s", request_id, route, problem, reason, extra=extra)
    else:
        logger.info("API request %s, %s: answered %s", request_id, route, problem, extra=extra)


def _of_validation(error: ValidationError, sent: SentNames) -> Problem:
    """The first wrong argument. A precondition that does not hold is 422, not 400: the request itself is correct."""
    by_name = error.error_dict if hasattr(error, "error_dict") else {"": error.error_list}
    name, errors = next(iter(by_name.items()))
    message = " ".join(text for each in errors for text in each.messages)
    code = errors[0].code
    param = sent.renamed.get(name, name) or None
    if isinstance(error, PreconditionFailed) and name != "destination":
        if code == "insufficient_balance":
            return Problem(422, INVALID_STATE, code, message, param)
        if code == "max_value":
            return Problem(422, INVALID_REQUEST, "amount_out_of_range", message, param)
        return Problem(422, INVALID_STATE, "invalid_state", message)
    if param is not None and param not in sent.names:
        return missing(param, message)
    return Problem(400, INVALID_REQUEST, "parameter_invalid", message, param)


def _of_provider(error: ProviderError, sent: SentNames) -> Problem:
    """Refusals of the request are passed on; other errors are between the merchant and the provider."""
    param = error.param if error.param in sent.names else None
    if isinstance(error, InvalidRequest):
        status = error.status_code if error.status_code == 422 else 400
        return Problem(status, INVALID_REQUEST, error.code, error.message, param)
    if isinstance(error, InvalidState):
        return Problem(422, INVALID_STATE, error.code, error.message, param)
    if isinstance(error, NotFound):
        return not_found()
    if isinstance(error, RateLimited):
        wait = math.ceil(error.retry_after) if error.retry_after else _RETRY_AFTER
        return _unavailable(503, {"Retry-After": str(wait)}, closed=sent.is_change)
    return _unavailable(502, closed=sent.is_change)


def _unavailable(status: int, headers: Mapping[str, str] | None = None, *, closed: bool = False) -> Problem:
    words = _("The payment provider cannot do this now.")
    if closed:
        # The outbox answers the same to the same key for ever.
        words += " " + _("Nothing was done. Another try needs another Idempotency-Key.")
    return Problem(status, API_ERROR, "provider_unavailable", words, headers=headers)


def _of_framework(error: drf.APIException) -> Problem | None:
    if isinstance(error, drf.NotAuthenticated | drf.AuthenticationFailed):
        words = _("Sign in first.")
        header = getattr(error, "auth_header", None)
        headers = {"WWW-Authenticate": header} if header else {}
        return Problem(401, AUTHENTICATION, "not_authenticated", words, headers=headers)
    if isinstance(error, drf.PermissionDenied):
        return Problem(403, PERMISSION, "permission_denied", str(error.detail))
    if isinstance(error, drf.Throttled):
        wait = {"Retry-After": str(max(1, math.ceil(getattr(error, "wait", None) or 1)))}
        return Problem(429, RATE_LIMIT, "rate_limited", _("Too many requests."), headers=wait)
    if isinstance(error, drf.NotFound):
        return not_found()
    if error.status_code >= 500:
        return None
    code = _CODES.get(error.status_code, "parameter_invalid")
    return Problem(error.status_code, INVALID_REQUEST, code, str(error.detail))


_CODES = {
    400: "parameter_invalid",
    405: "method_not_allowed",
    406: "not_acceptable",
    413: "request_too_large",
    415: "unsupported_media_type",
}
