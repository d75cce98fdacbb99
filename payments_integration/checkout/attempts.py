"""Send a payer to an attempt to pay, note their return, and cancel attempts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from django.http import HttpRequest
from django.utils import timezone

from payments_integration import services
from payments_integration.enums import CANCELABLE_PAYMENT_STATUSES, OPEN_PAYMENT_STATUSES, Flow
from payments_integration.exceptions import ProviderError
from payments_integration.models import Payment
from payments_integration.payer.reading import refreshed
from payments_integration.validation.urls import is_payer_link

#: Seconds before a page asks for the money again, because a payer who comes back has probably paid.
WAIT_FOR_MONEY = 30
_RETURNED = "payments_returned"


def provider_page(payment: Payment) -> str:
    """Return the provider's page for the payer, if the payment is open and of the hosted flow; otherwise ""."""
    address, is_open = payment.checkout_url or "", payment.status in OPEN_PAYMENT_STATUSES
    return address if is_open and payment.flow != Flow.S2S and is_payer_link(address) else ""


def note_return(request: HttpRequest, merchant_reference: str) -> None:
    """Note in the session that the payer has just come back from paying. Call it in your return view."""
    request.session[_RETURNED] = [merchant_reference, timezone.now().timestamp()]


def has_returned(request: HttpRequest, merchant_reference: str) -> bool:
    """Return True if the payer came back from paying it in the last WAIT_FOR_MONEY seconds.

    False in a project without sessions.
    """
    session = getattr(request, "session", {})
    reference, at = session.get(_RETURNED, ["", 0.0])
    return bool(reference == merchant_reference and timezone.now().timestamp() - at < WAIT_FOR_MONEY)


def cancel_attempt(payment: Payment | None, submission: str, *, actor: object = "") -> bool:
    """Cancel an open attempt for its payer. Returns False if there is nothing to cancel: it was paid or has ended.

    ``submission`` is a value from the form. It makes a double click one call. Raises what ``services.cancel_payment``
    raises for other failures, such as OutcomeUnknown, and ValidationError for an empty ``submission``.
    """
    if payment is None or payment.status not in CANCELABLE_PAYMENT_STATUSES:
        return False
    try:
        key = services.scoped_key(submission, "cancel", payment.pk)
        services.cancel_payment(payment, idempotency_key=key, actor=actor)
    except services.PreconditionFailed:
        return False
    except ProviderError as error:
        if error.code != "invalid_state":
            raise
        # It was paid or has ended, but the event has not come yet.
        refreshed(payment, every=0)
        return False
    return True


def close_attempts(payments: Iterable[Payment], *, actor: object = "") -> None:
    """Cancel the attempts that are still open, so that the payer of a paid order cannot pay twice.

    For handlers: the calls are sent after the handler's transaction, or by the next ``resume_operations``. If an
    attempt is paid first, its cancellation is refused and its money is a surplus.
    """
    for payment in payments:
        if payment.status in CANCELABLE_PAYMENT_STATUSES:
            # Its status may have changed since it was read. The handler's own changes must be saved anyway.
            with contextlib.suppress(services.PreconditionFailed):
                key = f"superfluous-{payment.pk}"
                services.defer(services.cancel_payment, payment, idempotency_key=key, actor=actor)
