"""Show a deposit reference, and the payments that probably came in through one.

The provider turns each transfer to a reference into a payment, but does not say to which reference (spec, "Deposit
references"). Such a payment has the reference's flow, method, country, currency and merchant reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlencode

from django.db.models import Model, Q, QuerySet
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy as _

from payments_integration.admin.base import MIRROR_FIELDS
from payments_integration.admin.models import deposit_references
from payments_integration.admin.shared import display
from payments_integration.admin.shared.people import Fact, name_in
from payments_integration.admin.shared.sections import Page, Section, Table, once
from payments_integration.contrib.backoffice.admin.sections import next_actions, orders
from payments_integration.contrib.backoffice.admin.sections.base import SectionsAdmin
from payments_integration.contrib.backoffice.admin.sections.people import Facts
from payments_integration.enums import RECEIVED_PAYMENT_STATUSES, DepositReferenceStatus, Flow
from payments_integration.models import DepositReference, Operation, Payment
from payments_integration.next_action import BankTransfer, parse

#: The maximum of payments in the total received.
MAX_COUNTED = 500

TITLE = _("Payments that probably came in through it")
NOTE = _(
    "The provider does not say which reference a payment came in through. These have the same merchant reference, "
    "method, country and currency, and were made after it; another reference of the same payer may have brought them."
)
NO_REFERENCE = _("This deposit reference has no merchant reference, so its payments cannot be identified.")


class DepositReferenceSectionsAdmin(SectionsAdmin, deposit_references.DepositReferenceAdmin):
    personal = ("extra_shown",)
    fieldsets = (
        (_("Identifiers"), {"classes": ("collapse",), "fields": ("id", "method_code")}),
        MIRROR_FIELDS,
    )

    def headline(self, page: Page, obj: DepositReference) -> Iterable[str]:
        if code := _code(obj):
            yield format_html('<code class="pi-code pi-copied">{}</code>', page.personal(code))
        yield display.status(obj.status, DepositReferenceStatus)
        if name := _payer(obj):
            yield page.personal(name)
        yield orders.order_link(page, obj)

    def whose(self, page: Page, obj: DepositReference) -> Iterable[str]:
        if code := _code(obj):
            yield page.personal(code)
        if name := _payer(obj):
            yield page.personal(name)

    def aside(self, page: Page, obj: DepositReference) -> Iterable[Section]:
        if obj.merchant_reference and page.may_view(Payment):
            yield received_section(obj)
        facts: list[Fact] = [
            # Links to the payments that have this reference.
            (_("Order"), _search_link(page, Payment, obj.merchant_reference)),
            (_("Method"), display.method_name(obj.method_code)),
            (_("Country"), str(self.country_shown(obj))),
            (_("Currency"), display.text(obj.currency)),
            (_("Created at"), display.moment(obj.created_at)),
        ]
        yield Facts(_("Deposit reference"), facts)

    def lead(self, page: Page, obj: DepositReference) -> Iterable[Section]:
        yield from next_actions.section(page, _("What the payer needs"), obj, "details")
        yield from payments_section(page, obj)


def _search_link(page: Page, model: type[Model], text_searched: str | None) -> str:
    """Return a text as a link to the rows of a list that a search for it finds."""
    url = display.list_url(page.site, model) if text_searched and page.may_view(model) else ""
    if not url:
        return display.text(text_searched)
    return format_html('<a href="{}?{}">{}</a>', url, urlencode({"q": text_searched}), display.text(text_searched))


def _code(obj: DepositReference) -> str:
    """Return the reference that the payer must write, or the account number that the payer must transfer to."""
    details = parse(obj.details)
    if details is None:
        return ""
    return details.reference or (details.bank_transfer or BankTransfer()).account_number


def _payer(obj: DepositReference) -> str:
    """Return the payer it was made for. The provider does not return them, so read them once from our own request."""
    return once(obj, "pi_payer", lambda: _read_payer(obj))


def _read_payer(obj: DepositReference) -> str:
    made = Operation.objects.filter(account=obj.account, result_kind=obj.kind, result_id=obj.pk).first()
    return name_in(made.arguments.get("payer")) if made is not None else ""


def received_section(obj: DepositReference) -> Section:
    """Show the total of its probable payments, except payments on hold or charged back."""
    found = list(_newest(obj).values_list("status", "amount_received", "created_at")[: MAX_COUNTED + 1])
    counted = found[:MAX_COUNTED]
    received = [amount for status, amount, _at in counted if status in RECEIVED_PAYMENT_STATUSES and amount]
    facts: list[Fact] = [
        (_("Received in total"), display.money(sum(received), obj.currency)),
        (_("Payments"), display.text(len(received))),
        (_("Newest payment"), display.moment(counted[0][2] if counted else None)),
    ]
    if len(found) > MAX_COUNTED:
        facts.append((_("Counted"), gettext("only the newest %(count)s payments") % {"count": MAX_COUNTED}))
    return Facts(_("Probably received through it"), facts)


def _newest(obj: DepositReference) -> QuerySet[Payment]:
    return probable_payments(obj).order_by("-created_at", "-pk")


def payments_section(page: Page, obj: DepositReference) -> Iterable[Section]:
    if not obj.merchant_reference and page.may_view(Payment):
        yield Table(TITLE, (), [], "", NO_REFERENCE)
        return
    yield from page.section(
        TITLE,
        _newest(obj),
        {
            _("Payment"): lambda row: display.admin_link(page.site, Payment, row.pk),
            _("Status"): lambda row: display.status(row.status, Payment.Status),
            _("Received"): lambda row: display.money(row.amount_received, row.currency),
            _("Merchant reference"): lambda row: display.text(row.merchant_reference),
            _("Created at"): lambda row: display.moment(row.created_at),
        },
        obj.merchant_reference or "",
        note=NOTE,
    )


def probable_payments(obj: DepositReference) -> QuerySet[Payment]:
    """Return the payments that share the reference's fields, found by the index on the merchant reference."""
    # A payment may have no flow. A payment with another flow did not come in through a deposit reference.
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
