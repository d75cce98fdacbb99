"""Attention reaches people by mail and chat: grouped, once an hour per reason, and again if it could not be sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import responses
import time_machine
from django.conf.urls.i18n import i18n_patterns
from django.contrib import admin
from django.core import mail
from django.db import OperationalError
from django.test import Client, override_settings
from django.urls import include, path
from django.utils import timezone, translation

from payments_integration import attention, reconciliation
from payments_integration.attention import ACTIONS
from payments_integration.contrib.notify import notices
from payments_integration.contrib.notify.models import Channel, Notice, Turn
from payments_integration.models import Event
from payments_integration.signals import Reason
from tests.factories import rows

CHAT = "https://chat.example/hooks/T0/secret-of-the-hook"
MAIL = {"MAIL_TO": ["finance@shop.example", "ana@shop.example"]}

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("attention_at_once", "woken")]


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(timezone.now(), tick=False) as clock:
        yield clock


@pytest.fixture
def by_mail() -> Iterator[None]:
    with override_settings(PAYMENTS_NOTIFY=MAIL):
        yield


@pytest.fixture
def by_chat(network: None) -> Iterator[responses.RequestsMock]:
    with override_settings(PAYMENTS_NOTIFY={"CHAT_URL": CHAT}), responses.RequestsMock() as chat:
        yield chat


@pytest.fixture
def network(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ALLOW_NETWORK_IN_TESTS": True}


def call(message: str = "whk_1: disabled", reason: Reason = Reason.ENDPOINT, account: str = "default") -> None:
    attention.call_attention(Event(account=account), reason, message)


def texts(chat: responses.RequestsMock) -> list[str]:
    return [json.loads(sent.request.body)["text"] for sent in chat.calls]  # type: ignore[union-attr,arg-type]


def test_nothing_is_written_or_asked_unless_a_channel_is_chosen(django_assert_num_queries: Any) -> None:
    call()
    assert not Notice.objects.exists()
    with django_assert_num_queries(0):
        notices.deliver()


def test_a_pass_mails_what_happened_and_what_to_do(by_mail: None) -> None:
    call()
    assert mail.outbox == [], "a request may be waiting"
    reconciliation.process_due()
    [message] = mail.outbox
    assert message.to == MAIL["MAIL_TO"]
    assert message.subject == "[Payments] endpoint (default)"
    assert message.body == f"- default: whk_1: disabled\n\nWhat to do: {ACTIONS[Reason.ENDPOINT]}."
    assert not Notice.objects.exists()


def test_the_pass_of_a_waiting_request_mails_nothing(by_mail: None) -> None:
    call()
    reconciliation.process_due(deadline=0.0)
    assert mail.outbox == []


def test_a_message_links_to_the_page_in_the_admin() -> None:
    operation = rows.operation()
    with override_settings(PAYMENTS_NOTIFY={**MAIL, "SITE_URL": "https://shop.example/"}):
        attention.call_attention(operation, Reason.OPERATION_NEEDS_RESOLUTION, "why")
        notices.deliver()
    path = f"/admin/payments_integration/operation/{operation.pk.replace('_', '_5F')}/change/"
    assert f"- default: why\n  https://shop.example{path}\n" in mail.outbox[0].body


class InLanguages:
    urlpatterns = [
        *i18n_patterns(path("admin/", admin.site.urls)),
        path("payments/", include("payments_integration.urls")),
    ]


@pytest.mark.case(141)
@pytest.mark.parametrize("active", ["pt-br", "es", None])
def test_the_link_is_in_the_language_of_the_site_whatever_is_active(active: str | None, settings: Any) -> None:
    """A notice may be recorded while the mail of a payer, or a page of another person, is being written."""
    settings.ROOT_URLCONF = InLanguages
    settings.LANGUAGES = [("es-cl", "Español"), ("en", "English")]
    settings.LANGUAGE_CODE = "es-cl"
    settings.MIDDLEWARE = ["django.middleware.locale.LocaleMiddleware", *settings.MIDDLEWARE]
    operation = rows.operation()
    with override_settings(PAYMENTS_NOTIFY={**MAIL, "SITE_URL": "https://shop.example"}):
        with translation.override(active):
            attention.call_attention(operation, Reason.OPERATION_NEEDS_RESOLUTION, "why")
        notices.deliver()
    [address] = re.findall(r"https://shop\.example(\S+)", str(mail.outbox[0].body))
    assert address.startswith("/es-cl/admin/")
    assert Client().get(address).url.startswith("/es-cl/admin/login/")  # type: ignore[attr-defined]


def test_one_mail_per_reason_and_hour_holds_all_that_came_meanwhile(
    by_mail: None, clock: time_machine.Traveller
) -> None:
    call("first")
    notices.deliver()
    for message, account in (("second", "default"), ("third", "br"), ("second", "default")):
        call(message, account=account)
        notices.deliver()
    assert len(mail.outbox) == 1
    call("of another reason", Reason.GAP_TOO_LONG)
    notices.deliver()
    assert [message.subject for message in mail.outbox[1:]] == ["[Payments] gap_too_long (default)"]
    clock.shift(timedelta(minutes=59))
    notices.deliver()
    assert len(mail.outbox) == 2
    clock.shift(timedelta(minutes=1))
    notices.deliver()
    assert mail.outbox[2].subject == "[Payments] 3 times endpoint (br, default)"
    assert mail.outbox[2].body.startswith("- default: second (2 times)\n- br: third\n")


def test_a_long_list_is_cut_and_counted(by_mail: None) -> None:
    for number in range(23):
        call(f"event {number}")
    notices.deliver()
    assert "- default: event 19\n- and 3 more: see payments_health\n" in mail.outbox[0].body
    assert "event 20" not in mail.outbox[0].body
    assert not Notice.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_notice_survives_a_conflict_in_the_database(by_mail: None) -> None:
    real = type(Notice.objects).bulk_create
    failures = iter([OperationalError("database is locked")])

    def bulk_create(manager: Any, rows: Any) -> Any:
        for failure in failures:
            raise failure
        return real(manager, list(rows))

    with mock.patch.object(type(Notice.objects), "bulk_create", bulk_create):
        call()
    assert Notice.objects.count() == 1


def test_a_mail_that_cannot_be_sent_is_tried_again(
    by_mail: None, clock: time_machine.Traveller, caplog: pytest.LogCaptureFixture
) -> None:
    call()
    with mock.patch.object(notices, "send_mail", side_effect=ConnectionRefusedError("smtp.example")) as send:
        notices.deliver()
        notices.deliver()
        assert send.call_count == 1
    assert "could not be sent: ConnectionRefusedError" in caplog.text
    clock.shift(notices.RETRY)
    notices.deliver()
    assert len(mail.outbox) == 1


def test_a_process_that_dies_while_it_sends_loses_nothing(by_mail: None, clock: time_machine.Traveller) -> None:
    call()
    with mock.patch.object(notices, "send_mail", side_effect=SystemExit), pytest.raises(SystemExit):
        notices.deliver()
    clock.shift(notices.RETRY)
    notices.deliver()
    assert len(mail.outbox) == 1


def test_of_two_processes_one_sends(by_mail: None) -> None:
    call()
    real = notices._take_turn

    def after_another(channel: str, reason: str) -> bool:
        with mock.patch.object(notices, "_take_turn", real):
            notices.deliver()
        return real(channel, reason)

    with mock.patch.object(notices, "_take_turn", after_another):
        notices.deliver()
    assert len(mail.outbox) == 1


def test_a_turn_that_another_process_took_in_between_is_lost(by_mail: None, clock: time_machine.Traveller) -> None:
    call()
    turn = Turn(channel=Channel.MAIL, reason=Reason.ENDPOINT, next_at=timezone.now())
    turn.save()
    Turn.objects.update(next_at=timezone.now() - timedelta(seconds=1))
    with mock.patch.object(type(Turn.objects), "get_or_create", return_value=(turn, False)):
        assert not notices._take_turn(Channel.MAIL, Reason.ENDPOINT)


def test_a_turn_of_a_wrong_clock_blocks_for_no_longer_than_an_hour(by_mail: None) -> None:
    Turn.objects.create(channel=Channel.MAIL, reason=Reason.ENDPOINT, next_at=timezone.now() + timedelta(hours=9))
    call()
    notices.deliver()
    assert len(mail.outbox) == 1


def test_a_chat_gets_one_text(by_chat: responses.RequestsMock) -> None:
    by_chat.post(CHAT, body="ok")
    call()
    notices.deliver()
    assert texts(by_chat) == [
        f"[Payments] endpoint (default)\n- default: whk_1: disabled\n\nWhat to do: {ACTIONS[Reason.ENDPOINT]}."
    ]


@pytest.mark.parametrize("answer", [{"status": 500}, {"status": 302, "headers": {"Location": "https://x.example"}}])
def test_a_chat_that_refuses_is_tried_again_and_its_url_is_not_logged(
    by_chat: responses.RequestsMock,
    clock: time_machine.Traveller,
    caplog: pytest.LogCaptureFixture,
    answer: dict[str, Any],
) -> None:
    by_chat.post(CHAT, **answer)
    call()
    notices.deliver()
    assert Notice.objects.count() == 1
    assert "could not be sent: HTTPError" in caplog.text
    assert "secret-of-the-hook" not in caplog.text
    by_chat.replace(responses.POST, CHAT, body="ok")
    clock.shift(notices.RETRY)
    notices.deliver()
    assert not Notice.objects.exists()


@pytest.mark.parametrize(
    ("url", "calls"), [(CHAT, 0), ("https://127.0.0.1.chat.example/", 0), ("https://localhost:8065/hooks/x", 1)]
)
def test_a_test_sends_nothing_to_a_chat_of_another_machine(
    url: str, calls: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The address may be the shop's own, from its .env. The test goes on as if the notice had been sent."""
    with (
        override_settings(PAYMENTS_NOTIFY={"CHAT_URL": url}),
        responses.RequestsMock(assert_all_requests_are_fired=False) as chat,
    ):
        chat.post(url, body="ok")
        call()
        reconciliation.process_due()
        assert len(chat.calls) == calls
    assert not Notice.objects.exists()
    assert ("set ALLOW_NETWORK_IN_TESTS" in caplog.text) is (calls == 0)
    assert "secret-of-the-hook" not in caplog.text


