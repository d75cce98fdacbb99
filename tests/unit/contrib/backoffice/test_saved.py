"""Filters that a user keeps under a name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from payments_integration.contrib.backoffice.admin import saved
from payments_integration.contrib.backoffice.models import SavedFilter
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url

LIST, SAVED = "changelist", "saved-filters"


def save(client: Client, name: str, query: str, model: str = "payment") -> Any:
    response = client.post(f"{url(model, SAVED)}?{query}", {"name": name})
    assert response.status_code == 302
    return response


def queries() -> dict[str, str]:
    return dict(SavedFilter.objects.values_list("name", "query"))


def links(client: Client, model: str = "payment", query: str = "") -> list[str]:
    shown = page(client, f"{url(model, LIST)}?{query}").partition('<nav class="pi-saved"')[2].partition("</nav>")[0]
    return [part.partition('"')[0] for part in shown.split('<a href="')[1:]]


def test_filters_are_saved_and_opened_with_one_click(boss: Client) -> None:
    good = rows.payment(status="succeeded", currency="CLP").pk
    rows.payment(status="failed", currency="CLP")
    response = save(boss, "Good ones", "status=succeeded&currency=CLP")
    assert response.headers["Location"] == f"{url('payment', LIST)}?currency=CLP&status=succeeded"
    (link,) = links(boss)
    assert [row.pk for row in boss.get(link.replace("&amp;", "&")).context["cl"].result_list] == [good]
    # It is marked while it is open, and not offered for saving again.
    html = page(boss, f"{url('payment', LIST)}?status=succeeded&currency=CLP")
    assert 'aria-current="true"' in html
    assert "Save these filters" not in html
    assert "Save these filters" in page(boss, f"{url('payment', LIST)}?status=failed")
    assert "Save these filters" not in page(boss, url("payment", LIST))


def test_only_filters_are_saved(boss: Client) -> None:
    """Above all no search text: it may be a payer's name."""
    save(boss, "x", "q=Ana+Soto&o=-1&after=abc&add_up=1&payer__name=Ana&status=failed&from=&to=2026-01-01")
    assert queries() == {"x": "status=failed&to=2026-01-01"}
    save(boss, "y", "q=Ana+Soto")
    assert set(queries()) == {"x"}


def test_a_period_stays_relative(boss: Client) -> None:
    with time_machine.travel(datetime(2026, 5, 20, 12, tzinfo=UTC), tick=False):
        old = rows.payment(created_at=timezone.now() - timedelta(days=1)).pk
        save(boss, "yesterday", "days=yesterday")
        (link,) = links(boss)
        assert [row.pk for row in boss.get(link).context["cl"].result_list] == [old]
    with time_machine.travel(datetime(2026, 5, 21, 12, tzinfo=UTC), tick=False):
        new = rows.payment(created_at=timezone.now() - timedelta(days=1)).pk
        assert [row.pk for row in boss.get(link).context["cl"].result_list] == [new]


def test_each_list_and_each_user_has_its_own(boss: Client, staff: Callable[..., Client]) -> None:
    other = staff("view_payment", "view_payout")
    save(boss, "mine", "status=failed")
    save(other, "theirs", "status=failed")
    assert len(links(boss)) == len(links(other)) == 1
    assert links(other, "payout") == []
    mine = SavedFilter.objects.get(name="mine")
    other.post(url("payment", SAVED), {"delete": mine.pk})
    other.post(url("payout", SAVED), {"delete": mine.pk})
    boss.post(url("payout", SAVED), {"delete": mine.pk})
    assert set(queries()) == {"mine", "theirs"}
    response = boss.post(f"{url('payment', SAVED)}?status=failed", {"delete": mine.pk})
    assert response.headers["Location"] == f"{url('payment', LIST)}?status=failed"
    assert set(queries()) == {"theirs"}


def test_numbers_in_forms_have_no_separators(boss: Client, settings: Any) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    owner = str(User.objects.get(username="boss").pk)
    made = SavedFilter.objects.create(
        pk=1234, owner=owner, listed="payments_integration.payment", name="a", query="status=failed"
    )
    assert f'name="delete" value="{made.pk}"' in page(boss, url("payment", LIST))


def test_a_name_is_used_again(boss: Client) -> None:
    save(boss, "a", "status=failed")
    save(boss, "a", "status=succeeded")
    assert queries() == {"a": "status=succeeded"}


@pytest.mark.parametrize("name", ["", "   ", "x" * 61, "a\x00b"])
def test_a_name_is_needed(boss: Client, name: str) -> None:
    save(boss, name, "status=failed")
    assert queries() == {}


@pytest.mark.parametrize("number", ["x", "-1", "9" * 30, "1.5", "²"])
def test_an_odd_number_deletes_nothing(boss: Client, number: str) -> None:
    save(boss, "a", "status=failed")
    assert boss.post(url("payment", SAVED), {"delete": number}).status_code == 302
    assert set(queries()) == {"a"}


def test_their_number_and_length_are_limited(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "MAX_SAVED", 2)
    for name in "abc":
        save(boss, name, "status=failed")
    assert set(queries()) == {"a", "b"}
    save(boss, "b", "status=succeeded")
    assert queries()["b"] == "status=succeeded"
    save(boss, "a", "status=" + "x" * 2000)
    assert queries()["a"] == "status=failed"


def test_names_are_escaped(boss: Client) -> None:
    save(boss, "<script>alert(1)</script>\u202e", "status=%22%3E%3Cscript%3Ealert(2)")
    html = page(boss, url("payment", LIST))
    assert "<script>alert" not in html
    assert "\u202e" not in html


def test_it_needs_the_list_and_a_token(db: None) -> None:
    user = User.objects.create_user("ana", is_staff=True)
    assert browser(user).post(f"{url('payment', SAVED)}?status=failed", {"name": "a"}).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="view_payment"))
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    assert strict.post(f"{url('payment', SAVED)}?status=failed", {"name": "a"}).status_code == 403
    assert strict.get(f"{url('payment', SAVED)}?status=failed", follow=True).context["messages"]
    assert not SavedFilter.objects.exists()
    assert queries() == {}
