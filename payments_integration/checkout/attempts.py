"""What a payer does with the attempts to pay for an order: be sent on, come back, cancel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils import timezone

from payments_integration import services
from payments_integration.enums import CANCELABLE_PAYMENT_STATUSES, OPEN_PAYMENT_STATUSES, Flow
from payments_integration.exceptions import ProviderError
from payments_integration.models import Payment
from payments_integration.payer.reading import refreshed
from payments_integration.validation.urls import is_payer_link

#: Seconds. A payer who comes back has probably paid, so a page waits this long before it asks for the money again.
WAIT_FOR_MONEY = 30
_RETURNED = "payments_returned"


def provider_page(payment: Payment) -> str:
    """Where to send the payer: the provider's page, while an open payment of the hosted flow has one; else empty."""
    address, is_open = payment.checkout_url or "", payment.status in OPEN_PAYMENT_STATUSES
    return address if is_open and payment.flow != Flow.S2S and is_payer_link(address) else ""


def note_return(request: HttpRequest, merchant_reference: str) -> None:
    """Note in the session that the payer came back from paying this just now: call it in your return view."""
    request.session[_RETURNED] = [merchant_reference, timezone.now().timestamp()]


def has_returned(request: HttpRequest, merchant_reference: str) -> bool:
    """Whether the payer came back from paying it in the last WAIT_FOR_MONEY seconds."""
    reference, at = request.session.get(_RETURNED, ["", 0.0])
    return bool(reference == merchant_reference and timezone.now().timestamp() - at < WAIT_FOR_MONEY)


def cancel_attempt(payment: Payment | None, submission: str, *, actor: object = "") -> bool:
    """Cancel an open attempt for its payer; False if there is nothing to cancel: it was paid or ended meanwhile.

    ``submission``: a value of the form, so that a double click is one call. Raises the same as
    ``services.cancel_payment`` for anything else, such as OutcomeUnknown.
    """
    if payment is None or payment.status not in CANCELABLE_PAYMENT_STATUSES:
        return False
    try:
        key = services.scoped_key(submission, "cancel", payment.pk)
        services.cancel_payment(payment, idempotency_key=key, actor=actor)
    except ValidationError:
        return False
    except ProviderError as error:
        if error.code != "invalid_state":
            raise
        # It was paid or ended, and the event has not come yet.
        refreshed(payment, every=0)
        return False
    return True


def close_attempts(payments: Iterable[Payment], *, actor: object = "") -> None:
    """Cancel the attempts that are still open, so that the payer of a paid order cannot pay twice.

    For handlers: sent after their transaction, or by the next ``resume_operations``. If one is paid meanwhile, its
    cancellation is refused, and its money is a surplus.
    """
    for payment in payments:
        if payment.status in CANCELABLE_PAYMENT_STATUSES:
            # Its status may have changed since it was read. What the handler does must be saved anyway.
            with contextlib.suppress(ValidationError):
                key = f"superfluous-{payment.pk}"
                services.defer(services.cancel_payment, payment, idempotency_key=key, actor=actor)