@pytest.mark.usefixtures("network")
def test_mail_goes_out_while_the_chat_is_down() -> None:
    with override_settings(PAYMENTS_NOTIFY={**MAIL, "CHAT_URL": CHAT}), responses.RequestsMock() as chat:
        chat.post(CHAT, status=503)
        call()
        notices.deliver()
    assert len(mail.outbox) == 1
    assert list(Notice.objects.values_list("channel", flat=True)) == ["chat"]


def test_a_reason_that_this_version_does_not_know_is_sent_without_advice(by_mail: None) -> None:
    Notice.objects.create(channel=Channel.MAIL, reason="a_later_invention", account="default", message="look")
    notices.deliver()
    assert mail.outbox[0].body == "- default: look"


def test_trouble_of_the_database_is_mailed_at_once_if_no_row_can_be_written(by_mail: None) -> None:
    full = OperationalError("database or disk is full")
    with mock.patch.object(Notice.objects, "bulk_create", side_effect=full):
        call("the disk is full", reason=Reason.DATABASE)
        assert [sent.subject for sent in mail.outbox] == ["[Payments] database (default)"]
        assert "the disk is full" in mail.outbox[0].body
        with pytest.raises(OperationalError):
            notices.record(Event, Reason.ENDPOINT, "default", "whk_1: disabled")
        with mock.patch.object(mail, "get_connection", side_effect=OSError):
            call("again", reason=Reason.DATABASE)
    assert len(mail.outbox) == 1
    call("stored", reason=Reason.DATABASE)
    assert (len(mail.outbox), Notice.objects.count()) == (1, 1)
