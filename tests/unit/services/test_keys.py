"""Keys that callers of a merchant's own API choose."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.http import HttpRequest, JsonResponse
from django.test import RequestFactory

from payments_integration import services
from payments_integration.models import Operation, Payment
from payments_integration.testing import ProviderSandbox
from tests.conftest import Receiver


def pay(request: HttpRequest, customer: int) -> JsonResponse:
    """A merchant's own endpoint, as the documentation says."""
    payment = services.create_payment(
        **json.loads(request.body),
        idempotency_key=services.scoped_key(request.headers["Idempotency-Key"], customer),
    )
    return JsonResponse({"id": payment.pk})


def post(customer: int, key: str, **changed: Any) -> str:
    body = {"amount": 1000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card", **changed}
    request = RequestFactory().post("/", body, "application/json", headers={"Idempotency-Key": key})
    identity: str = json.loads(pay(request, customer).content)["id"]
    return identity


@pytest.mark.case(92)
@pytest.mark.promise(5)
@pytest.mark.django_db(transaction=True)
def test_the_same_key_of_two_customers_is_two_payments(
    payments_sandbox: ProviderSandbox, woken: list[str], receiver: Receiver
) -> None:
    first = post(1, "checkout-1")
    second = post(2, "checkout-1", amount=2000)
    assert first != second
    assert post(1, "checkout-1") == first
    assert post(2, "checkout-1", amount=2000) == second
    assert Payment.objects.count() == Operation.objects.count() == len(payments_sandbox.project.payments) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b"), ("ab",)),
        (("a", "bc"), ("ab", "c")),
        (('a", "b', "c"), ("a", 'b", "c')),
        (("a", "1"), ("a", "2")),
        (("a", "1"), ("A", "1")),
        (("a", "1"), ("a", "1", "1")),
    ],
)
def test_different_keys_or_scopes_make_different_scoped_keys(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert services.scoped_key(one[0], *one[1:], "shop") != services.scoped_key(other[0], *other[1:], "shop")


@pytest.mark.parametrize("key", ["x", "ñ" * 1000, "\ud800", "\x00", " "])
def test_any_text_becomes_a_key_that_can_be_sent(key: str) -> None:
    scoped = services.scoped_key(key, 7)
    assert scoped == services.scoped_key(key, 7)
    assert scoped.isascii()
    assert scoped.isprintable()
    assert len(scoped) <= 255
    assert key.isspace() or key not in scoped


@pytest.mark.parametrize("key", ["", None, 5])
def test_a_key_that_is_empty_or_no_text_is_refused(key: Any) -> None:
    with pytest.raises(ValidationError) as error:
        services.scoped_key(key, 7)
    assert "key" in error.value.message_dict


@pytest.mark.parametrize("scope", [(), (None,), ("",), ("shop", None)])
def test_a_scoped_key_needs_an_owner(scope: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="whose key"):
        services.scoped_key("x", *scope)
