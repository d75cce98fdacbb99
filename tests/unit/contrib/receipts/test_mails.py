"""Receipts by mail: queued with the event, sent once at most, and only what is still true."""

from __future__ import annotations

import re
import smtplib
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import time_machine
from django.conf.urls.i18n import i18n_patterns
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.core import mail
from django.core.exceptions import ImproperlyConfigured
from django.core.mail import EmailMultiAlternatives
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client, override_settings
from django.urls import include, path
from django.utils import timezone

from payments_integration import conf, erasure, projection, services, signals
from payments_integration.contrib.finance.apps import close_months
from payments_integration.contrib.receipts import apps, mails, options
from payments_integration.contrib.receipts.models import ReceiptMail, ReceiptState
from payments_integration.models import Operation, Payment
from payments_integration.projection import history
from payments_integration.testing import ProviderSandbox
from tests.factories import checkout, rows
from tests.unit.admin.conftest import boss as boss, browser, page  # the fixture is imported

pytestmark = pytest.mark.django_db

SITE = {"SITE_URL": "https://shop.example/"}
LIST = "/admin/payments_receipts/receiptmail/"
PAYMENTS = "/admin/payments_integration/payment/"


@pytest.fixture(autouse=True)
def _connected(_no_receivers: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The receivers are connected, as they are where only this app is installed, and the setting is there."""
    apps.connect()
    monkeypatch.setattr(conf, "is_test", lambda alias: alias == "test")
    signals.pass_ended.disconnect(dispatch_uid="payments_finance")
    with override_settings(PAYMENTS_RECEIPT_MAIL=SITE, PAYMENTS_RECEIPT_ISSUER="Tienda SpA\nRUT 76.123.456-7"):
        yield
    signals.pass_ended.connect(close_months, dispatch_uid="payments_finance")


def paid(**fields: Any) -> Payment:
    values = {"status": "succeeded", "amount_received": 10_000, "succeeded_at": timezone.now(), **fields}
    return checkout.payment(**values)


def dispatched(payment: Payment, status: str = "succeeded") -> None:
    """The payment's event is dispatched, with its change of status."""
    signals.status_changed.send(
        sender=Payment, instance=payment, status=status, previous_status="created", event=None, status_change=None,
        is_stale=False,
    )  # fmt: skip


def queued(**fields: Any) -> ReceiptMail:
    payment = paid(**fields)
    dispatched(payment, payment.status)
    return ReceiptMail.objects.get(payment_id=payment.pk)


def state(row: ReceiptMail) -> tuple[str, str]:
    row.refresh_from_db()
    return (row.state, row.reason)


# Queueing


def test_nothing_is_queued_or_asked_without_the_setting(django_assert_num_queries: Any) -> None:
    payment = paid()
    with override_settings(PAYMENTS_RECEIPT_MAIL=None), django_assert_num_queries(0):
        dispatched(payment)
        signals.pass_ended.send(sender=None)
        mails.send_queued()
        assert not signals.has_listeners(signals.status_changed, Payment, "succeeded")
    assert signals.has_listeners(signals.status_changed, Payment, "succeeded")
    assert not signals.has_listeners(signals.status_changed, Payment, "failed")


def test_a_paid_payment_is_queued_once_and_sent_once() -> None:
    row = queued()
    payment = Payment.objects.get(pk=row.payment_id)
    for status in ("succeeded", "overpaid"):
        dispatched(payment, status)
    assert mail.outbox == [], "a handler may be waiting"
    for _ in range(3):
        mails.send_queued()
    assert len(mail.outbox) == 1
    dispatched(payment)
    mails.send_queued()
    assert len(mail.outbox) == 1
    assert state(row) == (ReceiptState.SENT, "")


def test_it_is_queued_in_the_transaction_of_the_handlers() -> None:
    with transaction.atomic():
        dispatched(paid())
        transaction.set_rollback(True)  # as when a handler fails after it
    assert not ReceiptMail.objects.exists()


def test_an_event_of_the_provider_leads_to_a_mail(payments_sandbox: ProviderSandbox, woken: list[str]) -> None:
    payment = services.create_payment(
        amount=10_000, currency="CLP", country="CL", method_code="cl_webpay_card", merchant_reference="order-1",
        payer={"name": "Ana Rojas", "email": "ana@example.com"},
    )  # fmt: skip
    payments_sandbox.settle()
    assert not ReceiptMail.objects.exists()
    payments_sandbox.engine.pay(payment.pk)
    payments_sandbox.settle()
    mails.send_queued()
    assert [message.to for message in mail.outbox] == [["ana@example.com"]]


@pytest.mark.parametrize(
    "fields",
    [
        {"payer": None},
        {"payer": {"email": None}},
        {"payer": {"email": 5}},
        {"payer": {"email": "ana"}},
        {"payer": {"email": "ana@example.com\nBcc: all@example.com"}},
        {"payer": ["ana@example.com"]},
        {"erased_at": timezone.now()},
        {"status": "chargeback"},
        {"refunded_amount": 10_000},
        {"succeeded_at": timezone.now() - mails.MAX_AGE - timedelta(hours=1)},
    ],
)
def test_who_gets_no_receipt_is_not_queued(fields: dict[str, Any]) -> None:
    dispatched(paid(**fields))
    assert not ReceiptMail.objects.exists()


@pytest.mark.case(129)
def test_a_payment_of_before_the_installation_gets_no_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "in_test_environment", lambda: False)
    monkeypatch.setattr(mails, "installed_at", lambda app: timezone.now() - timedelta(days=2))
    projection.note_contact("default", timezone.now())
    before = timezone.now() - timedelta(hours=2)
    # It changes, or its history is dispatched.
    dispatched(paid(succeeded_at=before))
    assert not ReceiptMail.objects.exists()
    ours = paid(id="pay_ours", succeeded_at=before)
    Operation.objects.create(id="op_1", account="default", operation="create_payment", result_id=ours.pk)
    dispatched(ours)
    assert ReceiptMail.objects.get().payment_id == "pay_ours"


