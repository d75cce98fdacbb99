"""What a customer pays is for the project to say."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404
from rest_framework.request import Request

from payments_integration.models import Operation, Payment
from payments_integration.testing import ProviderSandbox
from tests.unit.api.conftest import Caller, error

pytestmark = pytest.mark.django_db(transaction=True)

PAYMENT = {"amount": 1, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}


def of_order(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    """A shop: the request names an order of the customer, which knows what it costs."""
    if body.get("order") == "of another":
        raise Http404
    if body.get("order") == "paid":
        raise ValidationError({"order": "It is paid."})
    if body.get("order") == "closed":
        raise PermissionDenied
    return {
        "amount": 11_990,
        "currency": "CLP",
        "country": "CL",
        "method_code": body.get("method_code"),
        "merchant_reference": f"order-{body['order']}",
        "idempotency_key": f"attempt-{body['order']}",
    }


def as_sent(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    return {**PAYMENT, **body}


def nothing(request: Request, body: dict[str, Any]) -> Any:
    return None


@pytest.fixture
def provider(opened: None, woken: list[str]) -> Any:
    with ProviderSandbox() as sandbox:
        yield sandbox


@pytest.fixture
def says(settings: Any, provider: ProviderSandbox) -> Callable[[str], None]:
    def say(function: str) -> None:
        path = f"{__name__}.{function}" if function else ""
        settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "API_PAYMENT": path}

    return say


def test_without_the_option_no_customer_chooses_an_amount(
    says: Callable[[str], None], customer: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="payments_integration.api")  # as Django's own logging shows it
    says("")
    for body in (PAYMENT, {}, {**PAYMENT, "amount": 0}):
        response = customer.post("payments/", body)
        assert (response.status_code, error(response)["param"]) == (403, "amount")
        assert "API_" not in response.content.decode(), "an option means nothing to a customer"
        assert "API_PAYMENT" in " ".join(caplog.messages)
    assert not Operation.objects.exists()


def test_staff_name_the_amount_themselves(says: Callable[[str], None], boss: Caller) -> None:
    says("")
    response = boss.post("payments/", PAYMENT)
    assert (response.status_code, response.json()["amount"]) == (201, 1)


def test_the_project_makes_the_arguments(says: Callable[[str], None], customer: Caller) -> None:
    says("of_order")
    body = {"order": "7", "method_code": "cl_webpay_card", "amount": 1}
    response = customer.post("payments/", body)
    assert response.status_code == 201, response.content
    payment = Payment.objects.get()
    assert (payment.amount, payment.merchant_reference) == (11_990, "order-7")
    # The key of the order's attempt: two tabs make one payment.
    assert customer.post("payments/", body, key="of another tab").json()["id"] == payment.pk
    assert customer.get(f"payments/{payment.pk}/").status_code == 200
    assert Operation.objects.get().idempotency_key == "attempt-7"


def test_another_method_for_an_open_attempt_is_no_fault_of_the_customers_key(
    says: Callable[[str], None], customer: Caller
) -> None:
    says("of_order")
    customer.post("payments/", {"order": "7", "method_code": "cl_webpay_card"})
    response = customer.post("payments/", {"order": "7", "method_code": "cl_khipu"}, key="of another tab")
    assert (response.status_code, error(response)["code"]) == (409, "idempotency_conflict")
    assert "param" not in error(response)
    assert "Idempotency-Key" not in error(response)["message"]
    assert Payment.objects.count() == 1


def keyless(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    return {**PAYMENT, "idempotency_key": None}


def test_without_a_key_of_the_project_the_header_counts(says: Callable[[str], None], customer: Caller) -> None:
    says("keyless")
    first, again = customer.post("payments/", {}), customer.post("payments/", {})
    assert (first.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert Payment.objects.count() == 1


def test_a_customer_chooses_no_key_of_the_project(says: Callable[[str], None], customer: Caller) -> None:
    says("as_sent")
    response = customer.post("payments/", {"idempotency_key": "attempt-7"})
    assert (response.status_code, error(response)["param"]) == (400, "idempotency_key")
    assert not Operation.objects.exists()


@pytest.mark.parametrize(("order", "status"), [("of another", 404), ("paid", 400), ("closed", 403)])
def test_the_project_refuses(says: Callable[[str], None], customer: Caller, order: str, status: int) -> None:
    says("of_order")
    response = customer.post("payments/", {"order": order})
    assert response.status_code == status
    assert error(response)["type"] != "api_error"
    assert not Operation.objects.exists()


def looks_up(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    raise AssertionError("a query with these characters is an error of the database")


@pytest.mark.parametrize("value", ["a\0", ["a\0"], {"a": [{"b\0": 1}]}])
def test_characters_that_no_database_takes_do_not_reach_the_project(
    says: Callable[[str], None], customer: Caller, value: Any
) -> None:
    says("looks_up")
    response = customer.post("payments/", {"order": value})
    assert (response.status_code, error(response)["param"]) == (400, "order")
    assert not Operation.objects.exists()


def test_a_missing_argument_is_reported(says: Callable[[str], None], customer: Caller) -> None:
    says("of_order")
    response = customer.post("payments/", {"order": "7"})
    assert (response.status_code, error(response)["param"]) == (400, "method_code")


def test_the_account_is_one_that_the_customer_may_use(says: Callable[[str], None], customer: Caller) -> None:
    says("as_sent")
    assert customer.post("payments/", {"account": "default"}).status_code == 201
    assert customer.post("payments/", {"account": None}, key="key-2").status_code == 201
    assert customer.post("payments/", {"account": "second"}, key="key-3").status_code == 400


@pytest.mark.parametrize(
    ("function", "body"), [("nothing", {}), ("as_sent", {"actor": "boss"}), ("as_sent", {"x": 1})]
)
def test_a_function_that_returns_something_else_is_a_mistake(
    says: Callable[[str], None], customer: Caller, function: str, body: dict[str, Any]
) -> None:
    says(function)
    with pytest.raises(TypeError, match="API_PAYMENT"):
        customer.post("payments/", body)
    assert not Operation.objects.exists()
