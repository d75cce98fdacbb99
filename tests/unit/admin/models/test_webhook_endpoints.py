"""Webhook endpoints are created, rotated and deleted with permission, and no page shows a secret."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from payments_integration import services
from payments_integration.db.encryption import decrypt
from payments_integration.enums import EVENT_TYPES
from payments_integration.models import Operation, OperationState, WebhookEndpoint
from payments_integration.sandbox import Fault
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url

ADD = "/admin/payments_integration/webhookendpoint/add/"


def boss_of() -> Client:
    return browser(User.objects.create_superuser("boss"))


def form_of(client: Client, address: str = ADD, **options: Any) -> dict[str, Any]:
    form = client.get(address, **options).context["form"]
    return {name: form[name].value() for name in form.fields}


def test_the_form_suggests_the_url_of_the_account_and_every_event_type(boss: Client) -> None:
    form = form_of(boss)
    assert form["url"] == "https://testserver/payments/webhook/"
    assert form["account"] == "default"
    assert form["events"] == list(EVENT_TYPES)
    assert form_of(boss, f"{ADD}?account=second")["url"] == "https://testserver/payments/webhook/second/"
    html = page(boss, ADD)
    assert "second: https://testserver/payments/webhook/second/" in html
    # On this machine as it is: the provider is a sandbox there.
    assert form_of(boss, HTTP_HOST="127.0.0.1:8000")["url"] == "http://127.0.0.1:8000/payments/webhook/"


def test_with_one_account_no_account_is_asked_for(boss: Client, settings: Any) -> None:
    accounts = {"second": settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["second"]}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": accounts}
    html = page(boss, ADD)
    assert '<input type="hidden" name="account" value="second"' in html
    assert form_of(boss)["url"] == "https://testserver/payments/webhook/second/"


def test_the_url_of_another_account_is_refused(boss: Client, nothing_called: list[str]) -> None:
    response = boss.post(ADD, {**form_of(boss), "account": "second"})
    assert "This is the URL of the account default." in response.content.decode()
    assert nothing_called == []


def test_an_invalid_value_stays_with_a_message_at_its_field(boss: Client) -> None:
    response = boss.post(ADD, {**form_of(boss), "url": "http://shop.example/hook", "events": ["payment.created"]})
    html = response.content.decode()
    assert response.status_code == 200
    assert response.context["form"].errors.keys() == {"url"}
    assert 'value="http://shop.example/hook"' in html
    assert not Operation.objects.exists()
    assert boss.post(ADD, {**form_of(boss), "events": []}).context["form"].errors.keys() == {"events"}
    assert boss.put(ADD).status_code == 405


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("atomic_requests", [False, True])
def test_an_endpoint_is_created_rotated_and_deleted(
    payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch, atomic_requests: bool
) -> None:
    client = boss_of()
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic_requests)
    before = set(payments_sandbox.project.endpoints)
    form = {**form_of(client), "url": "https://shop.example/payments/webhook/"}
    for _ in range(2):  # a double click
        response = client.post(ADD, form)
        assert response.status_code == 302
    [made] = set(payments_sandbox.project.endpoints) - before
    row = WebhookEndpoint.objects.get(pk=made)
    assert response["Location"] == url("webhookendpoint", "change", made)
    secret = decrypt(row.secret_token)
    shown = client.get(response["Location"]).content.decode()
    assert "stored encrypted" in shown
    assert secret not in shown
    key = client.get(url("webhookendpoint", "change", made)).context["pi_tools"][1].key
    for _ in range(2):
        client.post(url("webhookendpoint", "rotate", made), {"idempotency_key": key})
    row.refresh_from_db()
    assert decrypt(row.secret_token) != secret
    assert decrypt(row.previous_secret_token) == secret
    shown = client.get(url("webhookendpoint", "change", made)).content.decode()
    assert "stays valid for 24 hours" in shown
    assert decrypt(row.secret_token) not in shown
    client.post(url("webhookendpoint", "remove", made), {"idempotency_key": "gone"})
    row.refresh_from_db()
    assert row.deleted_at is not None
    assert row.secret_token == ""
    assert made not in payments_sandbox.project.endpoints
    shown = client.get(url("webhookendpoint", "change", made)).content.decode()
    assert url("webhookendpoint", "rotate", made) not in shown
    assert url("webhookendpoint", "remove", made) not in shown
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", False)
    asked = Operation.objects.order_by("created_at").values_list("operation", "actor", "state")
    assert [(name, actor.split(":")[1], state) for name, actor, state in asked] == [
        (name, "boss", OperationState.DONE)
        for name in ("create_webhook_endpoint", "rotate_webhook_secret", "delete_webhook_endpoint")
    ]
    flags = list(LogEntry.objects.order_by("pk").values_list("action_flag", "object_id"))
    assert {flags[0], *flags[2:]} == {(CHANGE, made)}


@pytest.mark.django_db(transaction=True)
def test_a_creation_whose_outcome_is_unknown_leaves_the_form_and_says_so(payments_sandbox: Any) -> None:
    client = boss_of()
    form = {**form_of(client), "url": "https://shop.example/payments/webhook/"}
    payments_sandbox.engine.faults.add(Fault("reset", method="POST", work=True))
    response = client.post(ADD, form, follow=True)
    [message] = map(str, response.context["messages"])
    assert "outcome is not known" in message
    operation = Operation.objects.get()
    assert LogEntry.objects.get().object_id == operation.pk


@pytest.mark.case(88)
def test_each_section_needs_its_permission(staff: Callable[..., Client], nothing_called: list[str]) -> None:
    row = rows.endpoint()
    for granted, allowed in (
        ((), set[str]()),
        (("manage_webhookendpoint",), {"add", "remove"}),
        (("rotate_webhookendpoint",), {"rotate"}),
    ):
        client = staff("view_webhookendpoint", *granted)
        shown = page(client, url("webhookendpoint", "change", row.pk))
        listed = page(client, url("webhookendpoint", "changelist"))
        for name in ("rotate", "remove"):
            address = url("webhookendpoint", name, row.pk)
            assert (f'action="{address}"' in shown) is (name in allowed)
            assert (client.post(address, {"idempotency_key": "k"}).status_code == 302) is (name in allowed)
        assert (f'href="{ADD}' in listed) is ("add" in allowed)
        assert client.get(ADD).status_code == (200 if "add" in allowed else 403)
        assert client.post(ADD, {}).status_code == (200 if "add" in allowed else 403)
    assert nothing_called == ["delete_webhook_endpoint", "rotate_webhook_secret"]


def test_the_same_form_with_another_account_creates_no_second_endpoint(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "create_webhook_endpoint", lambda **kwargs: pytest.fail("it was called"))
    form = {**form_of(boss), "url": "https://shop.example/hook/"}
    rows.operation(account="second", idempotency_key=form["idempotency_key"])
    response = boss.post(ADD, form, follow=True)
    assert "already sent with other values" in response.content.decode()


def test_a_missing_secret_is_reported(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    row = rows.endpoint(secret_token="")
    monkeypatch.setattr(services, "rotate_webhook_secret", lambda obj, **kwargs: obj)
    monkeypatch.setattr(services, "create_webhook_endpoint", lambda **kwargs: row)
    response = boss.post(url("webhookendpoint", "rotate", row.pk), {"idempotency_key": "k"}, follow=True)
    assert "Its secret is not known." in response.content.decode()
    response = boss.post(ADD, {**form_of(boss), "url": "https://shop.example/hook/"}, follow=True)
    assert "Its secret is not known." in response.content.decode()


def test_only_the_age_of_a_secret_is_shown(boss: Client) -> None:
    row = rows.endpoint(secret_since=timezone.now() - timedelta(days=70))
    for address in (url("webhookendpoint", "changelist"), url("webhookendpoint", "change", row.pk)):
        html = page(boss, address)
        assert "2\xa0months" in html
        assert rows.SECRET not in html
    unknown = rows.endpoint(secret_token="", secret_since=None)
    assert "icon-no" in page(boss, url("webhookendpoint", "change", unknown.pk))
