"""A GET for a payer who comes back, within bounds: no reload floods the provider, and nobody waits for it for long."""

from __future__ import annotations

import hashlib
import logging
import time
from datetime import timedelta

from django.core.cache import cache
from django.utils import timezone

from payments_integration import conf, wakeup
from payments_integration.checkout.standing import PAID
from payments_integration.client import at_most
from payments_integration.enums import Kind, PaymentStatus
from payments_integration.exceptions import PaymentsError
from payments_integration.models import Payment
from payments_integration.services import guards, reads
from payments_integration.wire import WireError

logger = logging.getLogger(__name__)

#: A payment is read once in so many seconds, however many pages ask.
EVERY = 5.0
#: What a payer waits for the provider, in seconds.
PATIENCE = 2.0


def freshened(payment: Payment, *, every: float = EVERY, patience: float = PATIENCE) -> Payment:
    """The payment as the provider has it now, where that can be known in time; else as the mirror has it.

    Not read: what is paid, what was heard of in the last ``every`` seconds, and what another page has asked for since
    then. Like ``services.refresh``, but it waits neither for the rate limit nor for other work that is due:
    ``patience`` seconds are all there is. Errors of the provider are logged.
    """
    if not _is_due(payment, every):
        return payment
    started = time.monotonic()
    try:
        guards.refuse_transaction("refresh")
        with at_most(patience):
            row: Payment = reads.read(Kind.PAYMENT, payment.account, payment.pk, wait=0.0)
    except (PaymentsError, WireError) as error:
        logger.info("The payment %s could not be read: %s", payment.pk, error)
        return payment
    # What has changed is told: in this request ("inline"), as far as there is time.
    wakeup.wake(payment.account, deadline=started + patience)
    return row


def _is_due(payment: Payment, every: float) -> bool:
    if payment.status in PAID or payment.status == PaymentStatus.CHARGEBACK or payment.gone_at is not None:
        return False
    if payment.account not in conf.current().ACCOUNTS:
        return False
    if timezone.now() - payment.synced_at < timedelta(seconds=every):
        return False
    # A provider that does not answer leaves no trace in the mirror: what is tried is noted apart.
    key = hashlib.sha256(f"{payment.account} {payment.pk}".encode()).hexdigest()
    try:
        return bool(cache.add(f"payments-checkout-{key}", 1, timeout=every))
    except Exception:
        # Caches raise whatever their drivers do. Without one nothing bounds the reads.
        logger.exception("The cache does not work, so that the payment %s was not read", payment.pk)
        return False