def test_a_payment_of_before_the_installation_of_the_receipts_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert projection.installed_at("payments_receipts") is None
    monkeypatch.setattr(conf, "in_test_environment", lambda: False)
    projection.note_contact("default", timezone.now() - timedelta(days=90))
    # A process may ask before the migrations have run.
    monkeypatch.setattr(history, "_installed_at", {})
    applied = MigrationRecorder(connection).migration_qs
    applied.filter(app="payments_receipts").update(app="later")
    assert projection.installed_at("payments_receipts") is None
    applied.filter(app="later").update(app="payments_receipts")
    installed = projection.installed_at("payments_receipts")
    assert installed is not None
    dispatched(paid(succeeded_at=installed - timedelta(seconds=1)))
    assert not ReceiptMail.objects.exists()
    dispatched(paid(id="pay_2", succeeded_at=installed))
    assert ReceiptMail.objects.get().payment_id == "pay_2"
    assert projection.installed_at("no_such_app") is None


@pytest.mark.parametrize("status", ["created", "partially_paid", "on_hold", "failed", "chargeback"])
def test_only_a_paid_payment_is_queued(status: str) -> None:
    dispatched(paid(status=status), status)
    # The change is old news: the payment has another status now.
    dispatched(paid(status="chargeback"), "succeeded")
    assert not ReceiptMail.objects.exists()


def test_a_mistake_in_the_setting_parks_no_event() -> None:
    payment = paid()
    with override_settings(PAYMENTS_RECEIPT_MAIL={"SIDE_URL": ""}):
        dispatched(payment)
        with pytest.raises(ImproperlyConfigured, match="no option 'SIDE_URL'"):
            mails.send_queued()
    assert ReceiptMail.objects.count() == 1


# The mail


def test_the_mail_says_what_the_receipt_says() -> None:
    queued(succeeded_at=timezone.now(), refunded_amount=2_000)
    mails.send_queued()
    [message] = mail.outbox
    assert isinstance(message, EmailMultiAlternatives)
    assert message.to == ["ana@example.com"]
    assert message.subject == "Comprobante de pago: pedido order-1"
    [(html, kind)] = message.alternatives
    assert kind == "text/html"
    for words in ("Tienda SpA", "RUT 76.123.456-7", "$10.000", "$2.000", "order-1", "No es un documento tributario."):
        assert words in message.body
        assert words in html
    assert "\n\n\n" not in message.body
    [address] = [line.split()[-1] for line in message.body.splitlines() if "https://" in line]
    assert address.startswith("https://shop.example/payments/receipt/")
    assert address in html
    assert "$10.000" in Client().get(address.removeprefix("https://shop.example")).content.decode()
    assert "Ana" not in message.body + html


