"""What a service's answer or refusal is called in front of a person."""

from __future__ import annotations

from django.contrib.admin import AdminSite
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from payments_integration.admin import display
from payments_integration.exceptions import (
    ApprovalRequired,
    IdempotencyMismatch,
    NoAnswer,
    OutcomeUnknown,
    PaymentsError,
    ProviderError,
)
from payments_integration.models import Operation, OperationState

SENT_BEFORE = gettext_lazy(
    "This page was sent before with other values, and nothing was sent now. See what the first one did; "
    "open the page again for another."
)
#: The provider names it once; where that answer was lost there is only a new one.
NO_SECRET = gettext_lazy("Its secret did not come with the answer: rotate it, or no delivery can be verified.")


def explain(site: AdminSite, error: PaymentsError | ImproperlyConfigured) -> str:
    """One paragraph for the person who asked."""
    if isinstance(error, OutcomeUnknown):
        if error.operation.state == OperationState.NEEDS_PERSON:
            words = _("The outcome is not known, and a person must decide. Do not repeat it. Operation: {}")
        else:
            words = _("The outcome is not known yet; it resolves by itself. Do not repeat it. Operation: {}")
        return format_html(words, _operation(site, error.operation))
    if isinstance(error, ApprovalRequired):
        return format_html(
            _("Another person must approve this first; nothing was sent. Operation: {}"),
            _operation(site, error.operation),
        )
    if isinstance(error, IdempotencyMismatch):
        return str(SENT_BEFORE)
    if isinstance(error, ProviderError):
        return _("The provider refused: %(message)s (code %(code)s, request id %(request_id)s)") % {
            "message": display.text(error.message),
            "code": display.text(error.code),
            "request_id": display.text(error.request_id),
        }
    if isinstance(error, NoAnswer):
        return _("The provider gave no usable answer. Nothing was changed; try again later.")
    return _("This was not done: %(error)s") % {"error": display.text(error)}


def complaints(error: ValidationError) -> list[tuple[str, str]]:
    """Each message of a service's ValidationError with the argument it is about ("" where none is named)."""
    if hasattr(error, "error_dict"):
        return [(name, message) for name, found in error.message_dict.items() for message in found]
    return [("", message) for message in error.messages]


def _operation(site: AdminSite, operation: Operation) -> str:
    return display.admin_link(site, Operation, operation.pk)
