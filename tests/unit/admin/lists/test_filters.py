"""Filters find their rows by an index, and accept no invalid parameters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration.admin.base import ReadOnlyAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.lists.filters import Refunded
from payments_integration.contrib.backoffice.admin.days import Days, with_days
from payments_integration.contrib.backoffice.admin.since import StatusSince, SucceededDays
from payments_integration.enums import PaymentStatus
from payments_integration.models import (
    Balance,
    DueRefresh,
    Erasure,
    ObjectDispatch,
    Payment,
    ReconciliationRun,
    Refund,
    WebhookEndpoint,
)
from tests.factories import rows
from tests.unit.admin.conftest import page, url


def found(client: Client, query: str, model: str = "payment") -> set[Any]:
    response = client.get(f"{url(model, 'changelist')}?{query}")
    assert response.status_code == 200
    return {row.pk for row in response.context["cl"].result_list}


def at(*moment: int) -> datetime:
    return datetime(*moment, tzinfo=UTC)  # type: ignore[misc,arg-type]


def test_days_are_whole_and_both_ends_are_included(boss: Client) -> None:
    before = rows.payment(created_at=at(2025, 3, 3, 23, 59, 59, 999999)).pk
    first = rows.payment(created_at=at(2025, 3, 4)).pk
    last = rows.payment(created_at=at(2025, 3, 5, 23, 59, 59, 999999)).pk
    after = rows.payment(created_at=at(2025, 3, 6)).pk
    assert found(boss, "from=2025-03-04&to=2025-03-05") == {first, last}
    assert found(boss, "from=2025-03-04") == {first, last, after}
    assert found(boss, "to=2025-03-05") == {before, first, last}
    assert found(boss, "from=2025-03-04&to=2025-03-04") == {first}
    assert found(boss, "from=&to=") == {before, first, last, after}


def test_the_dates_above_a_projects_list_filter_it(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    of_2025, of_2026 = (rows.payment(created_at=at(year, 3, 3)).pk for year in (2025, 2026))
    address = f"{url('payment', 'changelist')}?created_at__year="
    assert boss.get(f"{address}2025").status_code == 400
    monkeypatch.setattr(type(admin.site.get_model_admin(Payment)), "date_hierarchy", "created_at")
    assert "?created_at__year=2025" in page(boss, url("payment", "changelist"))
    assert found(boss, "created_at__year=2025") == {of_2025}
    assert found(boss, "created_at__year=2026&created_at__month=3") == {of_2026}
    assert boss.get(f"{url('payment', 'changelist')}?succeeded_at__year=2025").status_code == 400


def test_a_projects_list_has_djangos_short_search_fields(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(admin.site.get_model_admin(Payment)), "search_fields", ("^id", "=merchant_reference"))
    wanted = rows.payment(id="pay_wanted", merchant_reference="order-7").pk
    rows.payment(merchant_reference="order-77")
    assert found(boss, "q=pay_want") == found(boss, "q=order-7") == {wanted}


def test_days_are_in_the_time_zone_of_the_site(boss: Client, settings: Any) -> None:
    settings.TIME_ZONE = "America/Lima"
    late = rows.payment(created_at=at(2025, 3, 5, 2)).pk  # the evening of the 4th in Lima
    assert found(boss, "from=2025-03-04&to=2025-03-04") == {late}
    assert found(boss, "from=2025-03-05&to=2025-03-05") == set()


@pytest.mark.parametrize(
    "query",
    ["from=yesterday", "to=2025-13-01", "from=2025-03-04&to=2025-03-03", "from=9999-12-31", "to=9999-12-31",
     "from=0001-01-01", "from=04.03.2025", "from=%00", "from=2025-03-04&to=x", "from=" + "9" * 5000],
)  # fmt: skip
def test_an_invalid_day_is_reported_and_nothing_is_listed(boss: Client, query: str) -> None:
    rows.payment()
    assert found(boss, query) == set()
    assert "pi-wrong" in page(boss, f"{url('payment', 'changelist')}?{query}")


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_the_first_and_last_days_work_in_every_time_zone(boss: Client, zone: str, settings: Any) -> None:
    settings.TIME_ZONE = zone
    assert found(boss, "from=1900-01-01&to=9990-12-31") == set()


def test_the_form_of_days_works_without_scripts_and_keeps_other_parameters(boss: Client) -> None:
    rows.payment(status="failed")
    html = page(boss, url("payment", "changelist") + "?status=failed&q=pay_&from=2025-03-04&after=x")
    form = html.split('<form class="pi-days pi-form"')[1].split("</form>")[0]
    assert '<input type="date" name="from" value="2025-03-04" id="pi-days-from">' in form
    assert '<label for="pi-days-to">' in form
    assert '<input type="hidden" name="status" value="failed">' in form
    assert '<input type="hidden" name="q" value="pay_">' in form
    assert 'name="after"' not in form
    assert 'type="hidden" name="from"' not in form


@time_machine.travel(datetime(2026, 5, 20, 0, 0, 1, tzinfo=UTC), tick=False)
def test_days_are_offered_as_links(boss: Client) -> None:
    now = timezone.now()
    new = rows.payment(created_at=now).pk
    week = rows.payment(created_at=now - timedelta(days=6)).pk
    month = rows.payment(created_at=now - timedelta(days=29)).pk
    yesterday = rows.payment(created_at=now - timedelta(seconds=2)).pk
    last = rows.payment(created_at=at(2026, 4, 1)).pk
    old = rows.payment(created_at=at(2026, 3, 31, 23, 59, 59)).pk
    response = boss.get(url("payment", "changelist"))
    changes = response.context["cl"]
    days = next(spec for spec in changes.filter_specs if isinstance(spec, Days))
    offered = [found(boss, choice["query_string"].removeprefix("?")) for choice in days.choices(changes)]
    assert offered == [
        {new, yesterday, week, month, last, old}, {new}, {yesterday}, {new, yesterday, week},
        {new, yesterday, week, month}, {new, yesterday, week}, {month, last},
    ]  # fmt: skip


@time_machine.travel(datetime(2026, 3, 1, 2, tzinfo=UTC), tick=False)
def test_periods_are_in_the_time_zone_of_the_site(boss: Client, settings: Any) -> None:
    settings.TIME_ZONE = "America/Lima"
    rows.payment(created_at=at(2026, 2, 28, 4, 59))  # the 27th in Lima
    today = rows.payment(created_at=at(2026, 2, 28, 5)).pk
    january = rows.payment(created_at=at(2026, 2, 1, 4)).pk
    assert found(boss, "days=today") == {today}
    assert found(boss, "days=last-month") == {january}
    settings.TIME_ZONE = "UTC"
    assert found(boss, "days=yesterday") >= {today}


@time_machine.travel(datetime(2026, 1, 15, 12, tzinfo=UTC), tick=False)
def test_the_form_shows_the_dates_of_a_period_and_replaces_it(boss: Client) -> None:
    rows.payment()
    html = page(boss, f"{url('payment', 'changelist')}?days=last-month&status=failed")
    form = html.split('<form class="pi-days pi-form"')[1].split("</form>")[0]
    assert 'name="from" value="2025-12-01"' in form
    assert 'name="to" value="2025-12-31"' in form
    assert 'name="days"' not in form
    assert 'name="status"' in form
    assert found(boss, "days=last-month&from=2026-01-01") == found(boss, "from=2026-01-01")


@pytest.mark.parametrize("query", ["days=tomorrow", "days=%00", "succeeded_days=x", "succeeded_from=yesterday"])
def test_an_unknown_period_is_reported_and_nothing_is_listed(boss: Client, query: str) -> None:
    rows.payment()
    assert found(boss, query) == set()
    assert "pi-wrong" in page(boss, f"{url('payment', 'changelist')}?{query}")


@pytest.mark.parametrize("model", ["payment", "payout"])
@time_machine.travel(datetime(2026, 5, 20, 12, tzinfo=UTC), tick=False)
def test_rows_are_found_by_the_day_of_success_and_sorted_by_it(
    boss: Client, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReadOnlyAdmin, "list_per_page", 2)
    make = rows.MAKERS[model]
    make(succeeded_at=None, created_at=at(2026, 5, 19))
    make(succeeded_at=at(2026, 5, 20), created_at=at(2026, 5, 19))
    make(succeeded_at=at(2026, 5, 18, 23, 59, 59), created_at=at(2026, 5, 18))
    made = [make(succeeded_at=at(2026, 5, 19, hour), created_at=at(2026, 5, 18 - hour)).pk for hour in (1, 2, 2, 9)]
    query, listed = "?succeeded_days=yesterday", []
    while query:
        changes = boss.get(url(model, "changelist") + query).context["cl"]
        listed += [row.pk for row in changes.result_list]
        query = changes.older_url
    assert listed == [made[3], *sorted(made[1:3], reverse=True), made[0]]
    html = page(boss, url(model, "changelist") + "?succeeded_days=yesterday")
    assert 'class="field-succeeded_at' in html
    assert 'class="field-created_at' not in html
    assert 'class="field-created_at' in page(boss, url(model, "changelist") + "?from=2026-05-01&succeeded_days=")
    exported = b"".join(boss.get(url(model, "export") + "?succeeded_days=yesterday").streaming_content).decode()  # type: ignore[arg-type]
    assert [line.partition(",")[0] for line in exported.splitlines()[1:]] == listed


@pytest.mark.parametrize("model", ["payment", "payout"])
def test_a_blank_day_of_success_is_none(boss: Client, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted by a time that rows do not have, every page would be the first."""
    monkeypatch.setattr(ReadOnlyAdmin, "list_per_page", 2)
    made = [rows.MAKERS[model](succeeded_at=None).pk for _number in range(3)]
    changes = boss.get(url(model, "changelist") + "?succeeded_from=+").context["cl"]
    assert [row.pk for row in changes.result_list] == made[:0:-1]
    older = boss.get(url(model, "changelist") + changes.older_url).context["cl"]
    assert [row.pk for row in older.result_list] == made[:1]


