"""What no permission gives: nobody writes, adds or deletes a row by hand. And what one row alone may give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.unit.admin import rows
from tests.unit.admin.conftest import url
from tests.unit.admin.doors import DOORS, OWN, of_a_row


def content(row: Any) -> dict[str, Any]:
    return dict(type(row)._default_manager.filter(pk=row.pk).values().get())


def pages(model: str, row: Any) -> list[str]:
    """Django's own pages that would write one; where ``add`` is a page of ours, it asks the provider for one."""
    found = [url(model, "change", row.pk), url(model, "delete", row.pk)]
    return found if DOORS[f"{model}_add"].opens else [*found, url(model, "add")]


@pytest.mark.parametrize("model", rows.MAKERS)
def test_nobody_writes_a_row_by_hand(boss: Client, model: str) -> None:
    row = rows.MAKERS[model]()
    before = content(row)
    fields = {name: "1" for name in before if name != "id"} | {"_save": "Save", "post": "yes"}
    for page in pages(model, row):
        assert boss.post(page, fields).status_code == 403
    assert boss.get(url(model, "delete", row.pk)).status_code == 403
    boss.post(url(model, "changelist"), {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"})
    boss.post(url(model, "changelist"), {"form-TOTAL_FORMS": "1", "form-INITIAL_FORMS": "1", "_save": "Save"})
    assert content(row) == before
    assert type(row)._default_manager.count() == 1


@pytest.mark.parametrize("model", rows.MAKERS)
def test_the_permission_to_change_is_worth_no_more_than_to_view(staff: Callable[..., Client], model: str) -> None:
    row = rows.MAKERS[model]()
    before = content(row)
    client = staff(*(f"{verb}_{model}" for verb in ("add", "change", "delete", "view")))
    for page in (*pages(model, row), url(model, "add")):
        assert client.post(page, {"status": "x", "post": "yes"}).status_code == 403
    assert content(row) == before


@pytest.mark.parametrize("door", [door for door in OWN if door.opens and of_a_row(door)], ids=lambda door: door.name)
def test_whether_a_row_exists_is_told_to_those_who_may(staff: Callable[..., Client], door: Any) -> None:
    model, _, name = door.name.partition("_")
    absent = url(model, name, "absent_1")
    for method in ("get", "post"):
        assert getattr(staff(), method)(absent).status_code == 403
        assert getattr(staff(door.opens[0]), method)(absent).status_code == 404


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


@pytest.mark.parametrize("model", ["payout", "webhookendpoint", "payment"])
def test_django_s_own_insert_is_no_way_in(staff: Callable[..., Client], model: str) -> None:
    """``_saveasnew`` asks for the permission to add, which some of our pages give."""
    row = rows.MAKERS[model]()
    client = staff("create_payout", "manage_webhookendpoint", f"view_{model}")
    assert client.post(url(model, "change", row.pk), {"_saveasnew": "1"}).status_code == 403
    assert type(row)._default_manager.count() == 1
