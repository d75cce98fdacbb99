"""Paying again what failed or came back: a new payout, at most one for each.

Every form that pays the same payout again has the same idempotency key, in whichever tab and by whichever person it
was opened. So however often such forms are confirmed, one payout is made.
"""

from __future__ import annotations

import itertools

from django.contrib.admin import AdminSite
from django.utils.html import format_html
from django.utils.translation import gettext as _

from payments_integration import conf
from payments_integration.admin.shared import display
from payments_integration.enums import PayoutStatus
from payments_integration.models import OPEN_OPERATION_STATES, Operation, OperationState, Payout, Refund

#: Payouts whose money is back in the balance, as far as the provider says.
_PAYABLE_AGAIN = (PayoutStatus.FAILED, PayoutStatus.RETURNED)
#: Payouts that sent nothing, or whose money came back.
_WITHOUT_EFFECT = (*_PAYABLE_AGAIN, PayoutStatus.CANCELED)


def is_payable_again(payout: Payout) -> bool:
    # A refund that failed is refunded again, so that the payment knows of it.
    return payout.status in _PAYABLE_AGAIN and not payout.refund_id


def attempt(payout: Payout) -> tuple[str, Operation | None]:
    """The idempotency key with which it is paid again, and the operation that did so or may still do so.

    A refused attempt keeps its key for ever, so the next attempt has the next key.
    """
    for number in itertools.count(1):
        key = f"again-{payout.pk}-{number}"
        operation = Operation.objects.filter(idempotency_key=key).first()
        if operation is None or operation.state not in (OperationState.REJECTED, OperationState.CLOSED):
            return key, operation
    raise AssertionError("unreachable")


def obstacle(site: AdminSite, payout: Payout) -> str:
    """Why it must not be paid again, as a sentence with a link; empty if nothing is in the way."""
    shown = display.admin_link(site, Payout, payout.pk)
    if payout.refund_id or Refund.objects.filter(account=payout.account, payout_id=payout.pk).exists():
        # Either of the two may name the other.
        return format_html(_("Payout {} executes a refund. Refund again on the page of the payment."), shown)
    if payout.account not in conf.aliases():
        return format_html(_("The account of payout {} is not configured any more: {}."), shown, payout.account)
    if not is_payable_again(payout):
        status = display.status_word(payout.kind, payout.status)
        words = _("Payout {} has the status “{}”. Only what failed or was returned can be paid again.")
        return format_html(words, shown, status)
    _key, operation = attempt(payout)
    if operation is None:
        operation = _asked_for(payout)
    if operation is not None:
        made = display.admin_link(site, Payout, operation.result_id) if operation.result_id else ""
        link = display.admin_link(site, Operation, operation.pk)
        words = _("Payout {} was asked for again: operation {} ({}) {}")
        return format_html(words, shown, link, OperationState(operation.state).label, made)
    later = _later(payout)
    if later is not None:
        link, status = display.admin_link(site, Payout, later.pk), display.status_word(later.kind, later.status)
        words = _("A later payout has the same merchant reference as payout {}: {}, with the status “{}”.")
        return format_html(words, shown, link, status)
    return ""


def what_happened(site: AdminSite, payout: Payout) -> str:
    """That the money is sent again, and what became of it the first time."""
    if payout.status == PayoutStatus.RETURNED:
        words = _("This sends money again, as a new payout. Payout {} of {} was sent, and the bank returned it.")
    else:
        words = _("This sends money again, as a new payout. Payout {} of {} failed.")
    amount = display.money(payout.amount, payout.currency)
    found = format_html(words, display.admin_link(site, Payout, payout.pk), amount)
    if payout.failure_reason:
        found = format_html("{} {}", found, _("Reason: %(reason)s") % {"reason": display.text(payout.failure_reason)})
    return found


def _asked_for(payout: Payout) -> Operation | None:
    """A payout with the same reference that may still be made."""
    if not payout.merchant_reference:
        return None
    return Operation.objects.filter(
        operation="create_payout",
        account=payout.account,
        merchant_reference=payout.merchant_reference,
        state__in=OPEN_OPERATION_STATES,
    ).first()


def _later(payout: Payout) -> Payout | None:
    """A later payout with the same reference that is open or succeeded."""
    if not payout.merchant_reference:
        return None
    rows = Payout.objects.filter(
        account=payout.account,
        merchant_reference=payout.merchant_reference,
        created_at__gte=payout.created_at,
        refund=None,
    )
    return rows.exclude(pk=payout.pk).exclude(status__in=_WITHOUT_EFFECT).order_by("-created_at", "-pk").first()
