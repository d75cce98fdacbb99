"""Pay again a payout that failed or was returned: create at most one new payout for each.

Every form that pays the same payout again has the same idempotency key, in any tab and for any person. So only one
payout is made, no matter how often such forms are confirmed.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib.admin import AdminSite
from django.core.exceptions import ImproperlyConfigured
from django.db.models import QuerySet, Subquery
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _

from payments_integration import conf, services
from payments_integration.admin.flows.confirmation import Confirmation
from payments_integration.admin.flows.forms import KeyedForm
from payments_integration.admin.flows.payout import PayoutForm
from payments_integration.admin.shared import display, people
from payments_integration.admin.shared.buttons import AGAIN
from payments_integration.admin.shared.display import explain
from payments_integration.admin.shared.sections import Page
from payments_integration.contrib.backoffice.admin.suggestions import MONEY_IS_BACK, SuggestingPayoutPage, suggesting
from payments_integration.contrib.backoffice.todo import again_key, later_payouts, open_payout_operations
from payments_integration.enums import Kind, PayoutStatus
from payments_integration.exceptions import PaymentsError, WireError
from payments_integration.models import Operation, OperationState, Payout, Refund
from payments_integration.money import format_amount, format_money
from payments_integration.payer.names import reason_text

if TYPE_CHECKING:
    from payments_integration.admin.base import ReadOnlyAdmin


def is_payable_again(payout: Payout) -> bool:
    # Do not pay a refund's payout again: the user refunds again instead, so that the payment knows of it.
    return payout.status in MONEY_IS_BACK and not payout.refund_id


def attempt(payout: Payout) -> tuple[str, Operation | None]:
    """Return the idempotency key with which it is paid again, and the operation that paid it again or still may.

    A refused attempt keeps its key for ever, so the next attempt has the next key. A temporary refusal leaves the key
    free, for every tab.
    """
    for number in itertools.count(1):
        key = again_key(payout.pk, number)
        operation = Operation.objects.filter(idempotency_key=key).first()
        if operation is not None and operation.has_free_key:
            return key, None
        if operation is None or operation.state not in (OperationState.REJECTED, OperationState.CLOSED):
            return key, operation
    raise AssertionError("unreachable")


def obstacle(site: AdminSite, payout: Payout) -> str:
    """Return why it must not be paid again, as a sentence with a link, or "" if it may be."""
    shown = display.admin_link(site, Payout, payout.pk)
    executes = format_html(_("Payout {} executes a refund. Refund again on the page of the payment."), shown)
    if payout.refund_id:
        return executes
    if payout.account not in conf.aliases():
        return format_html(_("The account of payout {} is not configured any more: {}."), shown, payout.account)
    if not is_payable_again(payout):
        status = display.status_word(payout.kind, payout.status)
        words = _("Payout {} has the status “{}”. Only what failed or was returned can be paid again.")
        return format_html(words, shown, status)
    _key, operation = attempt(payout)
    if operation is not None and operation.result_id:
        return _paid_again(site, payout, operation)
    if Refund.objects.filter(account=payout.account, payout_id=payout.pk).exists():
        # A refund may name its payout although the payout does not name the refund.
        return executes
    if operation is None:
        operation = _asked_for(payout)
    if operation is not None:
        link = display.admin_link(site, Operation, operation.pk)
        words = _("Payout {} was asked for again: operation {} ({})")
        return format_html(words, shown, link, OperationState(operation.state).label)
    later = _later(payout)
    if later is not None:
        link, status = display.admin_link(site, Payout, later.pk), display.status_word(later.kind, later.status)
        words = _("A later payout has the same merchant reference as payout {}: {}, with the status “{}”.")
        return format_html(words, shown, link, status)
    return ""


def _paid_again(site: AdminSite, payout: Payout, operation: Operation) -> str:
    """Return a sentence with a link that says when it was paid again, and the result."""
    made = Payout.objects.filter(account=payout.account, pk=operation.result_id).only("status").first()
    status = display.status_word(Kind.PAYOUT, made.status if made else PayoutStatus.CREATED)
    words = format_html(_("Paid again at {at}: {status}"), at=display.moment(operation.created_at), status=status)
    url = display.change_url(site, Payout, operation.result_id)
    return format_html('<a href="{}">{} →</a>', url, words) if url else words


def what_happened(site: AdminSite, payout: Payout, *, personal: bool) -> str:
    """Return a warning that money is sent again, with the result of the first payout. ``personal`` adds the reason."""
    if payout.status == PayoutStatus.RETURNED:
        words = _("This sends money again, as a new payout. Payout {} of {} was sent, and the bank returned it.")
    else:
        words = _("This sends money again, as a new payout. Payout {} of {} failed.")
    amount = display.money(payout.amount, payout.currency)
    found = format_html(words, display.admin_link(site, Payout, payout.pk), amount)
    if payout.failure_reason and personal:
        found = format_html(
            "{} {}", found, _("Reason: %(reason)s") % {"reason": display.text(reason_text(payout.failure_reason))}
        )
    return found


def _asked_for(payout: Payout) -> Operation | None:
    """Return an open operation that may still pay the same person with the same reference."""
    found = _first_key(payout, open_payout_operations().order_by("created_at", "pk"))
    return Operation.objects.filter(pk=found).first() if found else None


def _later(payout: Payout) -> Payout | None:
    """Return a later payout to the same person with the same reference that is open or succeeded."""
    found = _first_key(payout, later_payouts().order_by("-created_at", "-pk"))
    return Payout.objects.filter(pk=found).first() if found else None


def _first_key(payout: Payout, rows: QuerySet[Any]) -> str | None:
    """Return the key of the first of these rows, which refer to the payout as the outer row."""
    first = Subquery(rows.values("pk")[:1])
    return Payout.objects.filter(pk=payout.pk).values_list(first, flat=True).first()


class PayAgainForm(PayoutForm):
    #: The id of the payout that is paid again.
    again = forms.CharField(required=False, max_length=255, widget=forms.HiddenInput)


class PayAgainPage(SuggestingPayoutPage):
    """The page that creates a payout, filled in with a payout that did not arrive."""

    def __init__(self, model_admin: ReadOnlyAdmin, request: HttpRequest) -> None:
        super().__init__(model_admin, request)
        given = request.POST if request.method == "POST" else request.GET
        #: The payout that is paid again.
        self.first = self.seen(given.get(AGAIN))
        #: The reason why it is not paid again. The form is empty then.
        self.refused = ""

    def form(self, *args: Any, **kwargs: Any) -> PayoutForm:
        form = suggesting(PayAgainForm(*args, **kwargs))
        if self.first is not None and "account" in form.fields:
            # Offer only the payout's account: keys are unique within an account, so a key stops a second payout only
            # there.
            only = self.first.account
            cast("forms.ChoiceField", form.fields["account"]).choices = [(only, conf.account_name(only))]
        return form

    def initial(self) -> dict[str, Any]:
        self.refused = self.obstacle()
        if self.refused:
            self.first = None
            return {}
        if self.first is None:
            return super().initial()
        amount = format_amount(self.first.amount, self.first.currency)
        known = {AGAIN: self.first.pk, "amount": amount, "merchant_reference": self.first.merchant_reference}
        return {**known, **self.recipient(self.first)}

    def key(self) -> str:
        return super().key() if self.first is None else attempt(self.first)[0]

    def obstacle(self) -> str:
        return "" if self.first is None else obstacle(self.admin.admin_site, self.first)

    def check(self, form: Any) -> None:
        if self.first is not None:
            try:
                # Read it again, because it must not have succeeded in the meantime.
                self.first = services.refresh(self.first)
            except (PaymentsError, WireError, ImproperlyConfigured) as error:
                form.add_error(None, explain(self.admin.admin_site, error))
                return
        super().check(form)

    def confirmation(self, form: PayoutForm) -> Confirmation:
        found = super().confirmation(form)
        if self.first is None:
            return found
        return replace(found, notes=[self._what_happened(self.first), *found.notes])

    def context(self, form: KeyedForm) -> dict[str, Any]:
        context = super().context(form)
        if self.first is None:
            return {**context, "warning": self.refused}
        person = people.name(Page(self.admin.admin_site, self.request), self.first, "destination")
        words = _("Pay %(amount)s again to %(person)s") if person else _("Pay %(amount)s again")
        title = words % {"amount": format_money(self.first.amount, self.first.currency), "person": person}
        return {**context, "title": title, "warning": self._what_happened(self.first), "recipients": []}

    def _what_happened(self, first: Payout) -> str:
        return what_happened(self.admin.admin_site, first, personal=self.admin.sees_personal(self.request))
