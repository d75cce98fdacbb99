"""The movements in the admin: who sees them, their filters and totals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import time_machine
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client

from payments_integration.contrib.finance.models import Movement, MovementKind
from tests.factories import rows
from tests.unit.admin.conftest import boss as boss, browser, page, url  # the fixture is imported
from tests.unit.contrib.finance.books import movement

pytestmark = pytest.mark.django_db

LIST = "/admin/payments_finance/movement/"


@pytest.fixture(autouse=True)
def _march() -> Iterator[None]:
    with time_machine.travel("2026-03-02T12:00:00Z"):
        yield


def staff(*codenames: str) -> Client:
    user = User.objects.create_user(f"staff-{User.objects.count()}", is_staff=True)
    found = Permission.objects.filter(codename__in=codenames)
    assert found.count() == len(codenames)
    user.user_permissions.set(found)
    return browser(user)


def listed(client: Client, **query: str) -> set[str]:
    response: Any = client.get(LIST, query)
    return {row.object_id for row in response.context["cl"].result_list}


def test_the_list_has_filters_by_day_kind_and_currency(boss: Client) -> None:
    movement(occurred_on="2026-01-10", object_id="pay_1")
    movement(occurred_on="2026-01-11", object_id="pay_2", kind=MovementKind.PAYMENT_FEE)
    movement(occurred_on="2026-01-11", object_id="pout_1", kind=MovementKind.PAYOUT_FEE, currency="USD")
    movement(occurred_on="2025-12-31", booked_on="2026-01-12", object_id="pay_late")
    assert listed(boss, **{"from": "2026-01-11", "to": "2026-01-12"}) == {"pay_2", "pout_1", "pay_late"}
    assert listed(boss, kind="payment_fee,payout_fee") == {"pay_2", "pout_1"}
    assert listed(boss, kind="payment", **{"from": "2026-01-10", "to": "2026-01-10"}) == {"pay_1"}
    assert listed(boss, currency="USD") == {"pout_1"}
    # What occurred earlier than the day on which it is in the book.
    assert listed(boss, **{"from": "2026-01-01", "occurred_to": "2025-12-31"}) == {"pay_late"}


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_days_are_those_that_are_stored(boss: Client, settings: Any, zone: str) -> None:
    settings.TIME_ZONE = zone
    movement(occurred_on="2026-01-10")
    for day, found in (("2026-01-09", set()), ("2026-01-10", {"pay_1"}), ("2026-01-11", set())):
        assert listed(boss, **{"from": day, "to": day}) == found


def test_the_list_has_totals(boss: Client) -> None:
    movement(occurred_on="2026-01-10", amount=5000, currency="USD")
    movement(occurred_on="2026-01-10", amount=-1250, currency="USD", kind=MovementKind.REFUND)
    html = page(boss, f"{LIST}?from=2026-01-10&to=2026-01-10")
    totals = html.split('class="pi-totals')[1].split("</table>")[0]
    assert "USD\xa037.50" in totals


def test_movements_are_listed_shown_and_exported_and_never_changed(boss: Client) -> None:
    payment = rows.payment(id="pay_1")
    one = movement(occurred_on="2026-01-10")
    assert f'href="{url("payment", "change", payment.pk)}"' in page(boss, LIST)
    assert ">2026-01-10<" in page(boss, f"{LIST}{one.pk}/change/")
    exported: Any = boss.get(f"{LIST}export/")
    assert b"pay_1" in exported.getvalue()
    for address in (f"{LIST}add/", f"{LIST}{one.pk}/delete/"):
        assert boss.get(address).status_code == 403
    assert boss.post(f"{LIST}{one.pk}/change/", {"amount": 1}).status_code == 403
    assert Movement.objects.get().amount == 1000
    assert staff("view_movement").get(LIST).status_code == 200
    assert staff("view_balance").get(LIST).status_code == 403


def test_the_list_has_pages(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order begins with a day."""
    monkeypatch.setattr(admin.site.get_model_admin(Movement), "list_per_page", 2)
    for day in (10, 10, 11, 12, 13):
        movement(occurred_on=f"2026-01-{day}", object_id=f"pay_{day}")
    response: Any = boss.get(LIST)
    seen = [row.booked_on.day for row in response.context["cl"].result_list]
    while response.context["cl"].older_url:
        response = boss.get(LIST + response.context["cl"].older_url)
        seen += [row.booked_on.day for row in response.context["cl"].result_list]
    assert seen == [13, 12, 11, 10, 10]
