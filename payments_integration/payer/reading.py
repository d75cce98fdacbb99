"""Reading a payment or a deposit reference from the provider while its payer waits: limited in number and time."""

from __future__ import annotations

import hashlib
import logging
import time
from datetime import timedelta
from typing import TypeVar

from django.core.cache import cache
from django.utils import timezone

from payments_integration import conf, sync, wakeup
from payments_integration.client import at_most
from payments_integration.db.transactions import refuse_transaction
from payments_integration.enums import PAID_PAYMENT_STATUSES, PaymentStatus
from payments_integration.exceptions import PaymentsError, request_id_of
from payments_integration.models import DepositReference, Payment
from payments_integration.schemas import WireError

logger = logging.getLogger(__name__)

RowT = TypeVar("RowT", Payment, DepositReference)

#: Seconds in which a payment is read once at most, however many pages ask.
EVERY = 5.0
#: Seconds that a payer waits for the provider.
MAX_WAIT = 2.0


def refreshed(payment: RowT, *, every: float = EVERY, max_wait: float = MAX_WAIT) -> RowT:
    """The payment or deposit reference as the provider has it now, or as the mirror has it if the provider does not
    answer in time.

    It is not read if it is paid, if the mirror confirmed it in the last ``every`` seconds, or if another page asked
    for it since then. Unlike ``services.refresh`` this waits neither for the rate limit nor for other work that is
    due, and ``max_wait`` seconds in all. Errors of the provider are logged.
    """
    if not _is_due(payment, every):
        return payment
    started = time.monotonic()
    try:
        refuse_transaction("refresh")
        with at_most(max_wait):
            row: RowT = sync.read(payment.kind, payment.account, payment.pk, wait=0.0)
    except (PaymentsError, WireError) as error:
        extra = {"account": payment.account, "request_id": request_id_of(error)}
        logger.info("%s could not be read: %s", payment.pk, error, extra=extra)
        return payment
    # Changes are dispatched to handlers: in this request ("inline") if time is left.
    wakeup.wake(payment.account, deadline=started + max_wait)
    return row


def _is_due(payment: Payment | DepositReference, every: float) -> bool:
    if payment.status in (*PAID_PAYMENT_STATUSES, PaymentStatus.CHARGEBACK) or payment.gone_at is not None:
        return False
    if payment.account not in conf.current().ACCOUNTS:
        return False
    # A time in the future was written while our clock was ahead.
    if timedelta() <= timezone.now() - payment.synced_at < timedelta(seconds=every):
        return False
    # A read that fails leaves no trace in the mirror, so the cache counts attempts.
    # Each pace counts for itself: a slow page does not keep a returning payer from the news.
    key = hashlib.sha256(f"{payment.account} {payment.pk} {every:g}".encode()).hexdigest()
    try:
        return bool(cache.add(f"payments-checkout-{key}", 1, timeout=every))
    except Exception:
        # Each cache raises its driver's errors. Without a cache nothing would limit the reads.
        extra = {"account": payment.account}
        logger.exception("The cache does not work, so %s was not read", payment.pk, extra=extra)
        return False