def test_the_mail_of_a_test_account_says_so() -> None:
    queued(account="test")
    mails.send_queued()
    [message] = mail.outbox
    assert isinstance(message, EmailMultiAlternatives)
    assert message.subject.startswith("PRUEBA: ")
    for text in (message.body, str(message.alternatives[0][0])):
        assert "PRUEBA" in text
        assert "no se mueve dinero real" in text


@pytest.mark.parametrize(
    ("country", "subject"),
    [("BR", "Comprovante de pagamento: pedido order-1"), ("MX", "Comprobante de pago: pedido order-1"),
     ("US", "Payment receipt: order order-1")],
)  # fmt: skip
def test_its_language_is_that_of_the_country(country: str, subject: str) -> None:
    queued(country=country)
    mails.send_queued()
    assert [message.subject for message in mail.outbox] == [subject]


class InLanguages:
    """As of a site whose pages begin with a language."""

    urlpatterns = [
        *i18n_patterns(path("payments/", include("payments_integration.contrib.receipts.urls"))),
        path("payments/", include("payments_integration.urls")),
    ]


@pytest.mark.case(141)
@pytest.mark.parametrize(
    ("country", "language"), [("CL", "es-cl"), ("BR", "en"), ("US", "en")], ids=["its variant", "none", "the site's"]
)
def test_the_link_leads_to_the_receipt_in_a_language_of_the_site(country: str, language: str, settings: Any) -> None:
    settings.ROOT_URLCONF = InLanguages
    settings.LANGUAGES = [("es-cl", "Español"), ("en", "English")]
    settings.LANGUAGE_CODE = "en"
    settings.MIDDLEWARE = ["django.middleware.locale.LocaleMiddleware"]
    queued(country=country)
    mails.send_queued()
    [address] = re.findall(r"https://shop\.example(\S+)", str(mail.outbox[0].body))
    assert address.startswith(f"/{language}/payments/receipt/")
    assert Client().get(address).status_code == 200


def test_without_the_address_of_the_site_it_has_no_link() -> None:
    queued(merchant_reference=None)
    with override_settings(PAYMENTS_RECEIPT_MAIL={"FROM": "Tienda <shop@shop.example>"}):
        mails.send_queued()
    [message] = mail.outbox
    assert message.from_email == "Tienda <shop@shop.example>"
    assert message.subject == "Comprobante de pago"
    assert isinstance(message, EmailMultiAlternatives)
    assert "http" not in message.body + str(message.alternatives)


def test_references_can_neither_add_headers_nor_markup() -> None:
    queued(merchant_reference="<b>1</b>\r\nBcc: all@example.com\u202e")
    mails.send_queued()
    [message] = mail.outbox
    assert message.recipients() == ["ana@example.com"]
    assert "\n" not in message.subject
    assert isinstance(message, EmailMultiAlternatives)
    assert "<b>" not in str(message.alternatives)
    assert "\u202e" not in message.subject + message.body


# At most once


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"status": "chargeback"}, "not_paid"),
        ({"refunded_amount": 10_000}, "refunded"),
        ({"payer": None, "erased_at": timezone.now()}, "no_address"),
    ],
)
def test_what_is_no_longer_true_is_not_sent(change: dict[str, Any], reason: str) -> None:
    row = queued()
    Payment.objects.filter(pk=row.payment_id).update(**change)
    mails.send_queued()
    assert mail.outbox == []
    assert state(row) == (ReceiptState.SKIPPED, reason)


def test_a_refund_in_progress_counts() -> None:
    row = queued()
    payment = Payment.objects.get(pk=row.payment_id)
    rows.refund(payment=payment, amount=10_000, currency="CLP", status="processing")
    mails.send_queued()
    assert state(row) == (ReceiptState.SKIPPED, "refunded")


def test_after_a_long_outage_it_is_not_sent() -> None:
    row = queued()
    with time_machine.travel(timezone.now() + mails.MAX_AGE + timedelta(minutes=1)):
        mails.send_queued()
    assert state(row) == (ReceiptState.SKIPPED, "too_old")


