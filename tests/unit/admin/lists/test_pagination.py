"""Lists are paged in both directions, without COUNT and OFFSET."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from payments_integration import inbox
from payments_integration.admin.base import ReadOnlyAdmin
from payments_integration.contrib.backoffice.admin.chosen import MOST
from payments_integration.contrib.backoffice.admin.export import batches
from payments_integration.contrib.backoffice.admin.totals import MAX_ROWS
from payments_integration.db.keyset import Order
from payments_integration.models import (
    DueRefresh,
    Erasure,
    Event,
    Payment,
    WebhookEndpoint,
    deletion_allowed,
)
from tests.factories import rows
from tests.unit.admin.conftest import page, url

SIZE = 4


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadOnlyAdmin, "list_per_page", SIZE)


def keys(response: Any) -> list[Any]:
    return [row.pk for row in response.context["cl"].result_list]


def walk(client: Client, model: str, query: str = "") -> list[list[Any]]:
    """The primary keys of every page, in order."""
    address, pages = f"{url(model, 'changelist')}{query}", []
    while address:
        response = client.get(address)
        assert response.status_code == 200
        pages.append(keys(response))
        following = response.context["cl"].older_url
        address = url(model, "changelist") + following if following else ""
        assert len(pages) < 50
    return pages


@pytest.mark.usefixtures("small_pages")
def test_every_row_is_on_one_page_newest_first(boss: Client) -> None:
    made = [rows.payment().pk for _ in range(10)]
    pages = walk(boss, "payment")
    assert [pk for found in pages for pk in found] == made[::-1]
    assert [len(found) for found in pages] == [4, 4, 2]


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("direction", ["", "-"])
def test_rows_with_equal_times_are_on_exactly_one_page(boss: Client, direction: str) -> None:
    made = [rows.payment(created_at=rows.AT + timedelta(seconds=number // 5)).pk for number in range(11)]
    names = [getattr(name, "__name__", name) for name in
             boss.get(url("payment", "changelist")).context["cl"].list_display]  # fmt: skip
    found = [pk for part in walk(boss, "payment", f"?o={direction}{names.index('created_at')}") for pk in part]
    by_time = Payment.objects.order_by(f"{direction}created_at", f"{direction}pk").values_list("pk", flat=True)
    assert found == list(by_time)
    assert sorted(found) == sorted(made)


@pytest.mark.usefixtures("small_pages")
def test_the_pages_link_back(boss: Client) -> None:
    made = [rows.payment().pk for _ in range(11)][::-1]
    first = boss.get(url("payment", "changelist"))
    changes = first.context["cl"]
    assert (changes.first_url, changes.newer_url) == ("", "")
    second = boss.get(url("payment", "changelist") + changes.older_url)
    third = boss.get(url("payment", "changelist") + second.context["cl"].older_url)
    assert keys(third) == made[8:]
    assert third.context["cl"].older_url == ""
    back = boss.get(url("payment", "changelist") + third.context["cl"].newer_url)
    assert keys(back) == made[4:8]
    assert back.context["cl"].older_url
    begin = boss.get(url("payment", "changelist") + back.context["cl"].newer_url)
    assert keys(begin) == made[:4]
    assert begin.context["cl"].newer_url == ""
    assert keys(boss.get(url("payment", "changelist") + third.context["cl"].first_url)) == made[:4]


@pytest.mark.usefixtures("small_pages")
def test_going_back_past_the_first_row_shows_a_full_first_page(boss: Client) -> None:
    made = [rows.payment().pk for _ in range(6)][::-1]
    second = boss.get(url("payment", "changelist") + boss.get(url("payment", "changelist")).context["cl"].older_url)
    newer = second.context["cl"].newer_url
    with deletion_allowed():
        Payment.objects.filter(pk__in=made[:2]).delete()
    assert keys(boss.get(url("payment", "changelist") + newer)) == made[2:6]


def test_a_list_without_rows_says_so(boss: Client) -> None:
    for address in (url("payout", "changelist"), url("payout", "changelist") + "?q=nothing"):
        bar = page(boss, address).partition('aria-label="Pages"')[2].partition("</nav>")[0]
        assert "<span>None.</span>" in bar


@pytest.mark.usefixtures("small_pages")
def test_a_cursor_beyond_the_last_row_links_back(boss: Client) -> None:
    made = [rows.payment().pk for _ in range(5)][::-1]
    older = boss.get(url("payment", "changelist")).context["cl"].older_url
    with deletion_allowed():
        Payment.objects.filter(pk=made[4]).delete()
    html = page(boss, url("payment", "changelist") + older)
    assert "There are no further rows." in html
    assert "First page" in html
    assert "Previous page" not in html


def cursor(*values: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


@pytest.mark.any_database
@pytest.mark.parametrize(
    "odd",
    [
        "", "x", "%", "a" * 5000, "\x00", "é", cursor(), cursor("x", "y"), cursor(1, "pay_1"), cursor(None, None),
        cursor("2025-01-01", "pay_1"), cursor("2025-01-01T00:00:00", "pay_1"), cursor(["a"], {"b": 1}),
        cursor("0001-01-01T00:00:00+14:00", "pay_1"), cursor("2025-01-01T00:00:00+00:00", "pay_\x00"),
        cursor("2025-01-01T00:00:00+00:00", "\ud800"), cursor("2025-01-01T00:00:00+00:00", True),
        base64.urlsafe_b64encode(b"[" * 900).decode(), base64.urlsafe_b64encode(b'{"a": 1}').decode(),
    ],
)  # fmt: skip
@pytest.mark.parametrize("direction", ["after", "before"])
def test_an_invalid_cursor_shows_the_first_page(boss: Client, odd: str, direction: str) -> None:
    made = rows.payment().pk
    response = boss.get(url("payment", "changelist"), {direction: odd})
    assert response.status_code == 200
    assert keys(response) == [made]
    assert response.context["cl"].newer_url == ""


@pytest.mark.parametrize("odd", [cursor(10**30), cursor(-(10**30)), cursor("x"), cursor(1.5), cursor(True)])
def test_an_invalid_number_in_a_cursor_is_ignored(boss: Client, odd: str) -> None:
    rows.run()
    assert boss.get(url("reconciliationrun", "changelist"), {"after": odd}).status_code == 200


@pytest.mark.usefixtures("small_pages")
def test_the_export_link_keeps_filters_search_and_order_without_the_cursor(boss: Client) -> None:
    for _ in range(9):
        rows.payment(status="failed", merchant_reference="same")
        rows.payment(status="succeeded", merchant_reference="same")
        rows.payment(status="failed")
    query = "?status=failed&q=same&from=2025-01-01"
    pages = walk(boss, "payment", query)
    assert [len(found) for found in pages] == [4, 4, 1]
    second = boss.get(url("payment", "changelist") + query)
    html = page(boss, url("payment", "changelist") + second.context["cl"].older_url)
    changes = boss.get(url("payment", "changelist") + second.context["cl"].older_url).context["cl"]
    for spec in changes.filter_specs:
        for choice in spec.choices(changes):
            assert "after=" not in choice["query_string"]
    assert 'name="after"' not in html
    assert '<input type="hidden" name="status" value="failed">' in html


@pytest.mark.parametrize("model", rows.MAKERS)
@pytest.mark.usefixtures("small_pages")
def test_no_list_counts_or_skips_rows(boss: Client, model: str) -> None:
    for _ in range(SIZE + 2):
        rows.MAKERS[model]()
    with CaptureQueriesContext(connection) as queries:
        pages = walk(boss, model)
    assert [len(found) for found in pages] == [4, 2]
    statements = [query["sql"] for query in queries]
    assert not [sql for sql in statements if "OFFSET" in sql]
    # Totals and tabs count no more than some first rows.
    limits = [f"LIMIT {most + 1})" for most in (MAX_ROWS, MOST)]
    assert not [sql for sql in statements if sql.upper().count("COUNT(") > sum(map(sql.count, limits))]


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("direction", ["", "-"])
def test_rows_with_a_null_in_the_sort_column_are_listed(boss: Client, direction: str) -> None:
    for number in range(9):
        rows.endpoint(created_at=rows.AT + timedelta(seconds=number // 2) if number % 3 else None)
    names = [getattr(name, "__name__", name) for name in
             boss.get(url("webhookendpoint", "changelist")).context["cl"].list_display]  # fmt: skip
    query = f"?o={direction}{names.index('created_at')}"
    pages = walk(boss, "webhookendpoint", query)
    flat = [pk for found in pages for pk in found]
    assert sorted(flat) == sorted(WebhookEndpoint.objects.values_list("pk", flat=True))
    back = boss.get(url("webhookendpoint", "changelist") + query)
    second = boss.get(url("webhookendpoint", "changelist") + back.context["cl"].older_url)
    third = boss.get(url("webhookendpoint", "changelist") + second.context["cl"].older_url)
    assert keys(boss.get(url("webhookendpoint", "changelist") + third.context["cl"].newer_url)) == pages[1]


def test_only_columns_with_an_index_can_be_sorted_by(boss: Client) -> None:
    for account in "bac":
        rows.payment(account=account)
    newest = keys(boss.get(url("payment", "changelist")))
    for column in range(-12, 12):
        found = keys(boss.get(url("payment", "changelist"), {"o": str(column)}))
        assert found in (newest, newest[::-1])
    for odd in ("x", "1.2", "-", "--1", "99", "8.8", "\x00"):
        assert boss.get(url("payment", "changelist"), {"o": odd}).status_code == 200


#: Tables that hold few rows, however many events come in. Their lists need no index.
_SMALL = (WebhookEndpoint, DueRefresh, Erasure)


def test_every_order_offered_has_an_index() -> None:
    for model, model_admin in admin.site._registry.items():
        if not isinstance(model_admin, ReadOnlyAdmin) or model in _SMALL:
            continue
        names = [name.removeprefix("-") for name in model_admin.ordering or ("pk",)]
        first = model._meta.pk.name if names[0] == "pk" else names[0]
        indexed = [list(index.fields) for index in model._meta.indexes]
        indexed += [list(constraint.fields) for constraint in model._meta.constraints]  # type: ignore[attr-defined]
        served = first == model._meta.pk.name or any(fields[0] == first for fields in indexed)
        assert served, model
        assert set(model_admin.sortable_by or ()) <= {first}, model


@pytest.mark.parametrize("key", ["abc", "", "\x00", "9" * 30])
def test_a_key_that_cannot_be_one_selects_nothing(boss: Client, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr(inbox, "replay", lambda *args, **kwargs: pytest.fail("nothing was selected"))
    rows.MAKERS["statuschange"]()
    form = {"action": "replay_selected", ACTION_CHECKBOX_NAME: [key]}
    assert boss.post(url("statuschange", "changelist"), form).status_code in (302, 400)


def test_an_empty_name_of_a_field_is_none(boss: Client) -> None:
    assert "CLP" in page(boss, url("refund", "change", rows.refund(currency="CLP").pk) + "?_to_field=")


def test_an_action_is_for_the_rows_that_were_selected(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    replayed: list[str] = []
    monkeypatch.setattr(inbox, "replay", lambda item, *args, **kwargs: replayed.append(item.pk))
    one, _other = rows.event(), rows.event()
    boss.post(
        url("event", "changelist"),
        {"action": "replay_selected", "index": "0", "select_across": "1", ACTION_CHECKBOX_NAME: [one.pk]},
    )
    assert replayed == [one.pk]


@pytest.mark.parametrize(("model", "action"), [("event", "replay_selected"), ("payment", "refund_selected")])
def test_no_row_that_was_selected_has_a_nul_character(boss: Client, model: str, action: str) -> None:
    """PostgreSQL refuses it with an error."""
    row = rows.MAKERS[model]()
    for chosen in (["a\x00b"], [row.pk, "a\x00b"]):
        response = boss.post(url(model, "changelist"), {"action": action, ACTION_CHECKBOX_NAME: chosen})
        assert response.status_code == 302
    bulk = "/admin/payments_integration/payment/refund-selected/"
    assert boss.get(bulk, {"id": "a\x00b"}).status_code == 200
    form = {"refund": "a\x00b:5", "idempotency_key": "k", "step": "confirm"}
    assert boss.post(bulk, form).status_code == 200


@pytest.mark.usefixtures("small_pages")
def test_an_action_works_on_rows_of_a_further_page(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    replayed: list[str] = []
    monkeypatch.setattr(inbox, "replay", lambda item, *args, **kwargs: replayed.append(item.pk))
    made = [rows.event().pk for _ in range(9)]
    first = made[0]
    older = boss.get(url("event", "changelist")).context["cl"].older_url
    html = page(boss, url("event", "changelist") + older)
    assert "Select all" not in html.replace("Select all objects on this page", "")
    data = {"action": "replay_selected", "index": "0", "select_across": "0", ACTION_CHECKBOX_NAME: [first]}
    response = boss.post(url("event", "changelist") + older, data)
    assert response.status_code == 302
    assert response.headers["Location"].endswith(older)
    assert replayed == [first]


@pytest.mark.usefixtures("db")
def test_batches_read_everything_once() -> None:
    made = [rows.event(created_at=rows.AT).pk for _ in range(7)]
    order = Order(Event._meta, ["-created_at", "-pk"])
    for size in (1, 2, 3, 7, 8):
        found = [row["id"] for part in batches(Event.objects.all(), order, ["id"], size=size) for row in part]
        assert found == sorted(made, reverse=True)


def test_lookups_without_a_filter_are_refused(staff: Callable[..., Client]) -> None:
    rows.payment(payer_email="ana@example.com")
    someone = staff("view_payment")
    for query in ("payer_email__startswith=a", "payer_email=ana@example.com", "payer__name=x", "amount__gt=1",
                  "refunds__reason=x"):  # fmt: skip
        assert someone.get(f"{url('payment', 'changelist')}?{query}").status_code == 400


@pytest.mark.usefixtures("db")
def test_an_empty_table_is_an_empty_list(boss: Client) -> None:
    assert not Payment.objects.exists()
    html = page(boss, url("payment", "changelist"))
    assert "Next page" not in html
    assert "First page" not in html


def test_a_history_links_to_its_pages_where_numbers_have_separators(
    boss: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    payment = rows.payment()
    entry = {"user": User.objects.get(), "content_type": get_content_type_for_model(payment), "object_id": payment.pk}
    LogEntry.objects.bulk_create(LogEntry(**entry, action_flag=CHANGE, change_message="x") for _ in range(1001))
    monkeypatch.setattr(ReadOnlyAdmin, "get_paginator", lambda self, request, found, size: Paginator(found, 1))
    assert 'href="?p=1001"' in page(boss, url("payment", "history", payment.pk))
