"""Show a payout: what it takes from the balance and the recipient beside its page, and what its status means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.db.models import Q
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy as _

from payments_integration.admin.base import MIRROR_FIELDS
from payments_integration.admin.models import payouts
from payments_integration.admin.shared import display, people
from payments_integration.admin.shared.people import Fact
from payments_integration.admin.shared.sections import Page, Section
from payments_integration.contrib.backoffice.admin.sections import orders, tables
from payments_integration.contrib.backoffice.admin.sections.base import SectionsAdmin
from payments_integration.contrib.backoffice.admin.sections.calculation import Calculation, Row
from payments_integration.contrib.backoffice.admin.sections.people import Facts, facts_section
from payments_integration.contrib.backoffice.admin.sections.tables import Advice
from payments_integration.enums import OPEN_PAYOUT_STATUSES, PayoutStatus
from payments_integration.models import Payout, Refund
from payments_integration.money import format_money
from payments_integration.payer.names import reason_text


class PayoutSectionsAdmin(SectionsAdmin, payouts.PayoutAdmin):
    personal = ("state_shown", "recipient_name", "extra_shown")
    fieldsets = (
        (
            _("Identifiers"),
            {"classes": ("collapse",), "fields": ("id", "reference_shown", "method_code", "country_shown")},
        ),
        MIRROR_FIELDS,
    )  # fmt: skip

    def headline(self, page: Page, obj: Payout) -> Iterable[str]:
        yield display.money(obj.amount, obj.currency)
        yield display.status(obj.status, PayoutStatus)
        yield people.name(page, obj, "destination")
        yield orders.order_link(page, obj)

    def whose(self, page: Page, obj: Payout) -> Iterable[str]:
        yield format_money(obj.amount, obj.currency)
        yield people.name(page, obj, "destination")

    def aside(self, page: Page, obj: Payout) -> Iterable[Section]:
        yield Calculation([], list(_rows(obj)), [], _("What it takes from the balance"))
        yield from facts_section(page, _("Recipient"), obj, "destination")
        facts: list[Fact] = [
            (_("Order"), display.text(obj.merchant_reference)),
            (_("Method"), display.method_name(obj.method_code)),
            (_("Refund"), display.admin_link(page.site, Refund, obj.refund_id) if obj.refund_id else ""),
            (_("Created at"), display.moment(obj.created_at)),
            (_("Succeeded at"), display.moment(obj.succeeded_at) if obj.succeeded_at else ""),
        ]
        yield Facts(_("Payout"), facts)
        yield from facts_section(page, _("Metadata"), obj, "metadata")

    def lead(self, page: Page, obj: Payout) -> Iterable[Section]:
        if sentences := list(filter(None, self.sentences(page, obj))):
            yield Advice(_("What it means"), sentences)

    def sentences(self, page: Page, obj: Payout) -> Iterator[str]:
        """Say why it did not arrive, and what a person can do about it."""
        if obj.failure_reason:
            yield format_html(gettext("Failure reason: {}"), page.personal(reason_text(obj.failure_reason)))
        if obj.status == PayoutStatus.ON_HOLD:
            yield gettext("The provider holds it. Ask the provider what it waits for.")

    def details(self, page: Page, obj: Payout) -> Iterable[Section]:
        # A payout may arrive before the refund that it executes, or after it.
        refunds = Refund.objects.filter(Q(payout_id=obj.pk) | Q(pk=obj.refund_id), account=obj.account)
        yield from tables.refunds(page, refunds, obj.object_id, of_payout=True)


def _rows(payout: Payout) -> Iterator[Row]:
    """Yield what the payout takes from the balance. The provider does not say that a fee comes back."""

    def shown(amount: int) -> str:
        return display.money(amount, payout.currency)

    yield Row(_("Amount"), shown(payout.amount))
    if payout.status in (PayoutStatus.FAILED, PayoutStatus.CANCELED):
        yield Row(_("Came back"), shown(payout.amount), "−")  # noqa: RUF001  (a minus sign)
        yield Row(_("Total debited"), shown(0), "=")
        return
    if payout.fee is None:
        yield Row(_("Fee"), gettext("not known"), "+")
        total: str = format_html(gettext("{} and the fee"), shown(payout.amount))
    else:
        yield Row(_("Fee"), shown(payout.fee), "+")
        total = shown(payout.amount + payout.fee)
    if payout.status == PayoutStatus.SUCCEEDED:
        yield Row(_("Total debited"), total, "=")
    elif payout.status == PayoutStatus.RETURNED:
        yield Row(_("Total debited"), total, "=")
        yield Row(_("Came back"), shown(payout.amount))
    elif payout.status in OPEN_PAYOUT_STATUSES:
        yield Row(_("Reserved from the balance"), total, "=")