def test_it_is_marked_before_the_mail_server_gets_it() -> None:
    row = queued()

    def send(message: Any) -> None:
        assert state(row)[0] == ReceiptState.SENDING
        mails.send_queued()  # another process at the same moment
        mail.outbox.append(message)

    with mock.patch.object(EmailMultiAlternatives, "send", send):
        mails.send_queued()
    assert len(mail.outbox) == 1
    assert state(row) == (ReceiptState.SENT, "")


def test_a_process_that_dies_while_sending_leaves_an_unknown_outcome() -> None:
    row = queued()
    with mock.patch.object(EmailMultiAlternatives, "send", side_effect=SystemExit), pytest.raises(SystemExit):
        mails.send_queued()
    mails.send_queued()
    assert state(row)[0] == ReceiptState.SENDING
    with time_machine.travel(timezone.now() + mails.OVERDUE_AFTER + timedelta(minutes=1)):
        for _ in range(2):
            mails.send_queued()
    assert state(row)[0] == ReceiptState.UNKNOWN
    assert mail.outbox == []


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(), socket.gaierror(), smtplib.SMTPConnectError(421, b"busy ana@example.com")]
)
def test_a_mail_server_that_cannot_be_reached_is_tried_again(error: Exception) -> None:
    first, second = queued(), queued()
    with mock.patch.object(EmailMultiAlternatives, "send", side_effect=error) as send:
        mails.send_queued()
    assert send.call_count == 1, "the others wait, too"
    assert state(first)[0] == ReceiptState.QUEUED
    assert state(first)[1].startswith(type(error).__name__)
    mails.send_queued()
    assert state(first) == state(second) == (ReceiptState.SENT, "")


class MailServer:
    """An SMTP server that gives the answers that a test sets, and takes one connection at a time.

    An answer to a command: its reply, or "" to close the connection. "." is the answer to the message itself.
    """

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self.taken: list[str] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with client, client.makefile("rwb") as lines, suppress(OSError):
                self._talk(lines)

    def _talk(self, lines: Any) -> None:
        def answered(command: str, usual: str) -> bool:
            answer = self.answers.get(command, usual)
            lines.write(f"{answer}\r\n".encode() if answer else b"")
            lines.flush()
            return bool(answer)

        if not answered("connect", "220 mail.example"):
            return
        while line := lines.readline().decode().strip():
            command = line.split(maxsplit=1)[0].upper()
            if not answered(command, {"DATA": "354 go on", "QUIT": "221 bye"}.get(command, "250 ok")):
                return
            if command == "DATA" and self.answers.get(command, "3").startswith("3"):
                text = b"".join(iter(lines.readline, b".\r\n")).decode()
                if self.answers.get(".", "250").startswith("250"):
                    self.taken.append(text)
                if not answered(".", "250 taken"):
                    return
            elif command == "QUIT":
                return


@pytest.fixture
def server(settings: Any) -> Iterator[MailServer]:
    server = MailServer()
    backend, host = "django.core.mail.backends.smtp.EmailBackend", "127.0.0.1"
    if hasattr(mail, "mailers"):  # from Django 6.1 on
        options = {"host": host, "port": server.port, "timeout": 5}
        settings.MAILERS = {"default": {"BACKEND": backend, "OPTIONS": options}}
    else:
        settings.EMAIL_BACKEND, settings.EMAIL_HOST, settings.EMAIL_PORT = backend, host, server.port
        settings.EMAIL_TIMEOUT = 5
    yield server
    server.close()


