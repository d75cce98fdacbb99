"""What the payer must do next, checked and formatted for a template.

The values are the provider's (spec, "Shared shapes"), read leniently by :mod:`payments_integration.next_action`.
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
    """Until when a payer can pay."""

    #: In UTC.
    at: datetime
    #: In the time zone of the payment's country and in the current language, with the zone.
    text: str
    is_over: bool

    @property
    def iso(self) -> str:
        """For ``<time datetime>``."""
        return self.at.isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class ShownAction:
    """The context variable ``action`` of the templates under ``payments_integration/next_action/``."""

    #: One of ActionType, or ``unknown``.
    type: str
    #: An http or https address to follow; empty if the address is neither.
    link: str
    #: The same as text.
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
    #: What the payer must include.
    reference: Snippet
    #: What is still to be paid, formatted; empty if the payer chooses the amount.
    amount: str
    until: Deadline | None
    #: Where the payer pays; empty if that is not known. Words differ: a voucher is a "cupón", and in Mexico a "ficha".
    country: str

    @property
    def template(self) -> str:
        return f"{_FOLDER}/{self.type}.html"


def shown_action(obj: Payment | DepositReference | Any) -> ShownAction | None:
    """What to show for a payment, a deposit reference, or a ``next_action`` itself (a dict).

    None if the payer has nothing more to do: the payment has ended or its money is on its way, or the deposit
    reference is disabled. So a code that could still be paid by mistake is not shown.
    """
    action = current_action(obj)
    if action is None:
        return None
    bank = action.bank_transfer or BankTransfer()
    is_known = action.is_known
    return ShownAction(
        type=action.type if is_known else "unknown",
        link=action.redirect_url if is_payer_link(action.redirect_url) else "",
        address=snippet(action.redirect_url),
        # Only the code that the type needs is drawn.
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
        until=deadline(action.expires_at, _expires_at(obj), country=_country(obj)),
        country=_country(obj),
    )


def current_action(obj: Payment | DepositReference | Any) -> NextAction | None:
    """The action to show now, as the provider wrote it."""
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
    """A text that changes when the action changes; empty if there is nothing to do.

    It draws nothing and is the same in every language.
    """
    action = current_action(payment) if payment is not None else None
    if payment is None or action is None:
        return ""
    content = [payment.pk, repr(action), _rest(payment)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _amount(obj: Any) -> str:
    if not isinstance(obj, Payment) or (rest := _rest(obj)) <= 0:
        return ""
    return format_for_payer(rest, obj.currency, obj.country)


def _rest(payment: Payment) -> int:
    """Minor units that are still to be paid."""
    is_in_part = payment.status == PaymentStatus.PARTIALLY_PAID
    return payment.amount - payment.amount_received if is_in_part else payment.amount


def _expires_at(obj: Any) -> datetime | None:
    return obj.expires_at if isinstance(obj, Payment) else None


def _country(obj: Any) -> str:
    """Where the payer is; empty for a ``next_action`` alone."""
    return obj.country if isinstance(obj, Payment | DepositReference) else ""


def deadline(*candidates: str | datetime | None, country: str = "") -> Deadline | None:
    """The first candidate that is ISO 8601 text with an offset, or an aware datetime.

    A time without a zone is skipped: it may mean any of many moments.
    """
    for candidate in candidates:
        at = _moment(candidate) if isinstance(candidate, str) else candidate
        if at is None or timezone.is_naive(at):
            continue
        # Times at the ends of the calendar cannot be expressed in every zone.
        with contextlib.suppress(OverflowError, ValueError):
            return Deadline(at.astimezone(UTC), with_zone(at, country), at <= timezone.now())
    return None


def _moment(value: str) -> datetime | None:
    with contextlib.suppress(ValueError, OverflowError):
        return parse_datetime(value)
    return None
