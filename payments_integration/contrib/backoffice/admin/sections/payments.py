"""Show a payment: the calculation and the payer beside its page, and what the payer has to do."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils.translation import gettext_lazy as _

from payments_integration.admin.base import MIRROR_FIELDS
from payments_integration.admin.models import payments
from payments_integration.admin.shared import display, people
from payments_integration.admin.shared.people import Fact
from payments_integration.admin.shared.sections import Page, Section
from payments_integration.contrib.backoffice.admin.sections import next_actions, orders, tables
from payments_integration.contrib.backoffice.admin.sections.base import SectionsAdmin
from payments_integration.contrib.backoffice.admin.sections.calculation import advice, calculation
from payments_integration.contrib.backoffice.admin.sections.people import Facts, facts_section
from payments_integration.enums import OPEN_PAYMENT_STATUSES, PaymentStatus
from payments_integration.models import Payment
from payments_integration.money import format_money


class PaymentSectionsAdmin(SectionsAdmin, payments.PaymentAdmin):
    personal = ("state_shown", "payer_name", "extra_shown")
    fieldsets = (
        (
            _("Identifiers"),
            {
                "classes": ("collapse",),
                "fields": (
                    "id", "reference_shown", "method_code", "family_shown", "flow_shown", "country_shown",
                    "checkout_link",
                ),
            },
        ),
        MIRROR_FIELDS,
    )  # fmt: skip

    def headline(self, page: Page, obj: Payment) -> Iterable[str]:
        yield display.money(obj.amount, obj.currency)
        yield display.status(obj.status, PaymentStatus)
        yield people.name(page, obj, "payer")
        yield orders.order_link(page, obj)

    def whose(self, page: Page, obj: Payment) -> Iterable[str]:
        yield format_money(obj.amount, obj.currency)
        yield people.name(page, obj, "payer")

    def aside(self, page: Page, obj: Payment) -> Iterable[Section]:
        yield calculation(page, obj)
        yield from facts_section(page, _("Payer"), obj, "payer")
        yield Facts(_("Payment"), list(_facts(obj)))
        yield from facts_section(page, _("Metadata"), obj, "metadata")

    def lead(self, page: Page, obj: Payment) -> Iterable[Section]:
        yield from advice(page, obj)
        if obj.status in OPEN_PAYMENT_STATUSES:
            yield from next_actions.section(page, _("What the payer has to do"), obj, "next_action")

    def details(self, page: Page, obj: Payment) -> Iterable[Section]:
        yield from tables.refunds(page, obj.refunds.all(), obj.object_id, is_folded=True)
        if obj.status not in OPEN_PAYMENT_STATUSES:
            title = _("What the payer was shown")
            yield from next_actions.section(page, title, obj, "next_action", is_folded=True)


def _facts(payment: Payment) -> Iterable[Fact]:
    yield _("Order"), display.text(payment.merchant_reference)
    yield _("Method"), display.method_name(payment.method_code)
    for label, at in (
        (_("Created at"), payment.created_at),
        (_("Expires at"), payment.expires_at),
        (_("Succeeded at"), payment.succeeded_at),
    ):
        if at:
            yield label, display.moment(at)
