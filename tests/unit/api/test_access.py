"""Who may call what: every kind of person, every address, every method."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import get_resolver

from payments_integration.api.permissions import StaffAndCustomers
from payments_integration.api.urls import described
from payments_integration.models import Operation, Refund, deletion_allowed
from tests.unit.api.conftest import MIRRORED, Caller, error, make_operation, make_payment

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

PAYMENT = {"amount": 1000, "currency": "CLP", "country": "CL", "method_code": "m"}
#: method, path, body; the permission of staff; the customer's own, and another customer's answer when they are let in.
MATRIX: list[tuple[str, str, Any, str, int, int]] = [
    ("GET", "payments/", None, "view_payment", 200, 200),
    ("POST", "payments/", PAYMENT, "add_payment", 201, 201),
    ("GET", "payments/pay_1/", None, "view_payment", 200, 404),
    ("POST", "payments/pay_1/cancel/", None, "cancel_payment", 200, 404),
    ("GET", "payments/pay_1/refunds/", None, "view_refund", 200, 404),
    ("POST", "payments/pay_1/refunds/", {}, "refund_payment", 403, 403),
    ("GET", "refunds/", None, "view_refund", 200, 200),
    ("POST", "refunds/", {"payment_id": "pay_1"}, "refund_payment", 403, 403),
    ("GET", "refunds/ref_1/", None, "view_refund", 200, 404),
    ("GET", "payouts/", None, "view_payout", 403, 403),
    ("POST", "payouts/", {}, "create_payout", 403, 403),
    ("GET", "payouts/pout_1/", None, "view_payout", 403, 403),
    ("POST", "payouts/pout_1/cancel/", None, "cancel_payout", 403, 403),
    ("GET", "deposit-references/", None, "view_depositreference", 200, 200),
    ("POST", "deposit-references/", {}, "add_depositreference", 201, 201),
    ("GET", "deposit-references/dep_1/", None, "view_depositreference", 200, 404),
    ("GET", "balances/", None, "view_balance", 403, 403),
    ("GET", "payment-methods/", None, "", 200, 200),
    ("GET", "events/", None, "view_event", 403, 403),
    ("GET", "events/evt_1/", None, "view_event", 403, 403),
    ("GET", "operations/", None, "view_operation", 403, 403),
    ("GET", "operations/{operation}/", None, "view_operation", 200, 404),
    ("GET", "payments/totals/?created_from=2020-01-01", None, "view_payment", 403, 403),
    ("GET", "schema/", None, "", 200, 200),
]
#: What a POST answers, and GET 200.
MADE = {"payments/pay_1/cancel/": 200, "payouts/pout_1/cancel/": 200}
NAMES = [f"{method} {path}" for method, path, *_ in MATRIX]
each = pytest.mark.parametrize(("method", "path", "body", "needs", "own", "others"), MATRIX, ids=NAMES)


def call(caller: Caller, method: str, path: str, body: Any, rows: dict[str, Any]) -> Any:
    path = path.format(operation=rows["operation"].pk)
    return caller.get(path) if method == "GET" else caller.post(path, body)


def good(method: str, path: str) -> int:
    return 200 if method == "GET" else MADE.get(path, 201)


@each
def test_by_default_only_staff_with_the_permission_may_call(
    method: str, path: str, body: Any, needs: str, own: int, others: int, rows: dict[str, Any],
    noted: list[Any], staff: Callable[..., Caller], customer: Caller, stranger: Caller, boss: Caller,
) -> None:  # fmt: skip
    everything = {entry[3] for entry in MATRIX} - {needs, ""}
    refused = {
        "anonymous": (Caller(), 401),
        "customer": (customer, 403),
        "another customer": (stranger, 403),
    }
    if needs:
        refused["staff without permission"] = (staff(), 403)
        refused["staff with every other permission"] = (staff(*everything), 403)
    for who, (caller, status) in refused.items():
        response = call(caller, method, path, body, rows)
        assert response.status_code == status, who
        assert ("WWW-Authenticate" in response) is (status == 401)
        assert error(response)["type"] == ("authentication_error" if status == 401 else "permission_error")
    assert noted == []
    for caller in (staff(needs) if needs else staff(), boss):
        response = call(caller, method, path, body, rows)
        assert response.status_code == good(method, path), response.content
    if method == "POST":
        assert len(noted) == 2
        assert noted[-1][1] == boss.user


@each
def test_with_staff_and_customers_a_customer_may_call_the_routes_for_customers(
    method: str, path: str, body: Any, needs: str, own: int, others: int, rows: dict[str, Any],
    noted: list[Any], staff: Callable[..., Caller], customer: Caller, stranger: Caller, opened: None,
) -> None:  # fmt: skip
    assert call(Caller(), method, path, body, rows).status_code == 401
    if needs:
        assert call(staff(), method, path, body, rows).status_code == 403
    response = call(stranger, method, path, body, rows)
    assert response.status_code == others
    if others == 200 and path not in ("payment-methods/", "schema/"):
        assert response.json()["data"] == []
    made = [name for name, _ in noted if name != "list_payment_methods"]
    assert bool(made) is (others == 201)
    assert call(customer, method, path, body, rows).status_code == own
    assert call(staff(needs) if needs else staff(), method, path, body, rows).status_code == good(method, path)


#: Each has tests of its own in ``test_back_office``.
DECISIONS = {("POST", f"operations/{{id}}/{each}/") for each in ("approve", "reject", "decide")}


def test_the_matrix_has_every_address_and_method() -> None:
    listed = {(method, path.format(operation="id")) for method, path, *_ in MATRIX}
    found = {
        (method, path)
        for pattern in described
        for method in pattern.callback.cls.routes
        for path in [str(pattern.pattern).replace("<str:id>", "{id}")]
    }
    normal = {(method, re.sub(r"/(?:pay|pout|ref|dep|evt)_1/|/id/", "/{id}/", path)) for method, path in listed}
    assert {(method, path.partition("?")[0]) for method, path in normal} - {("GET", "schema/")} | DECISIONS == found


def test_an_inactive_user_may_call_nothing(boss: Caller) -> None:
    User.objects.update(is_active=False)
    assert boss.get("payments/").status_code == 401


def test_a_customer_sees_only_what_is_their_own(
    customer: Caller, stranger: Caller, rows: dict[str, Any], opened: None
) -> None:
    for path, pk in (("payments/", "pay_1"), ("refunds/", "ref_1"), ("deposit-references/", "dep_1")):
        assert [row["id"] for row in customer.get(path).json()["data"]] == [pk]
        assert stranger.get(path).json()["data"] == []


def test_the_user_who_cancels_a_payment_does_not_become_its_owner(
    stranger: Caller, rows: dict[str, Any], opened: None
) -> None:
    assert stranger.user is not None
    make_operation("cancel_payment", "pay_1", stranger.user, target_id="pay_1")
    assert stranger.get("payments/pay_1/").status_code == 404


def test_a_customer_reads_only_their_own_operations(
    customer: Caller, stranger: Caller, rows: Any, opened: None
) -> None:
    path = f"operations/{rows['operation'].pk}/"
    assert customer.get(path).json()["result_id"] == "pay_1"
    assert stranger.get(path).status_code == 404


def nobody_else(queryset: Any, user: Any) -> Any:
    """A project's own rule."""
    return queryset.filter(pk="pay_2") if queryset.model.__name__ == "Payment" else queryset.none()


