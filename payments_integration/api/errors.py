"""Every error of the API in the provider's envelope (spec, "Errors"), and what becomes of a service's exceptions.

    {"error": {"type": …, "code": …, "message": …, "param": …, "request_id": …}}

What is wrong between us and the provider is the merchant's to mend: the caller is told that it does not work now, and
the log why. What nobody expected stays Django's 500.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
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
    PaymentsError,
    ProviderError,
    RateLimited,
)
from payments_integration.services.intents import Doubt
from payments_integration.wire import WireError

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

#: Seconds after which it is worth another try, where the provider has not said.
_RETRY_AFTER = 5
NO_ACCOUNT = gettext_lazy("There is no such account.")
#: A parameter's name.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Problem(Exception):
    """An answer that is no success. Views raise it."""

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
        #: Callers may send any text as a name: one that is none stands neither in an answer nor in the log.
        self.param = param if param is not None and _NAME.fullmatch(param) else None
        self.headers = headers or {}

    def __str__(self) -> str:
        return f"{self.status} {self.code}" + (f", param {self.param}" if self.param else "")


@dataclass(frozen=True, slots=True)
class Given:
    """What the caller sent, to tell what is missing from what is wrong. Without the values."""

    names: Collection[str] = ()
    #: Names of a service's arguments that the API calls otherwise.
    renamed: Mapping[str, str] = field(default_factory=dict)
    #: Whether it was to change something.
    is_change: bool = False


def invalid(param: str, message: StrOrPromise) -> Problem:
    return Problem(400, INVALID_REQUEST, "parameter_invalid", str(message), param)


def missing(param: str, message: str | None = None) -> Problem:
    return Problem(400, INVALID_REQUEST, "parameter_missing", message or _("This is required."), param)


def check_text(param: str, value: str, longest: int) -> None:
    """Raise Problem for a text that is in no column: too long for it, or nothing that a database takes."""
    if len(value) > longest or "\x00" in value:
        raise invalid(
            param, _("This must have at most %(max)d characters, and none that cannot be stored.") % {"max": longest}
        )


def not_found(param: str | None = None) -> Problem:
    return Problem(404, NOT_FOUND, "resource_not_found", _("There is no such object."), param)


def respond(problem: Problem, request_id: str) -> Response:
    """The envelope."""
    error = {"type": problem.type, "code": problem.code, "message": problem.message}
    if problem.param is not None:
        error["param"] = problem.param
    return Response(
        {"error": {**error, "request_id": request_id}}, status=problem.status, headers=dict(problem.headers)
    )


def problem_of(error: Exception, given: Given) -> Problem | None:
    """What an exception means to the caller; None for one that nobody expected."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, ValidationError):
        return _of_validation(error, given)
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
        return _of_provider(error, given)
    if isinstance(error, NoAnswer):
        return _unavailable(503, {"Retry-After": str(_RETRY_AFTER)})
    if isinstance(error, WireError):
        return _unavailable(502)
    return None


def log(error: Exception, problem: Problem, request_id: str, what: str) -> None:
    """One line; the provider's own words only here."""
    if problem.status >= 500:
        # A provider's error names its request id; none of these repeats what was sent.
        reason = f"{type(error).__name__}: {error}" if isinstance(error, PaymentsError) else type(error).__name__
        logger.error("API request %s, %s: answered %s; %s", request_id, what, problem, reason)
    else:
        logger.info("API request %s, %s: answered %s", request_id, what, problem)


def _of_validation(error: ValidationError, given: Given) -> Problem:
    """The first argument at fault. What the state of things forbids is no mistake in the request."""
    by_name = error.error_dict if hasattr(error, "error_dict") else {"": error.error_list}
    name, errors = next(iter(by_name.items()))
    message = " ".join(text for each in errors for text in each.messages)
    code = errors[0].code
    param = given.renamed.get(name, name) or None
    if isinstance(error, Doubt) and name != "destination":
        if code == "insufficient_balance":
            return Problem(422, INVALID_STATE, code, message, param)
        if code == "max_value":
            return Problem(422, INVALID_REQUEST, "amount_out_of_range", message, param)
        return Problem(422, INVALID_STATE, "invalid_state", message)
    if param is not None and param not in given.names:
        return missing(param, message)
    return Problem(400, INVALID_REQUEST, "parameter_invalid", message, param)


def _of_provider(error: ProviderError, given: Given) -> Problem:
    """Refusals that say something about the request are passed on; the others are between the merchant and the
    provider.
    """
    param = error.param if error.param in given.names else None
    if isinstance(error, InvalidRequest):
        status = error.status_code if error.status_code == 422 else 400
        return Problem(status, INVALID_REQUEST, error.code, error.message, param)
    if isinstance(error, InvalidState):
        return Problem(422, INVALID_STATE, error.code, error.message, param)
    if isinstance(error, NotFound):
        return not_found()
    if isinstance(error, RateLimited):
        wait = math.ceil(error.retry_after) if error.retry_after else _RETRY_AFTER
        return _unavailable(503, {"Retry-After": str(wait)}, closed=given.is_change)
    return _unavailable(502, closed=given.is_change)


def _unavailable(status: int, headers: Mapping[str, str] | None = None, *, closed: bool = False) -> Problem:
    words = _("The payment provider cannot do this now.")
    if closed:
        # The ledger answers the same to the same key for ever.
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
