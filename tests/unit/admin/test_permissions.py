"""No permission lets a user write, add or delete rows by hand; and permissions for single rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.factories import rows
from tests.unit.admin.conftest import url
from tests.unit.admin.routes import OWN, ROUTES, is_for_a_row

pytestmark = pytest.mark.any_database


def content(row: Any) -> dict[str, Any]:
    return dict(type(row)._default_manager.filter(pk=row.pk).values().get())


def pages(model: str, row: Any) -> list[str]:
    """Django's pages that would write a row. An ``add`` page of ours is left out: it asks the provider."""
    found = [url(model, "change", row.pk), url(model, "delete", row.pk)]
    return found if ROUTES[f"{model}_add"].permissions else [*found, url(model, "add")]


@pytest.mark.parametrize("model", rows.MAKERS)
def test_no_form_of_django_writes_a_row(boss: Client, model: str) -> None:
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
def test_the_permissions_to_add_change_and_delete_allow_only_viewing(staff: Callable[..., Client], model: str) -> None:
    row = rows.MAKERS[model]()
    before = content(row)
    client = staff(*(f"{verb}_{model}" for verb in ("add", "change", "delete", "view")))
    for page in (*pages(model, row), url(model, "add")):
        assert client.post(page, {"status": "x", "post": "yes"}).status_code == 403
    assert content(row) == before


@pytest.mark.parametrize(
    "route", [route for route in OWN if route.permissions and is_for_a_row(route)], ids=lambda route: route.name
)
def test_a_missing_row_is_403_without_the_permission_and_404_with_it(staff: Callable[..., Client], route: Any) -> None:
    model, _, name = route.name.partition("_")
    absent = url(model, name, "absent_1")
    for method in ("get", "post"):
        assert getattr(staff(), method)(absent).status_code == 403
        assert getattr(staff(route.permissions[0]), method)(absent).status_code == 404


def test_a_permission_for_one_object_gives_access_to_that_object_only(
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
def test_save_as_new_is_refused(staff: Callable[..., Client], model: str) -> None:
    """``_saveasnew`` asks for the permission to add, which some of our pages give."""
    row = rows.MAKERS[model]()
    client = staff("create_payout", "manage_webhookendpoint", f"view_{model}")
    assert client.post(url(model, "change", row.pk), {"_saveasnew": "1"}).status_code == 403
    assert type(row)._default_manager.count() == 1


def test_every_breadcrumb_of_a_user_with_one_permission_opens(staff: Callable[..., Client]) -> None:
    places = [(f"view_{model}", url(model, "changelist")) for model in rows.MAKERS]
    for model, make in rows.MAKERS.items():
        places += [(f"view_{model}", url(model, page, make().pk)) for page in ("change", "history")]
    places += [
        ("refund_payment", url("payment", "refund", rows.payment().pk)),
        ("create_payout", url("payout", "add")),
    ]
    for codename, where in places:
        client = staff(codename)
        crumbs = re.search(r'class="breadcrumbs">(.*?)</(?:div|ol)>', client.get(where).content.decode(), re.DOTALL)
        assert crumbs, where
        for link in re.findall(r'href="([^"]+)"', crumbs[1]):
            assert client.get(link).status_code == 200, (where, link)
