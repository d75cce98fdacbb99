"""Calls that change something, against a running provider: once per key, and in the provider's envelope."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from payments_integration import services
from payments_integration.models import Operation, OperationState, Payment, Payout, Refund
from payments_integration.sandbox.faults import Fault
from payments_integration.testing import ProviderSandbox
from tests.unit.api.conftest import AS_ASKED, CUSTOMERS, DESTINATION, PAYER, Caller, error, make_payment

pytestmark = pytest.mark.django_db(transaction=True)

BODY = {
    "amount": 12990, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card", "payer": PAYER,
    "merchant_reference": "order-1",
}  # fmt: skip
PAYOUT = {
    "amount": 5000, "currency": "CLP", "country": "CL", "method_code": "cl_bank_transfer", "destination": DESTINATION
}  # fmt: skip


def any_reference(user: Any, reference: str) -> bool:
    return True


@pytest.fixture
def provider(_unhurried: None, settings: Any, woken: list[str]) -> Any:
    settings.PAYMENTS_INTEGRATION = {
        **settings.PAYMENTS_INTEGRATION,
        "API_PERMISSION_CLASSES": [CUSTOMERS],
        "API_PAYMENT": AS_ASKED,
        "API_REFERENCE_CHECK": "tests.unit.api.test_calling.any_reference",
    }
    with ProviderSandbox() as sandbox:
        sandbox.project.fund("CLP", 1_000_000)
        yield sandbox


def posts(provider: ProviderSandbox) -> list[str]:
    """What the provider was asked to do."""
    return [entry["path"] for entry in provider.engine.requests if entry["method"] == "POST"]


def unsigned(payment: dict[str, Any]) -> dict[str, Any]:
    """Without the address that is signed with the time."""
    assert payment["status_url"]
    return {name: value for name, value in payment.items() if name != "status_url"}


def test_a_payment_is_created(provider: ProviderSandbox, customer: Caller) -> None:
    response = customer.post("payments/", BODY)
    assert response.status_code == 201
    made = response.json()
    assert response["Location"] == f"/payments/api/payments/{made['id']}/"
    assert made["payer"] == PAYER
    assert made["checkout_url"].startswith("http")
    theirs = provider.project.payments[made["id"]]
    assert (theirs["amount"], theirs["merchant_reference"]) == (12990, "order-1")
    assert customer.user is not None
    assert Operation.objects.get().actor_id == str(customer.user.pk)
    assert unsigned(customer.get(f"payments/{made['id']}/").json()) == unsigned(made)


@pytest.mark.promise(5)
def test_a_repeated_key_returns_the_same_object_without_a_second_call(
    provider: ProviderSandbox, customer: Caller
) -> None:
    first, second = customer.post("payments/", BODY), customer.post("payments/", BODY)
    assert (first.status_code, second.status_code) == (201, 201)
    assert unsigned(first.json()) == unsigned(second.json())
    assert first["Request-Id"] != second["Request-Id"]
    assert posts(provider) == ["/v1/payments"]
    assert customer.post("payments/", BODY, key="key-2").json()["id"] != first.json()["id"]


def test_a_key_used_for_another_call_is_a_conflict(provider: ProviderSandbox, customer: Caller) -> None:
    made = customer.post("payments/", BODY).json()
    for path, body in (("payments/", {**BODY, "amount": 1}), (f"payments/{made['id']}/cancel/", None)):
        response = customer.post(path, body)
        assert response.status_code == 409
        found = error(response)
        assert (found["type"], found["code"]) == ("idempotency_error", "idempotency_conflict")
    assert posts(provider) == ["/v1/payments"]


@pytest.mark.case(92)
def test_two_customers_with_the_same_key_get_two_payments(
    provider: ProviderSandbox, customer: Caller, stranger: Caller
) -> None:
    made = [who.post("payments/", BODY, key="order-1").json()["id"] for who in (customer, stranger)]
    assert len(set(made)) == 2
    assert set(provider.project.payments) == set(made)
    for who, own in zip((customer, stranger), made, strict=True):
        assert who.post("payments/", BODY, key="order-1").json()["id"] == own
        assert [row["id"] for row in who.get("payments/").json()["data"]] == [own]
    assert len(posts(provider)) == 2


def test_a_customer_of_another_table_is_not_the_user_with_the_same_number(
    provider: ProviderSandbox, with_members: None, customer: Caller
) -> None:
    assert customer.user is not None
    member, number = Caller(), {"X-Member": str(customer.user.pk)}
    theirs = customer.post("payments/", BODY).json()["id"]
    own = member.post("payments/", BODY, **number).json()["id"]
    assert own != theirs, "their keys are alike"
    assert Operation.objects.get(result_id=own).actor == f"{customer.user.pk}:member-{customer.user.pk}"
    for caller, headers, sees, misses in ((customer, {}, theirs, own), (member, number, own, theirs)):
        assert [row["id"] for row in caller.get("payments/", **headers).json()["data"]] == [sees]
        assert caller.get(f"payments/{misses}/", **headers).status_code == 404
        assert caller.post(f"payments/{misses}/cancel/", key="key-2", **headers).status_code == 404


@pytest.mark.parametrize(
    ("key", "code"), [(None, "parameter_missing"), ("", "parameter_missing"), ("k" * 256, "parameter_invalid")]
)
def test_a_post_without_a_valid_key_is_refused(
    provider: ProviderSandbox, customer: Caller, key: str | None, code: str
) -> None:
    response = customer.post("payments/", BODY, key=key)
    assert response.status_code == 400
    assert (error(response)["code"], error(response)["param"]) == (code, "Idempotency-Key")
    assert not Operation.objects.exists()
    for path in ("payments/pay_other/cancel/", "deposit-references/"):
        assert error(customer.post(path, key=key))["param"] == "Idempotency-Key", "asked for before anything else"
    assert customer.post("payments/", BODY, key="k" * 255).status_code == 201


def test_a_payment_is_canceled(provider: ProviderSandbox, customer: Caller) -> None:
    made = customer.post("payments/", BODY).json()
    for _ in range(2):
        response = customer.post(f"payments/{made['id']}/cancel/", key="key-2")
        assert (response.status_code, response.json()["status"]) == (200, "canceled")
    response = customer.post(f"payments/{made['id']}/cancel/", key="key-3")
    assert response.status_code == 422
    found = error(response)
    assert (found["type"], found["code"]) == ("invalid_state_error", "invalid_state")
    assert len(posts(provider)) == 2


def test_a_payment_is_refunded(provider: ProviderSandbox, customer: Caller, staff: Callable[..., Caller]) -> None:
    made = customer.post("payments/", BODY).json()["id"]
    provider.engine.pay(made)
    finance = staff("refund_payment", "view_personal_data")
    response = finance.post("refunds/", {"payment_id": made, "amount": 2990, "reason": "broken"})
    assert response.status_code == 201, response.content
    refund = response.json()
    assert (refund["payment_id"], refund["amount"], refund["reason"]) == (made, 2990, "broken")
    assert response["Location"] == f"/payments/api/refunds/{refund['id']}/"
    rest = finance.post(f"payments/{made}/refunds/", {}, key="key-2").json()
    assert rest["amount"] == 10000
    response = finance.post(f"payments/{made}/refunds/", {"amount": 1}, key="key-3")
    assert (response.status_code, error(response)["code"]) == (422, "invalid_state")
    listed = customer.get(f"payments/{made}/refunds/").json()["data"]
    assert {row["id"] for row in listed} == {refund["id"], rest["id"]}
    assert Refund.objects.count() == 2


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"amount": 20000}, 422, "amount_out_of_range", "amount"),
        ({"amount": 0}, 400, "parameter_invalid", "amount"),
        ({"amount": "5"}, 400, "parameter_invalid", "amount"),
        ({"amount": None}, 400, "parameter_missing", "amount"),
        ({"destination": DESTINATION}, 400, "parameter_invalid", "destination"),
        ({"payment_id": "pay_other"}, 400, "parameter_invalid", "payment_id"),
    ],
)
def test_an_impossible_refund_is_refused(
    provider: ProviderSandbox, boss: Caller, body: Any, status: int, code: str, param: str
) -> None:
    made = boss.post("payments/", BODY).json()["id"]
    provider.engine.pay(made)
    response = boss.post(f"payments/{made}/refunds/", body, key="key-2")
    assert response.status_code == status
    assert (error(response)["code"], error(response).get("param")) == (code, param)
    assert not provider.project.refunds


def test_a_bank_transfer_is_refunded_to_a_bank_account(provider: ProviderSandbox, boss: Caller) -> None:
    made = boss.post("payments/", {**BODY, "method_code": "cl_bank_transfer"}).json()["id"]
    provider.engine.pay(made)
    response = boss.post("refunds/", {"payment_id": made}, key="key-2")
    assert (response.status_code, error(response)["code"]) == (400, "parameter_missing")
    assert error(response)["param"] == "destination"


def test_a_refund_of_an_unknown_payment_is_404(provider: ProviderSandbox, boss: Caller) -> None:
    for given in ("pay_other", "", "pay\x00", 7, "p" * 300):
        response = boss.post("refunds/", {"payment_id": given})
        assert (response.status_code, error(response)["param"]) == (404, "payment_id")
    assert error(boss.post("refunds/", {}))["code"] == "parameter_missing"
    assert posts(provider) == []


def test_a_payout_is_sent_and_canceled(provider: ProviderSandbox, boss: Caller) -> None:
    response = boss.post("payouts/", PAYOUT)
    assert response.status_code == 201, response.content
    made = response.json()
    assert made["destination"]["account_number"] == "123456789"
    assert Payout.objects.get().pk == made["id"]
    assert boss.post(f"payouts/{made['id']}/cancel/", key="key-2").json()["status"] == "canceled"


def test_a_payout_above_the_balance_is_refused(provider: ProviderSandbox, boss: Caller) -> None:
    for known in (False, True):
        if known:
            services.sync_balances()
        response = boss.post("payouts/", {**PAYOUT, "amount": 2_000_000}, key=f"key-{known}")
        assert response.status_code == 422
        found = error(response)
        assert (found["type"], found["code"], found["param"]) == (
            "invalid_state_error", "insufficient_balance", "amount"
        )  # fmt: skip


def test_a_payout_that_needs_approval_is_answered_202(provider: ProviderSandbox, boss: Caller, settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {"CLP": 5000}}
    for _ in range(2):
        response = boss.post("payouts/", PAYOUT)
        assert response.status_code == 202
        operation = Operation.objects.get()
        assert (response.json()["id"], response.json()["state"]) == (operation.pk, "awaiting_approval")
        assert response["Location"] == f"/payments/api/operations/{operation.pk}/"
        assert boss.get(f"operations/{operation.pk}/").json() == response.json()
    assert posts(provider) == []
    services.reject(operation, boss.user, "no")
    response = boss.post("payouts/", PAYOUT)
    assert (response.status_code, error(response)["code"]) == (422, "operation_closed")


def test_an_unknown_outcome_is_answered_202_until_it_is_known(provider: ProviderSandbox, customer: Caller) -> None:
    provider.engine.faults.add(Fault("reset", operation="create_payment", work=True, times=1))
    response = customer.post("payments/", BODY)
    assert (response.status_code, response.json()["state"]) == (202, "unknown")
    # The user who asked may read that address.
    assert customer.client.get(response["Location"]).json() == response.json()
    assert customer.post("payments/", BODY).status_code == 202
    Operation.objects.update(next_attempt_at=None)
    services.resume_operations()
    response = customer.post("payments/", BODY)
    assert response.status_code == 201
    assert list(provider.project.payments) == [response.json()["id"]]


LIMITED = Fault("rate_limited", times=None, retry_after="700")
TROUBLE: dict[str, tuple[Callable[[ProviderSandbox], None], int]] = {
    "a key that was revoked": (lambda provider: provider.project.revoke_key(), 502),
    "a merchant who is not active": (lambda provider: setattr(provider.engine.terms, "active", False), 502),
    "too many requests": (
        lambda provider: provider.engine.faults.add(dataclasses.replace(LIMITED)) and None, 503,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "status"), TROUBLE.values(), ids=TROUBLE)
def test_a_provider_error_that_is_not_the_callers_is_answered_as_unavailable(
    provider: ProviderSandbox, boss: Caller, make: Any, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    make(provider)
    for response in (boss.post("payments/", BODY), boss.get("payment-methods/")):
        assert response.status_code == status
        found = error(response)
        assert (found["type"], found["code"]) == ("api_error", "provider_unavailable")
        assert ("Retry-After" in response) is (status == 503)
        assert "key" not in found["message"].replace("Idempotency-Key", "").lower()
        [line] = [r.getMessage() for r in caplog.records if found["request_id"] in r.getMessage()]
        assert "HTTP 4" in line, "the log has what the provider said"
    assert not Payment.objects.exists()


def test_no_answer_to_a_read_is_503(provider: ProviderSandbox, boss: Caller) -> None:
    provider.engine.faults.add(Fault("reset", operation="list_payment_methods"))
    response = boss.get("payment-methods/")
    assert response.status_code == 503
    assert int(response["Retry-After"]) > 0


def test_a_refusal_of_the_request_is_passed_on(provider: ProviderSandbox, boss: Caller) -> None:
    for _ in range(2):
        response = boss.post("payments/", {**BODY, "method_code": "co_card"})
        assert response.status_code == 422
        assert error(response)["code"] == "method_not_available"
    assert len(posts(provider)) == 1


WRONG: dict[str, tuple[Any, str, str]] = {
    "nothing": ({}, "parameter_missing", "amount"),
    "null": ({**BODY, "amount": None}, "parameter_missing", "amount"),
    "a float": ({**BODY, "amount": 12990.0}, "parameter_invalid", "amount"),
    "an unknown currency": ({**BODY, "currency": "EUR"}, "parameter_invalid", "currency"),
    "an unknown field": ({**BODY, "amuont": 1}, "parameter_invalid", "amuont"),
    "what only code may say": ({**BODY, "actor": "boss"}, "parameter_invalid", "actor"),
    "a key in the body": ({**BODY, "idempotency_key": "x"}, "parameter_invalid", "idempotency_key"),
    "no account of ours": ({**BODY, "account": "third"}, "parameter_invalid", "account"),
    "an account that is no text": ({**BODY, "account": {}}, "parameter_invalid", "account"),
    "a payer that is none": ({**BODY, "payer": "Ana"}, "parameter_invalid", "payer"),
    "metadata that is none": ({**BODY, "metadata": "a"}, "parameter_invalid", "metadata"),
    "a reference that is no text": ({**BODY, "merchant_reference": 7}, "parameter_invalid", "merchant_reference"),
    "an address of script": ({**BODY, "return_url": "javascript:alert(1)"}, "parameter_invalid", "return_url"),
}


@pytest.mark.parametrize(("body", "code", "param"), WRONG.values(), ids=WRONG)
def test_a_wrong_request_names_what_is_wrong(
    provider: ProviderSandbox, boss: Caller, body: Any, code: str, param: str
) -> None:
    response = boss.post("payments/", body)
    assert response.status_code == 400
    found = error(response)
    assert (found["type"], found["code"], found["param"]) == ("invalid_request_error", code, param)
    assert not re.search(r"dict|str\(|Decimal|to_minor", found["message"]), "the caller may write in any language"
    assert not Operation.objects.exists()
    assert posts(provider) == []


def test_a_call_may_name_another_account(provider: ProviderSandbox, boss: Caller) -> None:
    with ProviderSandbox(account="second") as other:
        made = boss.post("payments/", {**BODY, "account": "second"}).json()
        assert made["account"] == "second"
        assert list(other.project.payments) == [made["id"]]
    assert posts(provider) == []


def test_calls_work_with_atomic_requests(
    provider: ProviderSandbox, boss: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert boss.post("payments/", BODY).status_code == 201


def test_a_deposit_reference_is_created(provider: ProviderSandbox, customer: Caller) -> None:
    body = {"country": "CL", "currency": "CLP", "method_code": "cl_deposit", "merchant_reference": "c-1"}
    response = customer.post("deposit-references/", body)
    assert response.status_code == 201, response.content
    assert response.json()["details"]
    assert customer.get("deposit-references/").json()["data"] == [response.json()]


def test_every_call_is_logged_with_its_id_and_without_its_content(
    provider: ProviderSandbox, customer: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="payments_integration.api")
    response = customer.post("payments/", BODY)
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("payments_integration.api")]
    assert lines == [f"API request {response['Request-Id']}, create_payment: {response.json()['id']}"]
    assert "ana@example.com" not in caplog.text


def test_a_stranger_learns_nothing_about_the_state_of_a_payment(provider: ProviderSandbox, customer: Caller) -> None:
    make_payment("pay_9", status="succeeded")
    response = customer.post("payments/pay_9/cancel/")
    assert response.status_code == 404
    assert posts(provider) == []
    assert OperationState.DONE not in Operation.objects.values_list("state", flat=True)
