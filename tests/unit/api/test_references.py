"""Which merchant references a customer may name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from payments_integration.models import Operation, Payment
from payments_integration.payer.links import Subject
from payments_integration.payer.status import find_payment
from payments_integration.testing import ProviderSandbox
from tests.unit.api.conftest import CUSTOMERS, Caller, error

pytestmark = [pytest.mark.case(98), pytest.mark.django_db(transaction=True)]

PAYMENT = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
DEPOSIT = {"country": "CL", "currency": "CLP", "method_code": "cl_deposit"}
CREATED = [("payments/", PAYMENT), ("deposit-references/", DEPOSIT)]
VICTIM = {"merchant_reference": "order-1"}


def only_own(user: Any, reference: str) -> bool:
    return reference == f"order-of-{user.username}"


async def never_asked(user: Any, reference: str) -> bool:
    return False


def with_check(settings: Any, path: str) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "API_REFERENCE_CHECK": path}


@pytest.fixture
def provider(opened: None, settings: Any, woken: list[str]) -> Any:
    with ProviderSandbox(options={"API_PERMISSION_CLASSES": [CUSTOMERS]}) as sandbox:
        yield sandbox


def is_refused(response: Any) -> bool:
    assert (response.status_code, error(response)["param"]) == (403, "merchant_reference")
    assert "API_" not in response.content.decode(), "an option means nothing to a customer"
    return True


@pytest.mark.parametrize(("path", "body"), CREATED)
def test_a_customer_may_not_name_a_reference(
    provider: ProviderSandbox, customer: Caller, path: str, body: dict[str, Any]
) -> None:
    assert is_refused(customer.post(path, {**body, **VICTIM}))
    for odd in ("", 1, ["order-1"], {"a": 1}, True):
        assert is_refused(customer.post(path, {**body, "merchant_reference": odd}))
    assert not Operation.objects.exists()
    assert customer.post(path, {**body, "merchant_reference": None}).status_code == 201
    assert customer.post(path, body, key="key-2").status_code == 201


@pytest.mark.parametrize(("path", "body"), CREATED)
def test_the_project_decides_which_references_a_customer_may_name(
    provider: ProviderSandbox, settings: Any, customer: Caller, path: str, body: dict[str, Any]
) -> None:
    with_check(settings, "tests.unit.api.test_references.only_own")
    assert is_refused(customer.post(path, {**body, **VICTIM}))
    assert is_refused(customer.post(path, {**body, "merchant_reference": ["order-of-customer"]}))
    own = customer.post(path, {**body, "merchant_reference": "order-of-customer"})
    assert (own.status_code, own.json()["merchant_reference"]) == (201, "order-of-customer")


@pytest.mark.filterwarnings("ignore:coroutine")
def test_only_true_allows_a_reference(provider: ProviderSandbox, settings: Any, customer: Caller) -> None:
    with_check(settings, "tests.unit.api.test_references.never_asked")
    assert is_refused(customer.post("payments/", {**PAYMENT, **VICTIM}))


@pytest.mark.parametrize("path", ["", "tests.unit.api.test_references.only_own"])
def test_staff_with_the_permission_name_any_reference(
    provider: ProviderSandbox, settings: Any, staff: Callable[..., Caller], path: str
) -> None:
    with_check(settings, path)
    assert staff("add_payment").post("payments/", {**PAYMENT, **VICTIM}).status_code == 201
    assert staff().post("payments/", {**PAYMENT, **VICTIM}).status_code == 403


def test_a_customer_cannot_take_over_anothers_status_page(
    provider: ProviderSandbox, boss: Caller, stranger: Caller
) -> None:
    theirs = boss.post("payments/", {**PAYMENT, **VICTIM}).json()
    stranger.post("payments/", {**PAYMENT, **VICTIM})
    stranger.post("deposit-references/", {**DEPOSIT, **VICTIM})
    shown = find_payment(Subject("default", merchant_reference="order-1"))
    assert shown is not None
    assert shown.pk == theirs["id"] == Payment.objects.get().pk