def test_a_projects_queryset_function_decides_which_rows_are_visible(boss: Caller, rows: Any, settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {
        **settings.PAYMENTS_INTEGRATION, "API_QUERYSET": "tests.unit.api.test_access.nobody_else"
    }  # fmt: skip
    assert boss.get("payments/").json()["data"] == []
    assert boss.get("payments/pay_1/").status_code == 404
    assert boss.get("refunds/").json()["data"] == []
    assert boss.post("refunds/", {"payment_id": "pay_1"}).status_code == 404
    for path in ("payments/pay_1/refunds/", "payments/pay_1/cancel/", "payouts/pout_1/cancel/"):
        assert boss.post(path).status_code == 404
    assert not Operation.objects.exclude(operation__startswith="create_").exists()


def everybodys(queryset: Any, user: Any) -> Any:
    """A project that lets some people look at more than their own."""
    return queryset


def test_a_customer_cannot_change_a_visible_row_of_another_user(
    customer: Caller, stranger: Caller, staff: Callable[..., Caller], noted: list[Any], settings: Any, opened: None
) -> None:
    settings.PAYMENTS_INTEGRATION = {
        **settings.PAYMENTS_INTEGRATION, "API_QUERYSET": "tests.unit.api.test_access.everybodys"
    }  # fmt: skip
    assert stranger.get("payments/pay_1/").status_code == 200
    response = stranger.post("payments/pay_1/cancel/")
    assert response.status_code == 403
    assert error(response)["code"] == "permission_denied"
    assert noted == []
    for caller in (customer, staff("cancel_payment")):
        assert caller.post("payments/pay_1/cancel/").status_code == 200


class NotThisPayment(StaffAndCustomers):
    def has_object_permission(self, request: Any, view: Any, obj: Any) -> bool:
        return obj.pk != "pay_1" and bool(obj.is_own)


@pytest.mark.parametrize("refunded", [True, False])
def test_the_refunds_of_an_invisible_payment_are_invisible(
    customer: Caller, rows: Any, settings: Any, refunded: bool
) -> None:
    """However a project decides that."""
    assert customer.user is not None
    make_payment("pay_2", by=customer.user)
    if refunded:
        Refund.objects.create(id="ref_2", status="created", payment_id="pay_2", amount=1, currency="CLP", **MIRRORED)
    else:
        with deletion_allowed():
            Refund.objects.all().delete()
    settings.PAYMENTS_INTEGRATION = {
        **settings.PAYMENTS_INTEGRATION, "API_PERMISSION_CLASSES": [f"{__name__}.NotThisPayment"]
    }  # fmt: skip
    assert customer.get("payments/pay_1/").status_code == 403
    assert customer.get("payments/pay_1/refunds/").status_code == 403
    assert len(customer.get("payments/pay_2/refunds/").json()["data"]) == int(refunded)


def test_the_projects_defaults_for_its_own_api_do_not_open_this_one(
    settings: Any, rows: Any, customer: Caller
) -> None:
    settings.REST_FRAMEWORK = {
        "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.AllowAny"],
        "DEFAULT_AUTHENTICATION_CLASSES": [],
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.BrowsableAPIRenderer"],
        "UNAUTHENTICATED_USER": None,
    }
    assert Caller().get("payments/").status_code == 401
    assert customer.get("payments/").status_code == 403


def test_login_required_middleware_does_not_redirect_api_callers(settings: Any, boss: Caller) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    assert Caller().get("payments/").status_code == 401
    assert Caller().get("nothing/").status_code == 404
    assert boss.get("payments/").status_code == 200


def test_a_session_needs_the_csrf_token(boss: Caller, noted: list[Any]) -> None:
    assert boss.user is not None
    careful = Caller(boss.user, enforce_csrf_checks=True)
    response = careful.post("payments/", PAYMENT)
    assert response.status_code == 403
    assert noted == []


def test_every_route_can_be_reversed_by_name() -> None:
    names = {key for key in get_resolver("payments_integration.api.urls").reverse_dict if isinstance(key, str)}
    assert {"api-payment-list", "api-payment-detail", "api-payment-cancel", "api-payment-refunds"} <= names