@pytest.mark.case(140)
@pytest.mark.parametrize(
    ("command", "answer", "reason"),
    [
        ("RCPT", "451 greylisted ana@example.com", "SMTPRecipientsRefused 451"),
        ("RCPT", "454 too many", "SMTPRecipientsRefused 454"),
        ("RCPT", "421 closing", "SMTPRecipientsRefused 421"),
        ("RCPT", "", "SMTPServerDisconnected"),
        ("MAIL", "454 too many", "SMTPSenderRefused 454"),
        ("MAIL", "", "SMTPServerDisconnected"),
        ("DATA", "451 try later", "SMTPDataError 451"),
        (".", "452 no space", "SMTPDataError 452"),
    ],
)
def test_a_temporary_refusal_is_tried_again_later_and_sent_once(
    server: MailServer, command: str, answer: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with time_machine.travel(timezone.now(), tick=False) as clock:
        row = queued()
        server.answers = {command: answer}
        mails.send_queued()
        assert state(row) == (ReceiptState.QUEUED, reason)
        clock.shift(timedelta(minutes=4))
        mails.send_queued()
        assert server.connections == 1, "the server is left in peace meanwhile"
        clock.shift(timedelta(minutes=1))
        mails.send_queued()
        assert server.connections == 2
        server.answers = {}
        clock.shift(timedelta(minutes=5))
        for _ in range(2):
            mails.send_queued()
            clock.shift(timedelta(hours=2))
    assert len(server.taken) == 1
    assert state(row) == (ReceiptState.SENT, "")
    assert "is tried again later" in caplog.text
    assert "ana@example.com" not in caplog.text


@pytest.mark.case(140)
@pytest.mark.parametrize(
    ("command", "answer", "reason"),
    [
        ("RCPT", "550 no such mailbox", "SMTPRecipientsRefused 550"),
        ("MAIL", "550 not you", "SMTPSenderRefused 550"),
        ("DATA", "554 no", "SMTPDataError 554"),
        (".", "554 spam", "SMTPDataError 554"),
        # The answer to the message is lost.
        (".", "", "SMTPServerDisconnected"),
    ],
)
def test_what_is_refused_for_good_or_may_be_taken_is_not_sent_again(
    server: MailServer, command: str, answer: str, reason: str
) -> None:
    row = queued()
    server.answers = {command: answer}
    mails.send_queued()
    server.answers = {}
    with time_machine.travel(timezone.now() + timedelta(hours=2)):
        mails.send_queued()
    assert server.connections == 1
    assert state(row) == (ReceiptState.FAILED, reason)


@pytest.mark.case(140)
@pytest.mark.parametrize(("command", "answer"), [("connect", ""), ("connect", "421 busy"), ("EHLO", "")])
def test_a_connection_that_fails_is_tried_again_in_the_next_pass(
    server: MailServer, command: str, answer: str
) -> None:
    row, other = queued(), queued()
    server.answers = {command: answer}
    mails.send_queued()
    assert server.connections == 1, "the others wait, too"
    assert state(row)[0] == state(other)[0] == ReceiptState.QUEUED
    server.answers = {}
    mails.send_queued()
    assert len(server.taken) == 2


@pytest.mark.case(140)
def test_refused_recipients_hold_up_no_one(server: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mails, "_MOST", 2)
    refused = [queued(), queued()]
    server.answers = {"RCPT": "451 greylisted"}
    mails.send_queued()
    assert {state(row)[0] for row in refused} == {ReceiptState.QUEUED}
    server.answers = {}
    others = [queued(), queued()]
    mails.send_queued()
    assert {state(row)[0] for row in others} == {ReceiptState.SENT}


def test_a_mail_waits_for_an_hour_at_most() -> None:
    now = timezone.now()
    due = [
        mails._is_due(ReceiptMail(queued_at=now - waited, tried_at=now - timedelta(minutes=minutes)))
        for waited, minutes in [
            (timedelta(minutes=20), 9), (timedelta(minutes=20), 11), (timedelta(days=2), 59), (timedelta(days=2), 61),
            (timedelta(), -10),
        ]
    ]  # fmt: skip
    assert due == [False, True, False, True, True]


@pytest.mark.case(140)
def test_a_backend_that_tries_a_second_server_is_not_asked_again(server: MailServer) -> None:
    """The first server may have taken the mail."""
    row = queued()
    server.answers = {".": ""}
    real = EmailMultiAlternatives.send

    def send(message: EmailMultiAlternatives) -> int:
        try:
            return real(message)
        except OSError:
            server.answers = {"RCPT": "451 greylisted"}
            return real(message)

    with mock.patch.object(EmailMultiAlternatives, "send", send):
        mails.send_queued()
    assert state(row) == (ReceiptState.FAILED, "SMTPRecipientsRefused 451")


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError()])
def test_any_other_failure_is_for_a_person(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    first, second = queued(), queued()
    with mock.patch.object(EmailMultiAlternatives, "send", side_effect=[error, 1]):
        mails.send_queued()
    mails.send_queued()
    assert state(first) == (ReceiptState.FAILED, type(error).__name__)
    assert state(second)[0] == ReceiptState.SENT
    assert mail.outbox == []
    assert "ana@example.com" not in caplog.text


def test_a_pass_ends_in_time() -> None:
    first, second = queued(), queued()
    with mock.patch.object(mails.time, "monotonic", side_effect=[0.0, 1.0, mails.PASS_SECONDS + 1]):
        mails.send_queued()
    assert (state(first)[0], state(second)[0]) == (ReceiptState.SENT, ReceiptState.QUEUED)


def test_a_pass_without_receipts_takes_one_statement(django_assert_num_queries: Any) -> None:
    queued()
    mails.send_queued()
    with django_assert_num_queries(1):
        signals.pass_ended.send_robust(sender=None)


def test_an_erasure_finds_no_address_here() -> None:
    row = queued()
    found = erasure.select(erasure.Selection.of(emails=("ana@example.com",)))
    erasure.erase(found, actor="dpo")
    mails.send_queued()
    assert state(row) == (ReceiptState.SKIPPED, "no_address")
    assert "ana" not in str(ReceiptMail.objects.values().get())


# In the admin


def staff(*codenames: str) -> Client:
    user = User.objects.create_user(f"staff-{User.objects.count()}", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return browser(user)


@pytest.mark.parametrize("was", ["unknown", "failed", "sent", "skipped"])
def test_a_person_can_send_it_again(boss: Client, was: str) -> None:
    row = queued()
    ReceiptMail.objects.update(state=was, reason="SMTPDataError", queued_at=timezone.now() - timedelta(days=9))
    assert "Send again" in page(boss, f"{LIST}{row.pk}/change/")
    boss.post(f"{LIST}{row.pk}/send-again/", {"idempotency_key": "k"})
    mails.send_queued()
    assert state(row) == (ReceiptState.SENT, "")
    assert len(mail.outbox) == 1
    assert "Sent again by mail." in page(boss, f"{LIST}{row.pk}/history/")


@pytest.mark.parametrize("now", ["queued", "sending"])
def test_what_is_under_way_is_not_queued_again(boss: Client, now: str) -> None:
    row = queued()
    ReceiptMail.objects.update(state=now, tried_at=timezone.now())
    assert "Send again" not in page(boss, f"{LIST}{row.pk}/change/")
    boss.post(f"{LIST}{row.pk}/send-again/", {"idempotency_key": "k"})
    assert state(row)[0] == now


def test_an_attempt_that_ends_late_does_not_hide_the_next_one() -> None:
    row = queued()

    def send(message: Any) -> None:
        ReceiptMail.objects.update(state=ReceiptState.UNKNOWN)
        mails.send_again(row)

    with mock.patch.object(EmailMultiAlternatives, "send", send):
        mails.send_queued()
    assert state(row) == (ReceiptState.QUEUED, "")


def test_the_list_shows_the_state_the_reason_and_no_address(boss: Client) -> None:
    row = queued()
    Payment.objects.update(status="chargeback")
    mails.send_queued()
    html = page(boss, LIST)
    assert "the payment is no longer paid" in html
    assert row.payment_id in html
    assert "ana@example.com" not in html + page(boss, f"{LIST}{row.pk}/change/")
    assert page(boss, f"{LIST}?state=skipped&q={row.payment_id}").count(row.payment_id) >= 1
    boss.post(f"{LIST}{row.pk}/send-again/")
    history = page(boss, f"{LIST}{row.pk}/history/")
    assert "Sent again by mail." in history
    assert "Times are in the time zone" in history


def test_the_list_links_to_the_payment_and_to_the_mail(boss: Client) -> None:
    row = queued()
    html = page(boss, LIST)
    assert f'<a href="{PAYMENTS}{quote(row.payment_id)}/change/">{row.payment_id}</a></td>' in html
    # A browser makes two links of a link in a link, and the outer one is empty.
    assert re.search(rf'<a href="{LIST}{row.pk}/change/">[^<]*<span', html)


def test_each_right_is_asked_for() -> None:
    row = queued()
    assert staff("view_payment").get(LIST).status_code == 403
    viewer = staff("view_receiptmail")
    assert "Send again" not in page(viewer, f"{LIST}{row.pk}/change/")
    assert viewer.post(f"{LIST}{row.pk}/send-again/").status_code == 403


BUTTON = "Send the receipt again"


def test_the_page_of_a_payment_sends_its_receipt_again(boss: Client) -> None:
    row = queued()
    of_payment, shown = f"{LIST}of-payment/{quote(row.payment_id)}/", f"{PAYMENTS}{quote(row.payment_id)}/change/"
    ReceiptMail.objects.update(state="sent")
    html = page(boss, shown)
    assert BUTTON in html
    assert f'action="{of_payment}"' in html
    assert boss.get(of_payment).status_code == 302
    assert "within a minute or so" in boss.post(of_payment, follow=True).content.decode()
    assert state(row)[0] == ReceiptState.QUEUED
    assert "already on its way" in boss.post(of_payment, follow=True).content.decode(), "a double click"
    mails.send_queued()
    assert len(mail.outbox) == 1
    assert page(boss, f"{PAYMENTS}{quote(row.payment_id)}/history/").count("Receipt sent again by mail.") == 1
    assert boss.post(f"{LIST}of-payment/pay_none/").status_code == 404


@pytest.mark.parametrize(
    "fields",
    [{"status": "created", "payer": {"email": "ana@example.com"}}, {"payer": None}],
    ids=["unpaid", "no address"],
)
def test_who_sends_the_button_by_hand_gets_no_more_than_the_button_offers(
    boss: Client, fields: dict[str, Any]
) -> None:
    payment = paid(**fields)
    answer = boss.post(f"{LIST}of-payment/{quote(payment.pk)}/", follow=True)
    assert "This payment gets no receipt by mail." in answer.content.decode()
    assert not ReceiptMail.objects.exists()


def test_a_payment_without_a_receipt_yet_gets_one(boss: Client) -> None:
    payment = paid(payer={"email": "ana@example.com"})
    boss.post(f"{LIST}of-payment/{quote(payment.pk)}/")
    mails.send_queued()
    assert [message.to for message in mail.outbox] == [["ana@example.com"]]


def test_the_button_is_there_where_a_receipt_can_be_sent(boss: Client) -> None:
    for payment in (
        paid(payer={"name": "Ana"}),
        paid(payer=None),
        paid(status="failed", payer={"email": "ana@example.com"}),
    ):
        assert BUTTON not in page(boss, f"{PAYMENTS}{quote(payment.pk)}/change/")
    payment = paid(payer={"email": "ana@example.com"})
    assert BUTTON in page(boss, f"{PAYMENTS}{quote(payment.pk)}/change/")
    with override_settings(PAYMENTS_RECEIPT_MAIL=None):
        assert BUTTON not in page(boss, f"{PAYMENTS}{quote(payment.pk)}/change/")


def test_the_button_needs_the_right_to_send_and_to_see_the_payment() -> None:
    payment = paid(payer={"email": "ana@example.com"})
    viewer = staff("view_payment")
    assert BUTTON not in page(viewer, f"{PAYMENTS}{quote(payment.pk)}/change/")
    for client in (viewer, staff("send_receiptmail")):
        assert client.post(f"{LIST}of-payment/{quote(payment.pk)}/").status_code == 403
    assert not ReceiptMail.objects.exists()


# The setting


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "PAYMENTS_RECEIPT_MAIL must be a dictionary"),
        ({"URL": ""}, "PAYMENTS_RECEIPT_MAIL has no option 'URL'; it has SITE_URL and FROM"),
        ({"SITE_URL": "http://shop.example"}, 'PAYMENTS_RECEIPT_MAIL["SITE_URL"] must be an https:// URL'),
        ({"SITE_URL": 5}, 'PAYMENTS_RECEIPT_MAIL["SITE_URL"] must be an https:// URL'),
        ({"FROM": "a@b.example\nBcc: c@d.example"}, 'PAYMENTS_RECEIPT_MAIL["FROM"] must be an e-mail address'),
        ({"FROM": None}, 'PAYMENTS_RECEIPT_MAIL["FROM"] must be an e-mail address'),
    ],
)
def test_a_wrong_setting_is_a_check_error(given: Any, text: str) -> None:
    with override_settings(PAYMENTS_RECEIPT_MAIL=given):
        found = [(message.id, message.msg) for message in options.check_setting()]
    assert found == [("payments_integration.E042", text)]


@pytest.mark.parametrize("given", [None, {}, SITE, {**SITE, "FROM": "Tienda <shop@shop.example>"}])
def test_a_right_setting_is_none(given: Any) -> None:
    with override_settings(PAYMENTS_RECEIPT_MAIL=given):
        assert options.check_setting() == []
