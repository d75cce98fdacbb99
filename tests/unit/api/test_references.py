"""Which merchant references a customer may name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from rest_framework.permissions import BasePermission

from payments_integration import services
from payments_integration.models import Operation, Payment
from payments_integration.payer.links import Subject
from payments_integration.payer.status import find_payment
from payments_integration.testing import ProviderSandbox
from tests.unit.api.conftest import CUSTOMERS, DESTINATION, Caller, error

pytestmark = [pytest.mark.case(98), pytest.mark.django_db(transaction=True)]

PAYMENT = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
DEPOSIT = {"country": "CL", "currency": "CLP", "method_code": "cl_deposit"}
PAYOUT = {**PAYMENT, "method_code": "cl_bank_transfer", "destination": DESTINATION}
CREATED = [("payments/", PAYMENT), ("deposit-references/", DEPOSIT)]
VICTIM = {"merchant_reference": "order-1"}


class Anybody(BasePermission):
    """A class of the project's own."""


ANYBODY = "tests.unit.api.test_references.Anybody"


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


def test_the_project_is_not_asked_about_what_no_database_finds(
    provider: ProviderSandbox, settings: Any, customer: Caller
) -> None:
    """PostgreSQL refuses the query."""
    with_check(settings, "tests.unit.api.test_calling.any_reference")
    assert is_refused(customer.post("payments/", {**PAYMENT, "merchant_reference": "order\x00"}))


@pytest.mark.parametrize("permission", ["rest_framework.permissions.IsAuthenticated", ANYBODY])
def test_a_class_that_lets_everybody_in_lets_customers_do_no_more(
    provider: ProviderSandbox, settings: Any, customer: Caller, permission: str
) -> None:
    """The services check the permissions of staff only."""
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "API_PERMISSION_CLASSES": [permission]}
    made = customer.post("payments/", PAYMENT).json()["id"]
    provider.engine.pay(made)
    services.refresh(Payment.objects.get())
    answers = [
        customer.post("payouts/", PAYOUT, key="key-2"),
        customer.post(f"payments/{made}/refunds/", {"amount": 100}, key="key-3"),
        customer.post("deposit-references/", {**DEPOSIT, **VICTIM}, key="key-4"),
    ]
    assert [answer.status_code for answer in answers] == [403, 403, 403]
    assert Operation.objects.count() == 1


def test_a_callers_own_permission_counts_as_that_of_staff(
    provider: ProviderSandbox, settings: Any, customer: Caller
) -> None:
    """A program's user is no staff. A class of the project's own lets it in."""
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "API_PERMISSION_CLASSES": [ANYBODY]}
    assert customer.user is not None
    customer.user.user_permissions.add(Permission.objects.get(codename="add_depositreference"))
    assert customer.post("deposit-references/", {**DEPOSIT, **VICTIM}).status_code == 201


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
