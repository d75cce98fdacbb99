"""Receipts by mail: queued with the payment's event, sent by the scheduled passes, once at most.

``apps`` connects the functions. A row is committed as "being sent" before the mail server gets the
mail. If the process dies after that, no other process sends it: a person sees "outcome unknown" and decides.
"""

from __future__ import annotations

import logging
import smtplib
import socket
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMultiAlternatives
from django.core.validators import validate_email
from django.db import router
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.utils import timezone, translation

from payments_integration.checkout import links
from payments_integration.contrib.finance import receipt_options
from payments_integration.contrib.finance.models import ReceiptMail, ReceiptState, Why
from payments_integration.contrib.finance.receipts import facts, paid_at
from payments_integration.db.transactions import updated
from payments_integration.enums import PAID_PAYMENT_STATUSES, Country
from payments_integration.models import Payment, refundable_rest
from payments_integration.projection import is_history, ours

logger = logging.getLogger(__name__)

#: An older payment gets no receipt: after a long outage, or when the app is new, it would only surprise its payer.
MAX_AGE = timedelta(days=3)
#: A mail that takes longer has an unknown outcome.
OVERDUE_AFTER = timedelta(minutes=15)
#: A pass begins no further mail after so many seconds; the next pass continues.
PASS_SECONDS = 20.0
#: The most mails of one pass.
_MOST = 100
#: The mail server has not seen the message: it is tried again.
_NOT_SENT = (
    ConnectionRefusedError,
    socket.gaierror,
    smtplib.SMTPConnectError,
    smtplib.SMTPHeloError,
    smtplib.SMTPAuthenticationError,
)


def queue(sender: type[Payment], instance: Payment, status: str, **_: Any) -> None:
    """A receiver of ``status_changed``: it commits with the mark that the event was dispatched."""
    if status not in PAID_PAYMENT_STATUSES or _why_not(instance) or timezone.now() - paid_at(instance) > MAX_AGE:
        return
    # A payment that was paid before the installation may change after it, or its history may be dispatched.
    was_before = is_history(instance.account, paid_at(instance)) and not ours(instance.account, [instance.pk])
    if not was_before:
        ReceiptMail.objects.get_or_create(payment_id=instance.pk, defaults={"account": instance.account})


def send_queued(**_: Any) -> None:
    """A receiver of ``pass_ended``: send what waits. No statement if the setting is missing, one if nothing waits."""
    options = receipt_options.current()
    if options is None:
        return
    started = time.monotonic()
    rows = ReceiptMail.objects.using(router.db_for_write(ReceiptMail))
    open_ones = rows.filter(state__in=(ReceiptState.QUEUED, ReceiptState.SENDING))
    for row in open_ones.order_by("queued_at", "pk")[:_MOST]:
        if time.monotonic() - started > PASS_SECONDS:
            return
        if row.state == ReceiptState.SENDING:
            _mark_overdue(row)
        elif not _send(row, options):
            return


def send_again(row: ReceiptMail) -> None:
    """Queue a receipt once more, for a person who accepts that the payer may get it twice."""
    ended = ReceiptMail.objects.filter(pk=row.pk).exclude(state__in=(ReceiptState.QUEUED, ReceiptState.SENDING))
    updated(ended, state=ReceiptState.QUEUED, reason="", queued_at=timezone.now(), tried_at=None)


def _send(row: ReceiptMail, options: Mapping[str, str]) -> bool:
    """Send one receipt. False if the mail server cannot be reached: then the others wait, too."""
    tried_at = timezone.now()
    waiting = ReceiptMail.objects.filter(pk=row.pk, state=ReceiptState.QUEUED)
    # Committed before the mail leaves: no other process sends it, also if this one dies.
    if not updated(waiting, state=ReceiptState.SENDING, tried_at=tried_at):
        return True
    payments = Payment.objects.using(router.db_for_write(Payment))
    payment = payments.filter(pk=row.payment_id, account=row.account).first()
    why = _why_not(payment) if timezone.now() - row.queued_at <= MAX_AGE else Why.TOO_OLD
    if payment is None or why:
        _end(row, tried_at, ReceiptState.SKIPPED, why)
        return True
    try:
        _message(payment, options).send()
    except _NOT_SENT as error:
        logger.warning("The mail server cannot be reached: %s", type(error).__name__, extra={"account": row.account})
        _end(row, tried_at, ReceiptState.QUEUED, type(error).__name__)
        return False
    except Exception as error:
        # Without its text, which may contain the address.
        logger.error(
            "The receipt of %s could not be sent: %s",
            payment.pk,
            type(error).__name__,
            extra={"account": payment.account},
        )
        _end(row, tried_at, ReceiptState.FAILED, type(error).__name__)
    else:
        _end(row, tried_at, ReceiptState.SENT, "")
    return True


def _end(row: ReceiptMail, tried_at: datetime, state: ReceiptState, reason: str) -> None:
    """End this attempt, unless a person has begun another one since then."""
    updated(ReceiptMail.objects.filter(pk=row.pk, tried_at=tried_at), state=state, reason=reason[:64])


def _mark_overdue(row: ReceiptMail) -> None:
    """An attempt that does not end becomes visible. It is not sent again by itself."""
    now = timezone.now()
    # A time that is ahead was written while our clock was wrong.
    if row.tried_at is None or not now - OVERDUE_AFTER < row.tried_at <= now + OVERDUE_AFTER:
        logger.error(
            "It is not known whether the receipt of %s was sent", row.payment_id, extra={"account": row.account}
        )
        attempt = ReceiptMail.objects.filter(pk=row.pk, state=ReceiptState.SENDING, tried_at=row.tried_at)
        updated(attempt, state=ReceiptState.UNKNOWN)


def _why_not(payment: Payment | None) -> str:
    """Why this payment gets no receipt; empty if it does."""
    if payment is None or not _address(payment):
        return Why.NO_ADDRESS
    if payment.status not in PAID_PAYMENT_STATUSES:
        return Why.NOT_PAID
    return Why.REFUNDED if refundable_rest(payment) <= 0 else ""


def _address(payment: Payment) -> str:
    """The payer's address as the provider has it; empty if there is none, or it is not an address."""
    email = payment.payer.get("email") if isinstance(payment.payer, dict) and payment.erased_at is None else None
    try:
        validate_email(email if isinstance(email, str) else "")
    except ValidationError:
        return ""
    return str(email)


def _message(payment: Payment, options: Mapping[str, str]) -> EmailMultiAlternatives:
    """The mail in the language of the payment's country."""
    with translation.override(_language(payment.country)):
        context = {**facts(payment), "receipt_url": _receipt_url(payment, options.get("SITE_URL", ""))}
        folder = "payments_integration/receipt_mail"
        # A subject is one line.
        subject = " ".join(render_to_string(f"{folder}/subject.txt", context).split())
        text = render_to_string(f"{folder}/text.txt", context).strip() + "\n"
        html = render_to_string(f"{folder}/page.html", context)
    message = EmailMultiAlternatives(subject, text, options.get("FROM") or None, [_address(payment)])
    message.attach_alternative(html, "text/html")
    return message


def _language(country: str) -> str:
    if country == Country.BR:
        return "pt-br"
    return "es" if country in Country else settings.LANGUAGE_CODE


def _receipt_url(payment: Payment, site: str) -> str:
    """The address of the receipt's page; empty if the site or its page is not known."""
    token = links.status_token(links.Subject(payment.account, payment_id=payment.pk))
    try:
        path = reverse("payments_finance:receipt", kwargs={"token": token})
    except NoReverseMatch:
        return ""
    return f"{site.rstrip('/')}{path}" if site else ""
