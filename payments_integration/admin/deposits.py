"""The payments that probably came in through a deposit reference.

The provider makes a payment of each transfer to a reference and names the reference nowhere (spec, "Deposit
references"). What such a payment shares with it is its flow, method, country, currency and merchant reference.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _

from payments_integration.admin import display
from payments_integration.admin.sections import Page, Section, Table
from payments_integration.enums import Flow
from payments_integration.models import DepositReference, Payment

TITLE = _("Payments that probably came in through it")
NOTE = _(
    "The provider does not say which reference a payment came in through. These have the same merchant reference, "
    "method, country and currency, and were made after it; another reference of the same payer may have brought them."
)
NO_REFERENCE = _(
    "This deposit reference has no merchant reference, so its payments cannot be told from those of others."
)


def payments_through(page: Page, obj: DepositReference) -> Iterable[Section]:
    if not obj.merchant_reference:
        if page.may_view(Payment):
            yield Table(TITLE, (), [], "", NO_REFERENCE)
        return
    yield from page.section(
        TITLE,
        likely(obj).order_by("-created_at", "-pk"),
        {
            _("Payment"): lambda row: display.admin_link(page.site, Payment, row.pk),
            _("Status"): lambda row: display.status(row.status, Payment.Status),
            _("Received"): lambda row: display.money(row.amount_received, row.currency),
            _("Merchant reference"): lambda row: display.text(row.merchant_reference),
            _("Created at"): lambda row: display.moment(row.created_at),
        },
        obj.merchant_reference,
        note=NOTE,
    )


def likely(obj: DepositReference) -> QuerySet[Payment]:
    """By the index on the merchant reference; without one there is nothing to tell them by."""
    # The flow may be left out of a payment; one that says another did not come this way.
    by_deposit = Q(flow=Flow.DEPOSIT_REFERENCE) | Q(flow=None) | Q(flow="")
    return Payment.objects.filter(
        by_deposit,
        account=obj.account,
        merchant_reference=obj.merchant_reference,
        method_code=obj.method_code,
        country=obj.country,
        currency=obj.currency,
        created_at__gte=obj.created_at,
    ).defer("payer", "next_action", "metadata", "extra")
