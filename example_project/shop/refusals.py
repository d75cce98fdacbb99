"""A refusal in the payer's words; the details are for the log."""

from __future__ import annotations

import logging

from django.core.exceptions import ValidationError

from payments_integration.exceptions import PaymentsError

logger = logging.getLogger(__name__)

UNREACHABLE = "We cannot reach the payment provider just now. Please try again in a moment."
_WORDS = {
    "amount_out_of_range": "This way of paying does not take such an amount. Please choose another.",
    "method_not_available": "This way of paying is not available just now. Please choose another.",
    "method_not_allowed": "This way of paying is not available. Please choose another.",
    "country_not_allowed": "We cannot take payments from this country.",
    "blocked_payer": "We cannot take this payment.",
    "rate_limited": "Many people are paying just now. Nothing was charged; please try again.",
}


def explain(error: PaymentsError | ValidationError) -> str:
    if isinstance(error, ValidationError):
        return " ".join(error.messages)
    logger.warning("The provider refused: %s", error)
    otherwise = "The payment could not be set up. Nothing was charged; please try again."
    return _WORDS.get(getattr(error, "code", ""), otherwise)
