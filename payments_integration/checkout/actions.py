"""Check what the payer must do next, and format it for a template.

The values are the provider's (spec, "Shared shapes"). :mod:`payments_integration.next_action` reads them leniently.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.safestring import SafeString

from payments_integration.dates import with_zone
from payments_integration.enums import DepositReferenceStatus, PaymentStatus
from payments_integration.models import DepositReference, Payment
from payments_integration.money import format_for_payer
from payments_integration.next_action import ActionType, BankTransfer, NextAction, parse
from payments_integration.next_action.codes import barcode, qr_code
from payments_integration.payer.status import PAYABLE
from payments_integration.payer.texts import Snippet, snippet
from payments_integration.validation.urls import is_payer_link

_FOLDER = "payments_integration/next_action"


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time until which a payer can pay."""

    #: In UTC.
    at: datetime
    #: In the time zone of the payment's country and in the current language, with the zone.
    text: str
    is_over: bool

    @property
    def iso(self) -> str:
        return self.at.isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class ShownAction:
    """The context variable ``action`` of the templates under ``payments_integration/next_action/``."""

    #: One of ActionType, or ``unknown``.
    type: str
    #: The address to follow. Empty unless it is http or https.
    link: str
    #: The address as text, of any scheme.
    address: Snippet
    #: An ``<svg>``; empty if none can be drawn, or the extra ``checkout`` is not installed.
    qr: SafeString
    qr_payload: Snippet
    voucher_code: Snippet
    #: An ``<svg>``; empty if none can be drawn, or the extra ``checkout`` is not installed.
    barcode: SafeString
    voucher_barcode: Snippet
    bank_name: Snippet
    account_number: Snippet
    account_holder: Snippet
    #: The text that the payer must include in the transfer.
    reference: Snippet
    #: The amount still to be paid, formatted. Empty if the payer chooses the amount.
    amount: str
    until: Deadline | None
    #: The payer's country; empty if unknown. Words depend on it: a voucher is a "cupón", but in Mexico a "ficha".
    country: str

    @property
    def template(self) -> str:
        return f"{_FOLDER}/{self.type}.html"


def shown_action(obj: Payment | DepositReference | Any) -> ShownAction | None:
    """Return the action to show for a payment, a deposit reference, or a ``next_action`` itself (a dict).

    Returns None if the payer has nothing more to do: the payment has ended or its money is on its way, or the deposit
    reference is disabled. A code that could still be paid by mistake is therefore not shown.
    """
    action = current_action(obj)
    if action is None:
        return None
    bank = action.bank_transfer or BankTransfer()
    country = obj.country if isinstance(obj, Payment | DepositReference) else ""
    return ShownAction(
        type=action.type if action.is_known else "unknown",
        link=action.redirect_url if is_payer_link(action.redirect_url) else "",
        address=snippet(action.redirect_url),
        # Draw only the code that the type needs.
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
        until=deadline(action.expires_at, obj.expires_at if isinstance(obj, Payment) else None, country=country),
        country=country,
    )


def current_action(obj: Payment | DepositReference | Any) -> NextAction | None:
    """Return the action to show now, as the provider wrote it; None if there is nothing to do."""
    if isinstance(obj, Payment):
        if obj.status not in PAYABLE or obj.gone_at is not None or obj.erased_at is not None:
            return None
        found = parse(obj.next_action)
        if obj.checkout_url and (found is None or found.type == ActionType.NONE):
            # In the hosted flow the provider's page asks for everything.
            return NextAction(ActionType.REDIRECT, redirect_url=obj.checkout_url)
        return found or NextAction(ActionType.NONE)
    if isinstance(obj, DepositReference):
        if obj.status != DepositReferenceStatus.ACTIVE or obj.gone_at is not None or obj.erased_at is not None:
            return None
        return parse(obj.details)
    return parse(obj)


def fingerprint(payment: Payment | None) -> str:
    """Return a text that changes when the action changes; empty if there is nothing to do.

    It is the same in every language, and cheap because no code is drawn.
    """
    action = current_action(payment)
    if payment is None or action is None:
        return ""
    content = [payment.pk, repr(action), _rest(payment)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _amount(obj: Any) -> str:
    if not isinstance(obj, Payment) or (rest := _rest(obj)) <= 0:
        return ""
    return format_for_payer(rest, obj.currency, obj.country)


def _rest(payment: Payment) -> int:
    """Return the minor units that are still to be paid."""
    is_in_part = payment.status == PaymentStatus.PARTIALLY_PAID
    return payment.amount - payment.amount_received if is_in_part else payment.amount


def deadline(*candidates: str | datetime | None, country: str = "") -> Deadline | None:
    """Return the first candidate that is ISO 8601 text with an offset, or an aware datetime; None if there is none.

    Skips a time without a zone, because it is ambiguous.
    """
    for candidate in candidates:
        at = _moment(candidate) if isinstance(candidate, str) else candidate
        if at is None or timezone.is_naive(at):
            continue
        # Some zones cannot express times at the ends of the calendar.
        with contextlib.suppress(OverflowError, ValueError):
            return Deadline(at.astimezone(UTC), with_zone(at, country), at <= timezone.now())
    return None


def _moment(value: str) -> datetime | None:
    with contextlib.suppress(ValueError, OverflowError):
        return parse_datetime(value)
    return None
