"""Tell a payer in plain words why a payment was not created."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration.exceptions import ApiError, IdempotencyMismatch, NoAnswer, PaymentsError, request_id_of
from payments_integration.runtime.logs import get_logger
from payments_integration.validation.text import StrOrPromise

logger = get_logger(__name__)

_WORDS: dict[str, StrOrPromise] = {
    "amount_out_of_range": gettext_lazy("This way of paying does not take such an amount. Please choose another."),
    "method_not_available": gettext_lazy("This way of paying is not available just now. Please choose another."),
    "method_not_allowed": gettext_lazy("This way of paying is not available. Please choose another."),
    "country_not_allowed": gettext_lazy("We cannot take payments from this country."),
    "blocked_payer": gettext_lazy("We cannot take this payment."),
    "rate_limited": gettext_lazy("Many people are paying just now. Nothing was charged; please try again."),
}


def explain(error: PaymentsError | ValidationError) -> str:
    """Return a refusal of ``create_payment`` or :func:`methods` in the active language. Log the details.

    Do not use it for OutcomeUnknown: the payment may exist, so show the order's page instead.
    """
    # Also a wrong argument, such as a return_url behind a proxy: the payer's words do not name it.
    logger.warning("A payer could not pay: %s", error, extra={"request_id": request_id_of(error)})
    if isinstance(error, ValidationError):
        return " ".join(error.messages)
    if isinstance(error, IdempotencyMismatch):  # trying again changes nothing, and the first call may be paid
        return _(
            "This was asked for with other details before. Nothing was done. If that payment is open, cancel it first."
        )
    if isinstance(error, NoAnswer | ApiError):
        return _("We cannot reach the payment provider just now. Please try again in a moment.")
    otherwise = _("The payment could not be set up. Nothing was charged; please try again.")
    return str(_WORDS.get(getattr(error, "code", ""), otherwise))