@time_machine.travel(datetime(2026, 5, 20, 12, tzinfo=UTC), tick=False)
def test_refunds_are_found_by_the_day_of_their_change_to_succeeded(boss: Client) -> None:
    def refund(status: str, *changes: tuple[str, datetime]) -> str:
        row = rows.refund(status=status, created_at=at(2026, 5, 1), synced_at=timezone.now())
        for became, when in changes:
            rows.change(row, status=became, at=when)
        return str(row.pk)

    good = refund("succeeded", ("processing", at(2026, 5, 1)), ("succeeded", at(2026, 5, 19, 8)))
    back = refund("returned", ("succeeded", at(2026, 5, 19, 8)), ("returned", at(2026, 5, 20)))
    refund("succeeded", ("processing", at(2026, 5, 19, 8)), ("succeeded", at(2026, 5, 20)))
    refund("succeeded", ("succeeded", at(2026, 5, 18, 23)))
    refund("failed", ("failed", at(2026, 5, 19, 8)))
    assert found(boss, "succeeded_days=yesterday", "refund") == {good, back}
    assert found(boss, "succeeded_days=yesterday&status=returned", "refund") == {back}
    assert found(boss, "succeeded_to=2026-05-17", "refund") == set()


def test_lookups_as_djangos_own_lists_name_them_work(boss: Client) -> None:
    failed = rows.payment(status="failed", currency="CLP").pk
    back = rows.payment(status="chargeback", currency="CLP").pk
    rows.payment(status="succeeded")
    for query, wanted in (
        ("status__exact=failed", {failed}),
        ("status__in=failed,chargeback", {failed, back}),
        ("status__exact=failed&currency__exact=USD", set()),
    ):
        response = boss.get(f"{url('payment', 'changelist')}?{query}", follow=True)
        assert {row.pk for row in response.context["cl"].result_list} == wanted, query
    for query in ("payer__exact=x", "status__startswith=f", "payer_email__exact=a", "status__exact=a&status=b"):
        assert boss.get(f"{url('payment', 'changelist')}?{query}", follow=True).status_code == 400, query


