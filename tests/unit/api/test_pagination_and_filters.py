"""Lists: every row once, in order, with every page size; filters; and what a page costs."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext

from payments_integration.api import lists
from payments_integration.models import Payment
from payments_integration.services import operations
from tests.unit.api.conftest import Caller, error, later, make_payment

pytestmark = pytest.mark.django_db


@pytest.fixture
def many() -> list[str]:
    """Ids of eleven payments, newest first; some of one moment."""
    for number in range(11):
        # Their ids say nothing about when they came.
        make_payment(f"pay_{number * 7 % 11:02}", created_at=later(number // 3))
    return list(Payment.objects.order_by("-created_at", "-pk").values_list("pk", flat=True))


def walk(caller: Caller, query: str) -> list[str]:
    found: list[str] = []
    cursor = ""
    while True:
        page = caller.get(f"payments/?{query}{cursor}").json()
        assert page["object"] == "list"
        found += [row["id"] for row in page["data"]]
        assert len(found) <= 11, "round and round"
        assert page["has_more"] is (page["next_cursor"] is not None)
        if not page["has_more"]:
            return found
        cursor = f"&cursor={page['next_cursor']}"


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 11, 100])
def test_pages_show_every_row_once_and_in_order(many: list[str], boss: Caller, limit: int) -> None:
    assert walk(boss, f"limit={limit}") == many
    assert walk(boss, f"limit={limit}&ordering=-created_at") == many
    assert walk(boss, f"limit={limit}&ordering=created_at") == many[::-1]


@pytest.mark.case(96)
@pytest.mark.parametrize("most", [1, 3000, 5000])
def test_a_page_ends_before_it_is_too_large(
    many: list[str], boss: Caller, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    Payment.objects.update(metadata={"k" * 1000: "v"})
    monkeypatch.setattr(lists, "MAX_BYTES", most)
    page = boss.get("payments/?limit=100")
    assert len(page.content) < max(most, 3000) + 200
    assert 1 <= len(page.json()["data"]) < 5
    assert walk(boss, "limit=100") == many
    assert walk(boss, "limit=2&ordering=created_at") == many[::-1]


def test_new_rows_do_not_shift_the_next_page(many: list[str], boss: Caller) -> None:
    first = boss.get("payments/?limit=4").json()
    make_payment("pay_new", created_at=later(60))
    rest = boss.get(f"payments/?cursor={first['next_cursor']}").json()
    assert [row["id"] for row in first["data"] + rest["data"]] == many


def test_a_cursor_keeps_its_ordering(many: list[str], boss: Caller) -> None:
    cursor = boss.get("payments/?limit=4&ordering=created_at").json()["next_cursor"]
    assert [row["id"] for row in boss.get(f"payments/?cursor={cursor}").json()["data"]] == many[::-1][4:]
    response = boss.get(f"payments/?cursor={cursor}&ordering=-created_at")
    assert (response.status_code, error(response)["param"]) == (400, "cursor")


def cursor_of(*values: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(values, separators=(",", ":")).encode()).decode().rstrip("=")


AT = "2026-01-01T00:00:00+00:00"
BAD = {
    "cursor=x": "cursor", "cursor=" + "A" * 5000: "cursor", "cursor=%00": "cursor", "cursor=é": "cursor",
    "cursor=" + cursor_of("amount", AT, "pay_1"): "cursor",
    "cursor=" + cursor_of("-created_at", AT, "pay_1\x00"): "cursor",
    "cursor=" + cursor_of("-created_at", AT, ["pay_1"]): "cursor",
    "cursor=" + cursor_of("-created_at", "2026-01-01T00:00:00", "pay_1"): "cursor",
    "cursor=" + cursor_of("-created_at", "0001-01-01T00:00:00+14:00", "pay_1"): "cursor",
    "cursor=" + cursor_of("-created_at", AT): "cursor",
    "cursor=" + cursor_of(["-created_at"], AT, "pay_1"): "cursor",
    "limit=0": "limit", "limit=101": "limit", "limit=-1": "limit", "limit=1.0": "limit", "limit=٣": "limit",
    "limit=": "limit", "limit=1&limit=2": "limit", "ordering=amount": "ordering", "ordering=-id": "ordering",
    "status=": "status", "status=payed": "status", "status=created&status=failed": "status",
    "currency=EUR": "currency",
    "merchant_reference=a%00b": "merchant_reference", "merchant_reference=" + "x" * 256: "merchant_reference",
    "created_from=yesterday": "created_from", "created_to=2026-01-01T00:00:00": "created_to",
    "created_from=2026-02-30T00:00:00Z": "created_from", "created_from=%09": "created_from",
    "stauts=failed": "stauts", "fee=5": "fee",
    "offset=3": "offset", "format=json": "format",
}  # fmt: skip


@pytest.mark.parametrize(("query", "param"), BAD.items(), ids=[query[:40] for query in BAD])
def test_a_wrong_parameter_is_refused(boss: Caller, query: str, param: str) -> None:
    response = boss.get(f"payments/?{query}")
    assert response.status_code == 400
    refusal = error(response)
    assert (refusal["type"], refusal["param"]) == ("invalid_request_error", param)


@pytest.mark.parametrize("path", ["balances/?account=a%00", "balances/?account=" + "a" * 256, "balances/?limit=3"])
def test_lists_without_pages_refuse_wrong_parameters_too(boss: Caller, path: str) -> None:
    assert boss.get(path).status_code == 400


def test_a_detail_takes_no_parameters(many: list[str], boss: Caller) -> None:
    assert boss.get("payments/pay_01/?limit=3").status_code == 400


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("status=failed", ["pay_c"]),
        ("currency=USD", ["pay_b"]),
        ("country=EC", ["pay_b"]),
        ("account=second", ["pay_a"]),
        ("account=third", []),
        ("method_family=cash", ["pay_c"]),
        ("merchant_reference=order-1", ["pay_c", "pay_a"]),
        ("merchant_reference=order-1&status=failed", ["pay_c"]),
        ("created_from={1}", ["pay_c", "pay_b"]),
        ("created_to={1}", ["pay_b", "pay_a"]),
        ("created_from={1}&created_to={1}", ["pay_b"]),
        ("created_from=0001-01-01T00:00:00%2B14:00&created_to=9999-12-31T23:59:59-14:00", ["pay_c", "pay_b", "pay_a"]),
    ],
)
def test_filters_of_payments(boss: Caller, query: str, found: list[str]) -> None:
    make_payment("pay_a", account="second", merchant_reference="order-1")
    make_payment("pay_b", currency="USD", country="EC", created_at=later(1))
    make_payment("pay_c", status="failed", method_family="cash", merchant_reference="order-1", created_at=later(2))
    query = query.format(*[later(minutes).strftime("%Y-%m-%dT%H:%M:%SZ") for minutes in range(3)])
    assert [row["id"] for row in boss.get(f"payments/?{query}").json()["data"]] == found


OTHERS = {
    "payouts/?status=created&currency=CLP&country=CL&merchant_reference=x": 0,
    "payouts/?status=created": 1,
    "refunds/?payment_id=pay_1&status=created": 1,
    "refunds/?payment_id=pay_2": 0,
    "payments/pay_1/refunds/?currency=USD": 0,
    "deposit-references/?status=active&country=CL": 1,
    "events/?type=payment.created": 1,
    "events/?type=payment.failed": 0,
    "operations/?state=done&operation=create_payment": 1,
    "operations/?result_id=pay_1": 1,
    "operations/?target_id=pay_1": 0,
    "balances/?account=default": 1,
    "balances/?account=second": 0,
}


@pytest.mark.parametrize(("path", "count"), OTHERS.items(), ids=OTHERS)
def test_filters_of_other_lists(boss: Caller, rows: Any, path: str, count: int) -> None:
    assert len(boss.get(path).json()["data"]) == count


LISTS = ["payments/", "payments/pay_1/refunds/", "refunds/", "payouts/", "deposit-references/", "balances/", "events/",
         "operations/"]  # fmt: skip


def statements(caller: Caller, path: str) -> int:
    caller.get(path)  # the session of the first visit
    with CaptureQueriesContext(connection) as captured:
        assert caller.get(path).status_code == 200
    for query in captured.captured_queries:
        assert "OFFSET" not in query["sql"].upper()
        assert "COUNT(" not in query["sql"].upper()
    return len(captured)


def test_the_filter_of_operations_knows_calls_that_are_registered_later(
    boss: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "operations/?operation=freeze_payment"
    assert boss.get(path).status_code == 400
    later_calls = {**operations.CALLS, "freeze_payment": operations.CALLS["cancel_payment"]}
    monkeypatch.setattr(operations, "CALLS", later_calls)
    assert boss.get(path).json()["data"] == []
    del later_calls["freeze_payment"]
    assert boss.get(path).status_code == 400


# Session, user, page.
COSTS = dict.fromkeys(LISTS, 3) | {"payments/pay_1/refunds/": 4}  # and the payment


@pytest.mark.parametrize(("path", "cost"), COSTS.items())
def test_what_a_page_costs_a_superuser(path: str, cost: int, rows: Any, boss: Caller) -> None:
    assert statements(boss, path) == cost


@pytest.mark.parametrize("path", [path for path in LISTS if path.split("/")[0] in ("payments", "refunds")])
def test_a_page_costs_a_customer_the_same(path: str, rows: Any, customer: Caller, opened: None) -> None:
    assert statements(customer, path) == COSTS[path]


@pytest.mark.parametrize(("path", "cost"), COSTS.items())
def test_a_page_costs_staff_two_statements_more(path: str, cost: int, rows: Any, staff: Callable[..., Caller]) -> None:
    clerk = staff("view_personal_data")
    group = Group.objects.create(name="clerks")
    group.permissions.set(Permission.objects.filter(content_type__app_label="payments_integration"))
    assert clerk.user is not None
    clerk.user.groups.add(group)
    # Django reads the permissions of the user, and of their groups.
    assert statements(clerk, path) == cost + 2


def test_a_payment_without_refunds_has_an_empty_list(boss: Caller, rows: Any) -> None:
    make_payment("pay_2")
    assert boss.get("payments/pay_2/refunds/").json()["data"] == []
    assert statements(boss, "payments/pay_2/refunds/") == 4
    assert boss.get("payments/pay_3/refunds/").status_code == 404


def test_a_page_costs_the_same_with_many_rows(many: list[str], boss: Caller) -> None:
    assert statements(boss, "payments/?limit=1") == statements(boss, "payments/?limit=100")
    cursor = boss.get("payments/?limit=8").json()["next_cursor"]
    assert statements(boss, f"payments/?cursor={cursor}") == 3
