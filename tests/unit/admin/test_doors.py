"""Who may do what: nothing is written by a page, nothing is done by GET, without permission or without a token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client

from payments_integration.admin.base import ReadOnlyAdmin
from tests.unit.admin import rows
from tests.unit.admin.conftest import browser, url

#: Model, page and the permission that it asks for.
DOORS = [
    ("payment", "refund", "refund_payment"),
    ("payment", "cancel", "cancel_payment"),
    ("payment", "refresh", "view_payment"),
    ("payout", "cancel", "cancel_payout"),
    ("payout", "refresh", "view_payout"),
    ("refund", "refresh", "view_refund"),
    ("depositreference", "refresh", "view_depositreference"),
    ("balance", "refresh", "view_balance"),
    ("webhookendpoint", "refresh", "view_webhookendpoint"),
    ("event", "replay", "replay_event"),
    ("statuschange", "replay", "replay_event"),
    ("operation", "look-up", "change_operation"),
    ("operation", "send-again", "change_operation"),
    ("operation", "happened", "change_operation"),
    ("operation", "never-happened", "change_operation"),
]
OWN_PERMISSIONS = (
    "refund_payment", "cancel_payment", "cancel_payout", "replay_event", "rotate_webhookendpoint", "change_operation",
)  # fmt: skip
#: What the pages ask for.
FORM = {"amount": "1", "idempotency_key": "k", "object_id": "pay_1", "comment": "why"}


def content(row: Any) -> dict[str, Any]:
    return dict(type(row)._default_manager.filter(pk=row.pk).values().get())


def test_every_own_page_is_in_the_table_above() -> None:
    found = set()
    for model in apps.get_app_config("payments_integration").get_models():
        if admin.site.is_registered(model):
            page_admin = admin.site.get_model_admin(model)
            assert isinstance(page_admin, ReadOnlyAdmin)
            usual = {"changelist", "add", "history", "delete", "change"}
            names = {path.name.rsplit("_", 1)[1] for path in page_admin.get_urls() if path.name}
            found |= {(model._meta.model_name, name) for name in names - usual}
    assert found == {(model, name) for model, name, _permission in DOORS}


@pytest.mark.parametrize("model", rows.MAKERS)
def test_nobody_writes_a_row_by_hand(boss: Client, model: str) -> None:
    row = rows.MAKERS[model]()
    before = content(row)
    fields = {name: "1" for name in before if name != "id"} | {"_save": "Save", "post": "yes"}
    assert boss.post(url(model, "change", row.pk), fields).status_code == 403
    assert boss.post(url(model, "delete", row.pk), fields).status_code == 403
    assert boss.get(url(model, "delete", row.pk)).status_code == 403
    assert boss.post(url(model, "add"), fields).status_code == 403
    assert boss.get(url(model, "add")).status_code == 403
    boss.post(url(model, "changelist"), {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"})
    boss.post(url(model, "changelist"), {"form-TOTAL_FORMS": "1", "form-INITIAL_FORMS": "1", "_save": "Save"})
    assert content(row) == before
    assert type(row)._default_manager.count() == 1


@pytest.mark.parametrize("model", rows.MAKERS)
def test_the_permission_to_change_is_worth_no_more_than_to_view(staff: Callable[..., Client], model: str) -> None:
    row = rows.MAKERS[model]()
    before = content(row)
    client = staff(*(f"{verb}_{model}" for verb in ("add", "change", "delete", "view")))
    for page in ("change", "delete"):
        assert client.post(url(model, page, row.pk), {"status": "x", "post": "yes"}).status_code == 403
    assert client.post(url(model, "add"), {}).status_code == 403
    assert content(row) == before


@pytest.mark.parametrize("model", rows.MAKERS)
def test_no_page_without_the_permission_to_view(staff: Callable[..., Client], model: str) -> None:
    row = rows.MAKERS[model]()
    # Who may change may see: that is Django's rule.
    client = staff(*(name for name in OWN_PERMISSIONS if name != f"change_{model}"))
    for address in (url(model, "changelist"), url(model, "change", row.pk), url(model, "history", row.pk)):
        assert client.get(address).status_code == 403
        assert Client().get(address).status_code == 302


@pytest.mark.case(88)
@pytest.mark.parametrize(("model", "name", "permission"), DOORS)
def test_each_own_page_needs_its_permission(
    staff: Callable[..., Client], nothing_called: list[str], model: str, name: str, permission: str
) -> None:
    row = rows.MAKERS[model]()
    address = url(model, name, row.pk)
    others = [*OWN_PERMISSIONS, *(f"view_{other}" for other in rows.MAKERS)]
    client = staff(*(other for other in others if other != permission))
    outsider = browser(User.objects.create_user("customer"))
    form = FORM
    for method in ("get", "post", "put", "delete", "head"):
        assert getattr(client, method)(address, form).status_code == 403, method
        assert getattr(Client(), method)(address, form).status_code == 302, method
        assert getattr(outsider, method)(address, form).status_code == 302, method
    assert client.post(url(model, name, "absent_1"), form).status_code == 403
    assert nothing_called == []
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(("model", "name", "permission"), DOORS)
def test_the_permission_opens_its_page(
    staff: Callable[..., Client], nothing_called: list[str], model: str, name: str, permission: str
) -> None:
    row = rows.MAKERS[model]()
    client = staff(permission)
    if name == "refund":
        assert client.get(url(model, name, row.pk)).status_code == 200
    else:
        assert client.post(url(model, name, row.pk), FORM).status_code == 302
        assert len(nothing_called) == 1
    assert client.post(url(model, name, "absent_1")).status_code == 404


@pytest.mark.case(80)
@pytest.mark.parametrize(("model", "name", "permission"), DOORS)
def test_get_does_nothing(boss: Client, nothing_called: list[str], model: str, name: str, permission: str) -> None:
    row = rows.MAKERS[model]()
    before = content(row)
    response = boss.get(url(model, name, row.pk), FORM)
    assert response.status_code == (200 if name == "refund" else 405)
    assert boss.get(url(model, "change", row.pk)).status_code == 200
    assert boss.get(url(model, "changelist"), {"action": "replay_selected", "_selected_action": row.pk})
    assert nothing_called == []
    assert content(row) == before
    assert not LogEntry.objects.exists()


@pytest.mark.case(80)
@pytest.mark.parametrize(("model", "name", "permission"), DOORS)
def test_a_post_needs_its_token(db: None, nothing_called: list[str], model: str, name: str, permission: str) -> None:
    row = rows.MAKERS[model]()
    client = browser(User.objects.create_superuser("boss"), enforce_csrf_checks=True)
    form = FORM
    assert client.post(url(model, name, row.pk), form).status_code == 403
    assert nothing_called == []
    # With the token that the page gave out it goes through.
    client.get(url(model, "change", row.pk))
    token = client.cookies["csrftoken"].value
    client.raise_request_exception = False  # the stand-in returns no refund
    response = client.post(url(model, name, row.pk), {**form, "csrfmiddlewaretoken": token})
    assert response.status_code != 403
    assert len(nothing_called) == 1


def test_actions_are_offered_to_those_who_may(staff: Callable[..., Client]) -> None:
    pay, told = rows.payment(), rows.event()
    viewer = staff("view_payment", "view_event")
    assert "refund_selected" not in viewer.get(url("payment", "changelist")).content.decode()
    assert "replay_selected" not in viewer.get(url("event", "changelist")).content.decode()
    shown = viewer.get(url("payment", "change", pay.pk)).content.decode()
    assert url("payment", "refund", pay.pk) not in shown
    assert url("payment", "cancel", pay.pk) not in shown
    actor = staff("view_payment", "refund_payment", "view_event", "replay_event")
    assert "refund_selected" in actor.get(url("payment", "changelist")).content.decode()
    assert "replay_selected" in actor.get(url("event", "changelist")).content.decode()
    assert url("payment", "refund", pay.pk) in actor.get(url("payment", "change", pay.pk)).content.decode()
    assert url("event", "replay", told.pk) in actor.get(url("event", "change", told.pk)).content.decode()


def test_a_permission_for_one_object_opens_that_object(
    staff: Callable[..., Client], nothing_called: list[str], settings: Any
) -> None:
    settings.AUTHENTICATION_BACKENDS = [
        "django.contrib.auth.backends.ModelBackend",
        "tests.unit.admin.backends.OnePaymentBackend",
    ]
    mine, other = rows.payment(id="pay_mine"), rows.payment()
    client = staff()
    assert client.get(url("payment", "refund", mine.pk)).status_code == 200
    assert client.get(url("payment", "refund", other.pk)).status_code == 403
    assert client.post(url("payment", "cancel", mine.pk)).status_code == 403
