"""Send receipts by mail, each at most once: queue them with the payment's event, send them in the scheduled passes.

``apps`` connects the functions. A row is committed as "being sent" before the mail server gets the mail. If the
process dies after that, no other process sends it: a person sees "outcome unknown" and decides. A mail is tried again
only after an error which proves that the mail server has not taken it.
"""

from __future__ import annotations

import smtplib
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from traceback import walk_tb
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMultiAlternatives
from django.core.validators import validate_email
from django.db import router
from django.db.models import F
from django.template.loader import render_to_string
from django.urls import NoReverseMatch
from django.utils import timezone, translation

from payments_integration.contrib.receipts import options as setting
from payments_integration.contrib.receipts.models import ReceiptMail, ReceiptState, Why
from payments_integration.contrib.receipts.views import facts, paid_at
from payments_integration.db.transactions import updated
from payments_integration.enums import PAID_PAYMENT_STATUSES, Country
from payments_integration.models import Payment, refundable_rest
from payments_integration.payer import links
from payments_integration.projection import installed_at, is_history, ours
from payments_integration.runtime.logs import get_logger
from payments_integration.site_urls import path_of

logger = get_logger(__name__)

#: An older payment gets no receipt. After a long outage, or with a new app, a late receipt would only surprise payers.
MAX_AGE = timedelta(days=3)
#: An attempt that takes longer has an unknown outcome.
OVERDUE_AFTER = timedelta(minutes=15)
#: Seconds after which a pass begins no further mail; the next pass continues.
PASS_SECONDS = 20.0
#: The most mails of one pass.
_MOST = 100
#: After a temporary refusal, a mail waits as long again as it has waited, within these bounds. Greylisting, which
#: refuses the first attempt of each sender, ends after minutes.
_SHORTEST_WAIT, _LONGEST_WAIT = timedelta(minutes=5), timedelta(hours=1)
#: Errors which prove that the mail server cannot be used.
_UNUSABLE = (
    ConnectionRefusedError,
    socket.gaierror,
    smtplib.SMTPConnectError,
    smtplib.SMTPHeloError,
    smtplib.SMTPAuthenticationError,
)
#: The steps of a connection, in order. The server gets the message in DATA, so an error in an earlier step is safe.
_CONNECTING = (
    smtplib.SMTP.connect, smtplib.SMTP.ehlo, smtplib.SMTP.helo, smtplib.SMTP.starttls, smtplib.SMTP.login,
)  # fmt: skip
_ADDRESSING = (smtplib.SMTP.mail, smtplib.SMTP.rcpt)
_DATA = (smtplib.SMTP.data,)


def queue(sender: type[Payment], instance: Payment, status: str, **_: Any) -> None:
    """Queue a receipt for a paid payment. Connected to ``status_changed``.

    The row commits together with the mark that the event was dispatched.
    """
    if status not in PAID_PAYMENT_STATUSES or _why_not(instance) or timezone.now() - paid_at(instance) > MAX_AGE:
        return
    # Skip payments that were paid before the installation of the app or of the receipts: they may change later, or
    # their history is dispatched.
    was_before = is_history(instance.account, paid_at(instance)) and not ours(instance.account, [instance.pk])
    installation = installed_at("payments_receipts")
    if not was_before and (installation is None or paid_at(instance) >= installation):
        ReceiptMail.objects.get_or_create(payment_id=instance.pk, defaults={"account": instance.account})


def send_queued(**_: Any) -> None:
    """Send the receipts that wait. Connected to ``pass_ended``.

    Takes no statement if the setting is missing, and one if nothing waits.
    """
    options = setting.current()
    if options is None:
        return
    started = time.monotonic()
    rows = ReceiptMail.objects.using(router.db_for_write(ReceiptMail))
    open_ones = rows.filter(state__in=(ReceiptState.QUEUED, ReceiptState.SENDING))
    # Refused mails come last, so that they do not hold up the others.
    for row in open_ones.order_by(F("tried_at").asc(nulls_first=True), "queued_at", "pk")[:_MOST]:
        if time.monotonic() - started > PASS_SECONDS:
            return
        if row.state == ReceiptState.SENDING:
            _mark_overdue(row)
        elif _is_due(row) and not _send(row, options):
            return


def send_again(row: ReceiptMail) -> None:
    """Queue a receipt once more. The caller accepts that the payer may get it twice."""
    ended = ReceiptMail.objects.filter(pk=row.pk).exclude(state__in=(ReceiptState.QUEUED, ReceiptState.SENDING))
    updated(ended, state=ReceiptState.QUEUED, reason="", queued_at=timezone.now(), tried_at=None)


def send_of(payment: Payment) -> bool:
    """Queue a payment's receipt, even if it never had one. Returns False if one is waiting or being sent."""
    row, is_new = ReceiptMail.objects.get_or_create(payment_id=payment.pk, defaults={"account": payment.account})
    if is_new:
        return True
    is_open = row.state in (ReceiptState.QUEUED, ReceiptState.SENDING)
    if not is_open:
        send_again(row)
    return not is_open


def _is_due(row: ReceiptMail) -> bool:
    """Return True if the mail was never refused, or has waited long enough since its refusal."""
    now = timezone.now()
    if row.tried_at is None or row.tried_at > now:  # written while our clock was wrong
        return True
    return now - row.tried_at >= min(max(row.tried_at - row.queued_at, _SHORTEST_WAIT), _LONGEST_WAIT)


