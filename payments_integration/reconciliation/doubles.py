"""Report orders that were paid for more than once, until the surplus has gone back.

A pass searches the payments whose rows were written since the last pass. So no event costs more, and two payments that
are paid at the same moment in two processes are seen together.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from django.db import router
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from payments_integration import conf, projection
from payments_integration.attention import call_attention
from payments_integration.db import statements
from payments_integration.db.transactions import deleted, repeatable, updated
from payments_integration.enums import RECEIVED_PAYMENT_STATUSES
from payments_integration.models import DoublePayment, Payment
from payments_integration.payable.doubles import Double, find_doubles
from payments_integration.payable.queries import DEPOSITS
from payments_integration.reconciliation.runs import ensured_state
from payments_integration.signals import Reason

#: A row is seen after its commit, which may come this long after the time that the row carries; and clocks differ.
OVERLAP = timedelta(minutes=15)
#: How many are shown.
LIMIT = 1_000


def report_doubles(account: str) -> None:
    """Record and report what was paid for more than once, and forget what is over."""
    if not conf.current().REPORT_DOUBLE_PAYMENTS:
        return
    state, begun = ensured_state(account), timezone.now()
    sought_at = state.values_list("doubles_sought_at", flat=True).get()
    _forget_resolved(account)
    found = find_doubles(account, _candidates(account, sought_at and min(sought_at, begun) - OVERLAP))
    for double in found:
        repeatable(partial(_report, account, double), using=router.db_for_write(DoublePayment))
    updated(state, doubles_sought_at=begun)


def doubles_of(account: str) -> list[tuple[Double, datetime]]:
    """Return what is reported and still paid for more than once, and when it was found; the oldest ``LIMIT``."""
    known = dict(list(_known(account).items())[:LIMIT])
    found = [(double, known[double.merchant_reference, double.currency]) for double in find_doubles(account, known)]
    return sorted(found, key=lambda pair: pair[1])


def _known(account: str) -> dict[tuple[str, str], datetime]:
    """Return what is reported, oldest first."""
    rows = DoublePayment.objects.filter(account=account).order_by("found_at", "pk")
    return {
        (reference, currency): found_at
        for reference, currency, found_at in rows.values_list("merchant_reference", "currency", "found_at")
    }


def _candidates(account: str, since: datetime | None) -> list[tuple[str, str]]:
    """Return references and currencies with two payments that received money, one of them written since then."""
    received = _received(account)
    others = _received(OuterRef("account")).filter(
        merchant_reference=OuterRef("merchant_reference"), currency=OuterRef("currency")
    )
    found = received.exclude(merchant_reference=None).exclude(merchant_reference="")
    if since is not None:
        found = found.filter(synced_at__gte=since)
    begins_at = projection.dispatch_begins_at(account)
    if begins_at is not None:
        # Payments from before the installation are settled elsewhere.
        found = found.filter(Q(succeeded_at__gte=begins_at) | Q(succeeded_at=None, created_at__gte=begins_at))
    found = found.filter(Exists(others.exclude(pk=OuterRef("pk"))))
    rows = found.order_by().values_list("merchant_reference", "currency").distinct()
    return [(str(reference), currency) for reference, currency in rows]


def _received(account: str | OuterRef) -> QuerySet[Payment]:
    return Payment.objects.filter(account=account, status__in=RECEIVED_PAYMENT_STATUSES).exclude(DEPOSITS)


def _forget_resolved(account: str) -> None:
    known = _known(account)
    still = {(double.merchant_reference, double.currency) for double in find_doubles(account, known)}
    for reference, currency in known.keys() - still:
        deleted(DoublePayment.objects.filter(account=account, merchant_reference=reference, currency=currency))


def _report(account: str, double: Double) -> None:
    key = {"account": account, "merchant_reference": double.merchant_reference, "currency": double.currency}
    if DoublePayment.objects.filter(**key).exists():
        return
    statements.insert_many([DoublePayment(**key)], keys=False)
    ids, times = ", ".join(payment.pk for payment in double.payments), len(double.payments)
    message = f"{double.merchant_reference} was paid for {times} times: {ids} hold money in {double.currency}"
    call_attention(double.payments[-1], Reason.PAID_TWICE, message)
