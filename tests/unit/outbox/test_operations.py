"""Which objects can be an operation's result: per call of the provider, by its answer and among listed objects."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from payments_integration.enums import Flow
from payments_integration.models import Operation
from payments_integration.outbox import operations
from payments_integration.outbox.operations.base import Change, Creation
from tests.fake_provider import DEPOSIT, ENDPOINT, deposit, endpoint, payment, payout, refund

REFERENCE = "order-1"


def recorded(name: str, **fields: Any) -> Operation:
    """An unsaved operation of 1,000 CLP that was sent now."""
    now = timezone.now()
    usual = {"amount": 1_000, "currency": "CLP", "merchant_reference": REFERENCE, "created_at": now}
    return Operation(operation=name, first_sent_at=now, **{**usual, **fields})


#: By call: its recorded operation, a function that makes the object, and the fields of the object that fits.
CREATIONS: dict[str, tuple[Operation, Any, dict[str, Any]]] = {
    "create_payment": (
        recorded("create_payment"),
        payment,
        {"amount": 1_000, "currency": "CLP", "merchant_reference": REFERENCE},
    ),
    "create_payout": (
        recorded("create_payout"),
        payout,
        {"amount": 1_000, "currency": "CLP", "merchant_reference": REFERENCE},
    ),
    "create_refund": (
        recorded("create_refund", target_id="pay_1", merchant_reference=""),
        refund,
        {"amount": 1_000, "currency": "CLP", "payment_id": "pay_1"},
    ),
    "create_deposit_reference": (
        recorded("create_deposit_reference", amount=None, currency="", arguments=DEPOSIT),
        deposit,
        {**DEPOSIT, "merchant_reference": REFERENCE},
    ),
    "create_webhook_endpoint": (
        recorded("create_webhook_endpoint", amount=None, currency="", merchant_reference="", arguments=ENDPOINT),
        endpoint,
        {"url": ENDPOINT["url"], "events": ENDPOINT["events"]},
    ),
}


def creation(name: str) -> Creation:
    call = operations.CALLS[name]
    assert isinstance(call, Creation)
    return call


def test_every_creation_is_tested() -> None:
    assert set(CREATIONS) == {call.name for call in operations.CALLS.values() if call.creates}


@pytest.mark.parametrize("name", CREATIONS)
def test_the_object_that_was_asked_for_fits(name: str) -> None:
    operation, make, fields = CREATIONS[name]
    assert creation(name).contradicts(operation, make(**fields)) == ""
    assert creation(name).fits(operation, make(**fields))


@pytest.mark.parametrize("name", CREATIONS)
def test_an_answer_without_an_object_contradicts_a_creation(name: str) -> None:
    assert creation(name).contradicts(CREATIONS[name][0], None) == "the answer has no object"


@pytest.mark.parametrize("name", ["create_payment", "create_payout", "create_refund"])
@pytest.mark.parametrize("change", [{"amount": 999}, {"currency": "USD"}])
def test_another_amount_or_currency_contradicts_and_does_not_fit(name: str, change: dict[str, Any]) -> None:
    operation, make, fields = CREATIONS[name]
    other = make(**{**fields, **change})
    assert creation(name).contradicts(operation, other) == "the answer has another amount or currency"
    assert not creation(name).fits(operation, other)


@pytest.mark.parametrize("name", ["create_payment", "create_payout"])
@pytest.mark.parametrize("reference", [None, "", "order-2", REFERENCE.upper()])
def test_another_merchant_reference_does_not_fit(name: str, reference: str | None) -> None:
    """An answer to the operation's own key may leave the reference out, but not name another one."""
    operation, make, fields = CREATIONS[name]
    other = make(**{**fields, "merchant_reference": reference})
    expected = "the answer has another merchant reference" if reference else ""
    assert creation(name).contradicts(operation, other) == expected
    assert not creation(name).fits(operation, other)


def test_a_payment_of_a_deposit_reference_does_not_fit_a_created_payment() -> None:
    operation, make, fields = CREATIONS["create_payment"]
    assert not creation("create_payment").fits(operation, make(**fields, flow=Flow.DEPOSIT_REFERENCE))


def test_a_payout_of_a_refund_does_not_fit_a_created_payout() -> None:
    operation, make, fields = CREATIONS["create_payout"]
    assert not creation("create_payout").fits(operation, make(**fields, refund_id="ref_1"))


def test_a_refund_of_another_payment_contradicts_and_does_not_fit() -> None:
    operation, make, fields = CREATIONS["create_refund"]
    other = make(**{**fields, "payment_id": "pay_2"})
    assert creation("create_refund").contradicts(operation, other) == "the answer is about another payment"
    assert not creation("create_refund").fits(operation, other)


def test_a_webhook_endpoint_fits_by_its_url_event_types_and_time() -> None:
    operation, make, fields = CREATIONS["create_webhook_endpoint"]
    call = creation("create_webhook_endpoint")
    assert call.fits(operation, make(**fields, created_at=None)), "the provider may leave the time out"
    for change in (
        {"url": "https://shop.example/other/"},
        {"events": ["payment.succeeded", "payment.failed"]},
        {"created_at": timezone.now() - timedelta(hours=49)},
    ):
        assert not call.fits(operation, make(**{**fields, **change})), change


def test_the_order_of_an_endpoints_event_types_does_not_matter() -> None:
    asked = {"url": ENDPOINT["url"], "events": ["payment.succeeded", "payment.failed"]}
    operation = recorded("create_webhook_endpoint", amount=None, currency="", arguments=asked)
    listed = endpoint(url=asked["url"], events=["payment.failed", "payment.succeeded"])
    assert creation("create_webhook_endpoint").fits(operation, listed)


CHANGES = [name for name, call in operations.CALLS.items() if isinstance(call, Change)]


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_contradicted_by_another_object(name: str) -> None:
    call, operation = operations.CALLS[name], recorded(name, target_id="x_1")
    assert call.contradicts(operation, endpoint(id="x_1")) == ""
    assert call.contradicts(operation, endpoint(id="x_2")) == "the answer is about another object"


@pytest.mark.parametrize("name", CHANGES)
def test_only_a_deletion_may_be_answered_without_an_object(name: str) -> None:
    call = operations.CALLS[name]
    expected = "the answer has no object" if call.leaves_object else ""
    assert call.contradicts(recorded(name, target_id="x_1"), None) == expected


def test_candidates_end_at_the_first_object_that_is_older_than_the_request() -> None:
    operation, make, fields = CREATIONS["create_payout"]
    sent = operation.first_sent_at
    assert sent is not None
    listed = [
        make(**fields, created_at=sent + timedelta(seconds=2)),
        make(**{**fields, "amount": 5}, created_at=sent + timedelta(seconds=1)),
        make(**fields, created_at=sent),
        make(**fields, created_at=sent - timedelta(hours=49)),
        make(**fields, created_at=sent),
    ]
    found = creation("create_payout").candidates(operation, listed)
    assert found.items == [listed[0], listed[2]]
    assert found.complete


@pytest.mark.parametrize(("extra", "complete"), [(0, True), (1, False)])
def test_candidates_of_a_list_that_is_too_long_are_incomplete(
    monkeypatch: pytest.MonkeyPatch, extra: int, complete: bool
) -> None:
    monkeypatch.setattr("payments_integration.outbox.operations.base.MAX_SCANNED", 3)
    operation, make, fields = CREATIONS["create_payout"]
    found = creation("create_payout").candidates(operation, [make(**fields) for _ in range(3 + extra)])
    assert (len(found.items), found.complete) == (3, complete)
