"""Refresh and cancel: one service call each, outside transactions, and the message afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client

from payments_integration import services
from payments_integration.exceptions import InvalidState, NoAnswer, OutcomeUnknown
from payments_integration.testing import ProviderSandbox
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url

pytestmark = pytest.mark.any_database


def messages_of(client: Client, address: str, **form: Any) -> list[str]:
    """The messages after a POST that redirects to the row's page."""
    response = client.post(address, form, follow=True)
    assert response.status_code == 200
    return [str(message) for message in response.context["messages"]]


def test_refresh_reads_the_object(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(services, "refresh", lambda obj: seen.append(obj) or obj)
    row = rows.payment()
    assert messages_of(boss, url("payment", "refresh", row.pk)) == ["Refreshed from the provider."]
    assert seen == [row]
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(("model", "service"), [("payment", "cancel_payment"), ("payout", "cancel_payout")])
def test_cancel_is_called_with_the_key_of_the_page_and_its_actor(
    boss: Client, monkeypatch: pytest.MonkeyPatch, model: str, service: str
) -> None:
    calls: list[tuple[Any, dict[str, Any]]] = []

    def cancel(obj: Any, **kwargs: Any) -> None:
        calls.append((obj, kwargs))
        type(obj)._default_manager.filter(pk=obj.pk).update(status="canceled")

    monkeypatch.setattr(services, service, cancel)
    row = rows.MAKERS[model](status="created")
    html = page(boss, url(model, "change", row.pk))
    form = html.split(f'action="{url(model, "cancel", row.pk)}"')[1].split("</form>")[0]
    key = form.split('name="idempotency_key" value="')[1].split('"')[0]
    assert "was canceled" in messages_of(boss, url(model, "cancel", row.pk), idempotency_key=key)[0]
    assert calls == [(row, {"idempotency_key": key, "actor": User.objects.get()})]
    assert LogEntry.objects.get().object_id == row.pk


@pytest.mark.django_db(transaction=True)
def test_a_double_click_is_one_entry_of_the_history(payments_sandbox: ProviderSandbox) -> None:
    payment = services.create_payment(amount=8_900, currency="CLP", country="CL", method_code="cl_servipag")
    boss = browser(User.objects.create_superuser("boss"))
    fields = {"account": "default", "url": "https://shop.example/other/", "events": ["payment.succeeded"]}

    def click_twice(address: str, **form: Any) -> list[str]:
        before = LogEntry.objects.count()
        for _click in range(2):
            assert len(messages_of(boss, address, idempotency_key=address, **form)) == 1
        return list(LogEntry.objects.order_by("pk").values_list("object_id", flat=True)[before:])

    assert click_twice(url("payment", "cancel", payment.pk)) == [payment.pk]
    [made] = click_twice(url("webhookendpoint", "add"), **fields)
    assert click_twice(url("webhookendpoint", "rotate", made)) == [made]


@pytest.mark.django_db(transaction=True)
def test_two_clicks_at_once_are_one_entry_of_the_history(
    payments_sandbox: ProviderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one comes while the first one waits for the provider, as the clicks of a mouse do."""
    boss = browser(User.objects.create_superuser("boss"))
    made = {"amount": 8_900, "currency": "CLP", "country": "CL"}
    for name, service, form in (
        ("cancel", "cancel_payment", {}),
        ("refund", "create_refund", {"amount": "100", "step": "confirm"}),
    ):
        payment = services.create_payment(method_code="cl_webpay_card", **made)
        if name == "refund":
            payments_sandbox.engine.pay(payment.pk)
            services.refresh(payment)
        address = url("payment", name, payment.pk)
        call, waiting = getattr(services, service), [{**form, "idempotency_key": address}]

        def call_and_click(
            *args: Any, address: str = address, call: Any = call, waiting: Any = waiting, **kwargs: Any
        ) -> Any:
            result = call(*args, **kwargs)
            if waiting:
                assert boss.post(address, waiting.pop()).status_code == 302
            return result

        monkeypatch.setattr(services, service, call_and_click)
        assert boss.post(address, waiting[0]).status_code == 302
        assert waiting == []
        assert LogEntry.objects.filter(object_id=payment.pk).count() == 1, name


def test_a_cancel_with_another_status_is_a_warning(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "cancel_payment", lambda obj, **kwargs: obj)
    row = rows.payment(status="requires_action")
    assert "Its status is: " in messages_of(boss, url("payment", "cancel", row.pk), idempotency_key="k")[0]


def test_every_page_view_has_its_own_key(boss: Client) -> None:
    row = rows.payment(status="created")
    pages = [page(boss, url("payment", "change", row.pk)) for _ in range(2)]
    keys = {html.split('name="idempotency_key" value="')[-1].split('"')[0] for html in pages}
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("model", "cancelable"), [("payment", {"created", "requires_action"}), ("payout", {"created"})]
)
def test_cancel_is_offered_only_for_statuses_that_allow_it(boss: Client, model: str, cancelable: set[str]) -> None:
    for status in ("created", "requires_action", "processing", "succeeded", "on_hold", "quarked"):
        row = rows.MAKERS[model](status=status)
        offered = url(model, "cancel", row.pk) in page(boss, url(model, "change", row.pk))
        assert offered is (status in cancelable), status


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValidationError({"payment": ["It is paid and cannot be canceled."]}), ["It is paid and cannot be canceled."]),
        (
            InvalidState("no longer <b>", status_code=422, code="invalid_state", request_id="req_7"),
            ["invalid_state", "req_7", "no longer <b>"],
        ),
        (NoAnswer("timeout"), ["no usable answer"]),
    ],
)
def test_a_refusal_is_shown_and_not_logged_as_done(
    boss: Client, monkeypatch: pytest.MonkeyPatch, error: Exception, words: list[str]
) -> None:
    def refuse(obj: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(services, "cancel_payment", refuse)
    row = rows.payment(status="created")
    response = boss.post(url("payment", "cancel", row.pk), follow=True)
    [message] = response.context["messages"]
    assert all(word in str(message) for word in words)
    assert message.level_tag == "error"
    assert "<b>" not in response.content.decode().split("messagelist")[1].split("</ul>")[0]
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(
    ("state", "words"), [("unknown", "is being resolved"), ("needs_person", "a person must decide")]
)
def test_an_unknown_outcome_links_to_its_operation(
    boss: Client, monkeypatch: pytest.MonkeyPatch, state: str, words: str
) -> None:
    operation = rows.operation(state=state)

    def vanish(obj: Any, **kwargs: Any) -> None:
        raise OutcomeUnknown(operation)

    monkeypatch.setattr(services, "cancel_payment", vanish)
    row = rows.payment(status="created")
    [message] = messages_of(boss, url("payment", "cancel", row.pk))
    assert "The outcome is not known" in message
    assert words in message
    assert url("operation", "change", operation.pk) in message
    assert operation.pk in LogEntry.objects.get().get_change_message()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("atomic_requests", [False, True])
def test_services_are_called_outside_transactions(monkeypatch: pytest.MonkeyPatch, atomic_requests: bool) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    within: list[bool] = []
    monkeypatch.setattr(services, "cancel_payment", lambda obj, **kwargs: within.append(connection.in_atomic_block))
    monkeypatch.setattr(services, "create_refund", lambda obj, **kwargs: within.append(connection.in_atomic_block))
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic_requests)
    row = rows.payment(status="created")
    client.post(url("payment", "cancel", row.pk))
    client.raise_request_exception = False  # the stand-in returns no refund
    client.post(url("payment", "refund", row.pk), {"amount": "1", "idempotency_key": "k", "step": "confirm"})
    assert within == [False, False]


def test_without_the_view_permission_a_button_redirects_to_the_index(
    staff: Callable[..., Client], nothing_called: list[str]
) -> None:
    row = rows.payment(status="created")
    response = staff("cancel_payment").post(url("payment", "cancel", row.pk))
    assert response.headers["Location"] == "/admin/"
