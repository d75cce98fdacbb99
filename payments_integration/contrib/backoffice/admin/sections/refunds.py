"""Show a refund: what is left of the payment and who asked for it beside its page, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from urllib.parse import urlencode

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy as _, pgettext

from payments_integration.admin.base import MIRROR_FIELDS
from payments_integration.admin.models import refunds
from payments_integration.admin.models.payments import figures
from payments_integration.admin.shared import display, people
from payments_integration.admin.shared.buttons import AGAIN, Tool, Weight, may
from payments_integration.admin.shared.people import Fact, known_payment
from payments_integration.admin.shared.sections import Page, Section, Table, once
from payments_integration.contrib.backoffice.admin.sections import orders, tables
from payments_integration.contrib.backoffice.admin.sections.base import SectionsAdmin
from payments_integration.contrib.backoffice.admin.sections.calculation import calculation
from payments_integration.contrib.backoffice.admin.sections.people import Facts, facts_section, payment_of
from payments_integration.contrib.backoffice.admin.sections.tables import Advice
from payments_integration.enums import VOID_REFUND_STATUSES, MethodFamily, RefundStatus
from payments_integration.models import Operation, Payment, Payout, Refund, StatusChange, rest_after
from payments_integration.money import format_money
from payments_integration.payer.names import reason_text
from payments_integration.validation.text import StrOrPromise

#: What became of a refund, by its status. ``{}`` is the time of the change to this status.
_OUTCOMES: dict[str, StrOrPromise] = {
    RefundStatus.CREATED: _("It has been on its way since {}."),
    RefundStatus.PROCESSING: _("It has been on its way since {}."),
    RefundStatus.SUCCEEDED: _("It succeeded at {}: the money was sent back to the payer."),
    RefundStatus.FAILED: _("It failed at {}: nothing was refunded."),
    RefundStatus.CANCELED: _("It was canceled at {}: nothing was refunded."),
    RefundStatus.RETURNED: _("The bank returned the money at {}: nothing was refunded."),
}


class RefundSectionsAdmin(SectionsAdmin, refunds.RefundAdmin):
    personal = ("payer_name", "reason_start", "extra_shown")
    fieldsets = (
        (
            _("Identifiers"),
            {"classes": ("collapse",), "fields": ("id", "payment_link", "payment_reference", "payout_link")},
        ),
        MIRROR_FIELDS,
    )

    def headline(self, page: Page, obj: Refund) -> Iterable[str]:
        yield display.money(obj.amount, obj.currency)
        yield display.status(obj.status, RefundStatus)
        payment = known_payment(obj)
        if payment is not None and page.may_view(Payment):
            yield people.name(page, payment, "payer")
            yield orders.order_link(page, payment)
        if obj.payment_id:
            link = display.admin_link(page.site, Payment, obj.payment_id)
            yield format_html(gettext("refund of {}"), link)

    def whose(self, page: Page, obj: Refund) -> Iterable[str]:
        yield format_money(obj.amount, obj.currency)
        payment = payment_of(page, obj)
        if payment is not None:
            yield people.name(page, payment, "payer")

    def links(self, request: HttpRequest, obj: Refund) -> Iterable[Tool]:
        payment = known_payment(obj)
        if payment is None or obj.status not in VOID_REFUND_STATUSES or _rest(obj) <= 0:
            return
        url = display.page_url(self.admin_site, Payment, "refund", payment.pk)
        if url and may(request, "refund_payment", payment) and not display.removed(payment.account):
            again = f"{url}?{urlencode({AGAIN: obj.pk})}"
            yield Tool(_("Refund again"), again, post=False, weight=Weight.MAIN)

    def aside(self, page: Page, obj: Refund) -> Iterable[Section]:
        payment = payment_of(page, obj)
        if payment is not None:
            yield replace(calculation(page, payment), title=_("Payment"))
        facts: list[Fact] = [
            (_("Reason"), page.personal(obj.reason)),
            (_("Payment"), display.admin_link(page.site, Payment, obj.payment_id)),
            (_("Created at"), display.moment(obj.created_at)),
        ]
        yield Facts(_("Refund"), facts)
        if page.may_view(Payout) and (payout := _payout(obj)):
            yield from facts_section(page, _("Recipient"), payout, "destination")
        if page.may_view(Operation):
            yield _people(page, obj)

    def lead(self, page: Page, obj: Refund) -> Iterable[Section]:
        yield Advice(_("What became of it"), list(_sentences(page, obj, known_payment(obj), _rest(obj))))

    def details(self, page: Page, obj: Refund) -> Iterable[Section]:
        if not page.may_view(Payout) or _payout(obj):
            yield from tables.payouts(page, _payouts(obj), obj.object_id)
        if obj.payment_id:
            others = Refund.objects.filter(account=obj.account, payment_id=obj.payment_id).exclude(pk=obj.pk)
            yield from tables.refunds(page, others, obj.payment_id, title=_("Other refunds of this payment"))


def _payouts(obj: Refund) -> QuerySet[Payout]:
    """Return the payouts that execute the refund. A payout may name the refund, or the refund may name the payout."""
    executing = Q(refund_id=obj.pk) | Q(pk=obj.payout_id)
    return Payout.objects.filter(executing, account=obj.account).order_by("-created_at", "-pk")


def _payout(obj: Refund) -> Payout | None:
    """Return the newest of these payouts."""
    return once(obj, "pi_payout", lambda: _payouts(obj).first())


def _rest(obj: Refund) -> int:
    """Return how much of the payment can still be refunded, in minor units."""
    payment = known_payment(obj)
    return max(0, rest_after(payment, *figures(payment))) if payment is not None else 0


def _sentences(page: Page, obj: Refund, payment: Payment | None, rest: int) -> Iterator[str]:
    """Say what became of it in plain words, and what can be done."""
    words = _OUTCOMES.get(obj.status, _("Its status has not changed since {}."))
    yield format_html(str(words), display.moment(_since(obj)))
    if obj.status not in VOID_REFUND_STATUSES:
        return
    if page.may_view(Payout) and (payout := _payout(obj)) and payout.failure_reason:
        yield gettext("The reason given: %(reason)s.") % {"reason": page.personal(reason_text(payout.failure_reason))}
    if payment is None:
        return
    if rest <= 0:
        yield gettext("Nothing is left to refund of the payment now.")
        return
    if obj.status == RefundStatus.RETURNED and payment.method_family != MethodFamily.CARD:
        yield gettext("Ask the payer for another bank account, and refund to it.")


def _since(obj: Refund) -> datetime:
    """Return when it changed to its current status at the provider."""
    changes = StatusChange.objects.filter(
        account=obj.account, object_kind=obj.kind, object_id=obj.object_id, status=obj.status
    )
    return changes.order_by("-at", "-pk").values_list("at", flat=True).first() or obj.created_at


def _people(page: Page, obj: Refund) -> Section:
    """Show who asked for it, and who approved it."""
    title = _("Who asked for it")
    asked = Operation.objects.filter(account=obj.account, result_kind=obj.kind, result_id=obj.pk).defer("body")
    operation = asked.first()
    if operation is None:
        return Table(title, (), [], "", _("It was not asked for through this site."))
    facts: list[Fact] = [
        (pgettext("refund", "Asked by"), display.requester(page.site, operation)),
        (_("Asked at"), display.moment(operation.created_at)),
        (_("Operation"), display.admin_link(page.site, Operation, operation.pk)),
    ]
    if operation.approved_by:
        facts[2:2] = [
            (pgettext("refund", "Approved by"), display.actor(operation.approved_by)),
            (_("Approved at"), display.moment(operation.approved_at)),
        ]
    return Facts(title, facts)