def test_other_finds_unknown_values(boss: Client) -> None:
    known = [rows.payment(status=status).pk for status in PaymentStatus.values]
    assert found(boss, "status=~other") == set()
    odd = {rows.payment(status=status).pk for status in ("", "aaa", "quarked", "quarks", "quarkz", "zzz")}
    assert found(boss, "status=~other") == odd
    rows.payment(status="Succeeded")  # the same as the known one to a database that ignores case
    assert not found(boss, "status=~other") & set(known)


@pytest.mark.usefixtures("db")
def test_other_takes_few_statements_and_scans_no_table() -> None:
    for status in [*PaymentStatus.values, "quarked"]:
        rows.payment(status=status)
    with CaptureQueriesContext(connection) as queries:
        assert filters.others(Payment, "status", PaymentStatus.values) == ["quarked"]
    assert len(queries) == 2
    assert "NOT IN" not in "".join(query["sql"] for query in queries)


@pytest.mark.usefixtures("db")
def test_the_lookup_of_unknown_values_is_limited() -> None:
    for number in range(40):
        rows.payment(status=f"odd{number:02}")
    assert len(filters.others(Payment, "status", PaymentStatus.values)) < 20


@pytest.mark.usefixtures("db")
def test_other_of_an_empty_table_finds_nothing() -> None:
    assert filters.others(Payment, "status", PaymentStatus.values) == []