def _send(row: ReceiptMail, options: Mapping[str, str]) -> bool:
    """Send one receipt. Returns False if the mail server takes no mail now, so that the other receipts wait too."""
    tried_at = timezone.now()
    waiting = ReceiptMail.objects.filter(pk=row.pk, state=ReceiptState.QUEUED)
    # Commit this before the mail leaves, so that no other process sends it, even if this one dies.
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
    except Exception as error:
        # Leave out the error's text, which may contain the address.
        what = f"{type(error).__name__} {_code(error) or ''}".rstrip()
        extra = {"account": row.account}
        if _may_be_taken(error) or not (_is_unusable(error) or _is_temporary(error)):
            logger.error("The receipt of %s could not be sent: %s", payment.pk, what, extra=extra)
            _end(row, tried_at, ReceiptState.FAILED, what)
            return True
        if _is_unusable(error):
            logger.warning("The mail server cannot be reached: %s", what, extra=extra)
            # This mail is not at fault, so it is due in the next pass.
            _end(row, tried_at, ReceiptState.QUEUED, what, counts=False)
            return False
        logger.warning("The receipt of %s is tried again later: %s", payment.pk, what, extra=extra)
        _end(row, tried_at, ReceiptState.QUEUED, what)
        # A refused recipient does not affect the other mails.
        return isinstance(error, smtplib.SMTPRecipientsRefused)
    else:
        _end(row, tried_at, ReceiptState.SENT, "")
    return True


def _end(row: ReceiptMail, tried_at: datetime, state: ReceiptState, reason: str, *, counts: bool = True) -> None:
    """End this attempt, unless a person has begun another one since. If it ``counts``, the next attempt must wait."""
    attempt = ReceiptMail.objects.filter(pk=row.pk, tried_at=tried_at)
    updated(attempt, state=state, reason=reason[:64], tried_at=tried_at if counts else None)


def _code(error: BaseException) -> int:
    """Return the mail server's code; 0 if the error has none, the highest if there are several recipients."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return max((code for code, _text in error.recipients.values()), default=0)
    return int(error.smtp_code) if isinstance(error, smtplib.SMTPResponseException) else 0


def _is_unusable(error: Exception) -> bool:
    """Return True if the error came before the mail server could be asked to take a mail."""
    return isinstance(error, _UNUSABLE) or (isinstance(error, OSError) and _came_from(error, _CONNECTING))


def _is_temporary(error: Exception) -> bool:
    """Return True if another attempt may succeed.

    That is so after an answer 4xx, or if the connection broke before the message was sent.
    """
    if isinstance(error, smtplib.SMTPResponseException | smtplib.SMTPRecipientsRefused):
        return 400 <= _code(error) < 500
    is_broken = isinstance(error, OSError) and not isinstance(error, smtplib.SMTPNotSupportedError)
    return is_broken and _came_from(error, _ADDRESSING)


def _may_be_taken(error: BaseException) -> bool:
    """Return True if the server may have taken the message: it was sent, and there is no answer to it.

    Includes attempts before the one that failed, because a mail backend may try a second server.
    """
    return any(_came_from(one, _DATA) and not isinstance(one, smtplib.SMTPDataError) for one in _with_contexts(error))


def _with_contexts(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__context__


def _came_from(error: BaseException, steps: tuple[Callable[..., Any], ...]) -> bool:
    """Return True if the error passed through one of these functions."""
    codes = {step.__code__ for step in steps}
    return any(frame.f_code in codes for frame, _line in walk_tb(error.__traceback__))


def _mark_overdue(row: ReceiptMail) -> None:
    """Mark an attempt that does not end as unknown, so that a person sees it. It is not sent again automatically."""
    now = timezone.now()
    # A time far ahead was written while our clock was wrong.
    if row.tried_at is None or not now - OVERDUE_AFTER < row.tried_at <= now + OVERDUE_AFTER:
        logger.error(
            "It is not known whether the receipt of %s was sent", row.payment_id, extra={"account": row.account}
        )
        attempt = ReceiptMail.objects.filter(pk=row.pk, state=ReceiptState.SENDING, tried_at=row.tried_at)
        updated(attempt, state=ReceiptState.UNKNOWN)


def _why_not(payment: Payment | None) -> str:
    """Return why this payment gets no receipt, or "" if it gets one."""
    if payment is None or not _address(payment):
        return Why.NO_ADDRESS
    if payment.status not in PAID_PAYMENT_STATUSES:
        return Why.NOT_PAID
    return Why.REFUNDED if refundable_rest(payment) <= 0 else ""


def _address(payment: Payment) -> str:
    """Return the payer's e-mail address as the provider has it, or "" if it is missing, erased or malformed."""
    email = payment.payer.get("email") if isinstance(payment.payer, dict) and payment.erased_at is None else None
    try:
        validate_email(email if isinstance(email, str) else "")
    except ValidationError:
        return ""
    return str(email)


def _message(payment: Payment, options: Mapping[str, str]) -> EmailMultiAlternatives:
    """Return the mail in the language of the payment's country."""
    with translation.override(_language(payment.country)):
        context = {**facts(payment), "receipt_url": _receipt_url(payment, options.get("SITE_URL", ""))}
        folder = "payments_integration/receipt_mail"
        # A subject must be one line.
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
    """Return the address of the receipt's page, or "" if the site or the page is not known."""
    token = links.status_token(links.Subject(payment.account, payment_id=payment.pk))
    try:
        path = path_of("payments_receipts:receipt", kwargs={"token": token}, language=_language(payment.country))
    except NoReverseMatch:
        return ""
    return f"{site.rstrip('/')}{path}" if site else ""
