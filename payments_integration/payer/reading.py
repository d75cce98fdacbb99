"""Read a payment or a deposit reference from the provider while its payer waits, with limits on number and time."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TypeVar

from django.utils import timezone

from payments_integration import caching, conf, projection, sync, wakeup
from payments_integration.client import at_most
from payments_integration.db.transactions import refuse_transaction
from payments_integration.enums import PAID_PAYMENT_STATUSES, PaymentStatus
from payments_integration.exceptions import PaymentsError, request_id_of
from payments_integration.models import DepositReference, Payment
from payments_integration.runtime.logs import get_logger
from payments_integration.schemas import WireError

logger = get_logger(__name__)

RowT = TypeVar("RowT", Payment, DepositReference)

#: Seconds. A payment is read at most once in this time, no matter how many pages ask.
EVERY = 5.0
#: A payment that the provider does not know is read at most once in this time (seconds), for a day: a replica that is
#: behind may have answered.
GONE_EVERY = 60.0
_GONE_FOR = timedelta(days=1)
#: The most seconds that a payer waits for the provider.
MAX_WAIT = 2.0


def refreshed(payment: RowT, *, every: float = EVERY, max_wait: float = MAX_WAIT) -> RowT:
    """Return the payment or deposit reference as the provider has it now, or the given row if the read fails.

    Reads nothing if the row is paid, if the mirror confirmed it in the last ``every`` seconds, or if another page
    asked for it in that time. Unlike ``services.refresh``, it does not wait for the rate limit or for other work that
    is due, and it waits at most ``max_wait`` seconds in all. The provider's errors are logged.
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
    if projection.leaves_work(row, payment):
        # Dispatch the change to handlers; inline processing does so in this request if time is left.
        wakeup.wake(payment.account, deadline=started + max_wait)
    return row


def _is_due(payment: Payment | DepositReference, every: float) -> bool:
    if payment.status in (*PAID_PAYMENT_STATUSES, PaymentStatus.CHARGEBACK):
        return False
    if payment.account not in conf.current().ACCOUNTS:
        return False
    now = timezone.now()
    if payment.gone_at is not None:
        if now - payment.gone_at > _GONE_FOR:
            return False
        every = max(every, GONE_EVERY)
    # A time in the future was written while our clock was ahead, so it proves nothing.
    if timedelta() <= now - payment.synced_at < timedelta(seconds=every):
        return False
    # A read that fails leaves no trace in the mirror, so the cache counts attempts.
    # Each value of ``every`` counts its own attempts: a slow page does not delay the status for a returning payer.
    # Without a working cache, nothing is read: nothing would limit the reads.
    return caching.is_first(caching.key("checkout", payment.account, payment.pk, f"{every:g}"), every) is True