def test_odd_values_are_no_error(boss: Client) -> None:
    rows.payment()
    for query in (
        "status=%00",
        "status=" + "x" * 5000,
        "status=%F0%9F%A6%99",
        "status=&country=",
        "status=a&status=b",
    ):
        assert boss.get(f"{url('payment', 'changelist')}?{query}", follow=True).status_code == 200


#: Tables that hold few rows, however many events come in; runs are deleted after their retention.
_SMALL = (Balance, WebhookEndpoint, DueRefresh, Erasure, ReconciliationRun, ObjectDispatch)


def test_every_filter_offered_has_an_index_in_the_order_of_its_list() -> None:
    for model, model_admin in admin.site._registry.items():
        if not isinstance(model_admin, ReadOnlyAdmin) or model in _SMALL:
            continue
        ordered = [name.removeprefix("-") for name in model_admin.ordering or ()][:1]
        indexed = [list(index.fields) for index in model._meta.indexes]
        indexed += [list(constraint.fields) for constraint in model._meta.constraints]  # type: ignore[attr-defined]
        for item in model_admin.list_filter:
            if item.__base__ is SucceededDays:
                assert ["status", "synced_at"] in indexed, model
                continue
            if issubclass(item, Days):
                # The list is sorted by the field that it is filtered by.
                assert [item.field_name] == ordered or [item.field_name, "id"] in indexed, model
                continue
            if item is Refunded:
                # It looks at the refunds, of which each payment has few.
                assert Refund._meta.get_field("payment").db_index, model
                continue
            if item is StatusSince:
                assert ["status", "synced_at"] in indexed, model
                continue
            name = item.parameter_name
            # An account's changes of status: by the index of objects where it has few, along the list where many.
            wanted = [name] if name == "account" and model._meta.model_name == "statuschange" else [name, *ordered]
            assert any(fields[: len(wanted)] == wanted for fields in indexed) or ordered == [name], (model, name)


def test_the_query_parameters_of_a_list_are_those_of_its_filters() -> None:
    listed = [filters.CURRENCY, with_days(["created_at"])[0]]
    assert filters.parameters(listed) == {"currency", "from", "to", "days"}


class Range(admin.FieldListFilter):
    """Like those of django-admin-rangefilter: its parameter is no lookup."""

    def expected_parameters(self) -> Any:
        return [f"{self.field_path}__range__gte"]

    def choices(self, changelist: Any) -> Any:
        return []

    def queryset(self, request: Any, queryset: Any) -> Any:
        least: Any = self.used_parameters.get(f"{self.field_path}__range__gte")
        return queryset.filter(**{f"{self.field_path}__gte": least[-1]}) if least else queryset


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {"pay_small", "pay_large"}),
        ("amount__range__gte=2000", {"pay_large"}),
        ("method_code=mx_spei", {"pay_large"}),
        ("merchant_reference=o-1", {"pay_large"}),
        ("amount__range__gte=1&method_code=mx_spei", {"pay_large"}),
    ],
)
def test_a_project_adds_filters_on_fields(
    boss: Client, monkeypatch: pytest.MonkeyPatch, query: str, expected: set[str]
) -> None:
    listed: Any = admin.site.get_model_admin(Payment)
    own = (
        *listed.list_filter,
        ("amount", Range),
        ("method_code", admin.AllValuesFieldListFilter),
        "merchant_reference",
    )
    monkeypatch.setattr(listed, "list_filter", own)
    rows.payment(id="pay_small", amount=1000)
    rows.payment(id="pay_large", amount=2000, method_code="mx_spei", merchant_reference="o-1")
    assert found(boss, query) == expected
    shown = page(boss, f"{url('payment', 'changelist')}?{query}")
    assert ("amount__range__gte" in query) == ("Amount: " in shown)
    assert ("Save these filters" in shown) == bool(query)


def test_a_filter_on_a_relation_opens_no_field_behind_it(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = admin.site.get_model_admin(Refund)
    monkeypatch.setattr(listed, "list_filter", (("payment", admin.RelatedFieldListFilter),))
    behind = "payment__payer_email__startswith=a"
    assert boss.get(f"{url('refund', 'changelist')}?{behind}").status_code == 400


def test_every_filter_names_its_parameter() -> None:
    """Themes of the admin read it from every filter of a list."""
    for model, model_admin in admin.site._registry.items():
        if isinstance(model_admin, ReadOnlyAdmin):
            for found in model_admin.list_filter:
                assert isinstance(found, str) or getattr(found, "parameter_name", None), (model, found)
