"""What the payer must do next, ready for a template: nothing in it is a link, a picture or a time that is not one.

The values are the provider's (spec, "Shared shapes"), read leniently by :mod:`payments_integration.next_action`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.safestring import SafeString

from payments_integration.checkout.deadlines import Deadline, deadline
from payments_integration.checkout.links import web_address
from payments_integration.checkout.pictures import barcode, qr_code
from payments_integration.checkout.standing import PAYABLE
from payments_integration.checkout.texts import Snippet, snippet
from payments_integration.enums import ActiveStatus, PaymentStatus
from payments_integration.models import DepositReference, Payment
from payments_integration.money import format_money
from payments_integration.next_action import ActionType, BankTransfer, NextAction, parse

_FOLDER = "payments_integration/next_action"


@dataclass(frozen=True, slots=True)
class ShownAction:
    """The context variable ``action`` of the templates under ``payments_integration/next_action/``."""

    #: One of ActionType, or ``unknown``.
    type: str
    #: http or https, to be followed; empty where the address is neither.
    link: str
    #: The same as text.
    address: Snippet
    #: An ``<svg>``; empty where none can be drawn.
    qr: SafeString
    qr_payload: Snippet
    voucher_code: Snippet
    #: An ``<svg>``; empty where none can be drawn.
    barcode: SafeString
    voucher_barcode: Snippet
    bank_name: Snippet
    account_number: Snippet
    account_holder: Snippet
    #: What the payer must include.
    reference: Snippet
    #: What is still to be paid, as people read it; empty where that is open.
    amount: str
    until: Deadline | None

    @property
    def template(self) -> str:
        return f"{_FOLDER}/{self.type}.html"


def shown_action(obj: Payment | DepositReference | Any) -> ShownAction | None:
    """What to show of a payment, of a deposit reference, or of a ``next_action`` itself (a dict).

    None where the payer is not to do anything more: an ended payment, one whose money is on its way, a disabled
    deposit reference. A code that could still be paid by mistake is not shown.
    """
    action = current_action(obj)
    if action is None:
        return None
    bank = action.bank_transfer or BankTransfer()
    is_known = action.is_known
    return ShownAction(
        type=action.type if is_known else "unknown",
        link=web_address(action.redirect_url),
        address=snippet(action.redirect_url),
        # Only what the type asks for is drawn.
        qr=qr_code(action.qr_payload) if action.type == ActionType.QR else SafeString(""),
        qr_payload=snippet(action.qr_payload),
        voucher_code=snippet(action.voucher_code),
        barcode=barcode(action.voucher_barcode) if action.type == ActionType.VOUCHER else SafeString(""),
        voucher_barcode=snippet(action.voucher_barcode),
        bank_name=snippet(bank.bank_name),
        account_number=snippet(bank.account_number),
        account_holder=snippet(bank.account_holder),
        reference=snippet(action.reference),
        amount=_amount(obj),
        until=deadline(action.expires_at, _expires_at(obj)),
    )


def current_action(obj: Payment | DepositReference | Any) -> NextAction | None:
    """The action that is to be shown now, as the provider wrote it."""
    if isinstance(obj, Payment):
        if obj.status not in PAYABLE or obj.gone_at is not None or obj.erased_at is not None:
            return None
        found = parse(obj.next_action)
        if obj.checkout_url and (found is None or found.type == ActionType.NONE):
            # The hosted flow: the provider's page asks for everything.
            return NextAction(ActionType.REDIRECT, redirect_url=obj.checkout_url)
        return found or NextAction(ActionType.NONE)
    if isinstance(obj, DepositReference):
        if obj.status != ActiveStatus.ACTIVE or obj.gone_at is not None or obj.erased_at is not None:
            return None
        return parse(obj.details)
    return parse(obj)


def fingerprint(payment: Payment | None) -> str:
    """Another text as soon as the payer has to do something else; empty where there is nothing to do.

    It draws nothing and is the same in every language.
    """
    action = current_action(payment) if payment is not None else None
    if payment is None or action is None:
        return ""
    content = [payment.pk, repr(action), _rest(payment)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _amount(obj: Any) -> str:
    return format_money(rest, obj.currency) if isinstance(obj, Payment) and (rest := _rest(obj)) > 0 else ""


def _rest(payment: Payment) -> int:
    """Minor units that are still to be paid."""
    is_in_part = payment.status == PaymentStatus.PARTIALLY_PAID
    return payment.amount - payment.amount_received if is_in_part else payment.amount


def _expires_at(obj: Any) -> datetime | None:
    return obj.expires_at if isinstance(obj, Payment) else None
