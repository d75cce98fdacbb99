"""What answers hold, and what they never hold: other people's data, secrets, what only the ledger knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from payments_integration.api.serializers import (
    DepositReferenceSerializer,
    PaymentSerializer,
    PayoutSerializer,
    RefundSerializer,
)
from payments_integration.models import Event, Payment
from tests import factories
from tests.unit.api.conftest import DESTINATION, PAYER, Caller

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

VIEWS = [f"view_{name}" for name in ("payment", "payout", "refund", "depositreference", "event", "operation")]
#: Address to the fields of it that are personal.
PERSONAL = {
    "payments/pay_1/": {"payer", "next_action", "failure_reason", "metadata", "status_url", "receipt_url"},
    "payouts/pout_1/": {"destination", "failure_reason", "metadata"},
    "refunds/ref_1/": {"reason"},
    "deposit-references/dep_1/": {"details"},
    "operations/{operation}/": {"actor", "approved_by"},
}


@pytest.mark.parametrize(("path", "personal"), PERSONAL.items(), ids=PERSONAL)
def test_personal_data_is_left_out_without_the_permission(
    path: str, personal: set[str], rows: dict[str, Any], staff: Callable[..., Caller]
) -> None:
    path = path.format(operation=rows["operation"].pk)
    shown = staff(*VIEWS, "view_personal_data").get(path).json()
    less = staff(*VIEWS).get(path)
    assert set(shown) - set(less.json()) == personal
    assert "Ana" not in less.content.decode()
    listed = staff(*VIEWS).get(path.rpartition("/")[0].rpartition("/")[0] + "/")
    assert "Ana" not in listed.content.decode()


def test_a_payment_is_shown_with_the_providers_field_names(rows: dict[str, Any], boss: Caller) -> None:
    shown = boss.get("payments/pay_1/").json()
    assert shown.pop("status_url").startswith("http://testserver/payments/checkout/status/")
    assert shown.pop("receipt_url") is None
    assert shown == {
        "id": "pay_1", "object": "payment", "account": "default", "status": "created", "amount": 1000,
        "amount_received": 0, "fee": None, "net_amount": None, "currency": "CLP", "country": "CL",
        "method_code": "cl_card", "method_family": "card", "flow": None, "checkout_url": None,
        "refunded_amount": None, "merchant_reference": None, "payer": PAYER, "next_action": None,
        "failure_reason": None, "metadata": {"cart": "77"},
        "created_at": factories.iso(factories.T0).replace(".000000", ""),
        "expires_at": None, "succeeded_at": None, "is_final": False,
        "display": {
            "headline": "Waiting for your payment", "message": "This page shows when it has arrived.", "tone": "open",
        },
    }  # fmt: skip
    assert boss.get("payouts/pout_1/").json()["destination"] == DESTINATION
    assert boss.get("balances/").json()["data"] == [
        {"object": "balance", "account": "default", "currency": "CLP", "available": 1, "pending": 2, "reserve": 3,
         "hold": 4, "debt": 0, "updated_at": None},
    ]  # fmt: skip


def test_a_customer_sees_the_personal_data_in_their_own_rows(
    rows: dict[str, Any], customer: Caller, opened: None
) -> None:
    assert customer.get("payments/pay_1/").json()["payer"] == PAYER
    assert customer.get("payments/").json()["data"][0]["payer"] == PAYER
    assert customer.get("refunds/ref_1/").json()["reason"] == "Ana said so"
    assert customer.get("deposit-references/dep_1/").json()["details"] == {"type": "none"}


def everybody(queryset: Any, user: Any) -> Any:
    """A project that shows all rows, say to its sellers."""
    return queryset


def test_a_customer_does_not_see_personal_data_in_rows_of_others(
    rows: dict[str, Any], customer: Caller, stranger: Caller, opened: None, settings: Any
) -> None:
    settings.PAYMENTS_INTEGRATION = {
        **settings.PAYMENTS_INTEGRATION, "API_QUERYSET": "tests.unit.api.test_serializers.everybody"
    }  # fmt: skip
    for path in ("payments/pay_1/", "payments/", "refunds/ref_1/", "deposit-references/dep_1/"):
        response = stranger.get(path)
        assert response.status_code == 200
        assert "Ana" not in response.content.decode()
        assert "details" not in response.json()
    assert customer.get("payments/pay_1/").json()["payer"] == PAYER


def test_an_operation_shows_no_body_no_arguments_and_no_key(rows: dict[str, Any], boss: Caller) -> None:
    operation = rows["operation"]
    operation.error = {"status_code": 422, "type": "t", "code": "c", "message": "Ana's card", "param": "Ana"}
    operation.save()
    text = boss.get(f"operations/{operation.pk}/").content.decode()
    assert json.loads(text)["error"] == {
        "status_code": 422, "type": "t", "code": "c", "request_id": None
    }  # fmt: skip
    for hidden in ("secret", "Ana", operation.idempotency_key, "arguments", "body", "note"):
        assert hidden not in text


def test_an_event_shows_its_object_without_unknown_fields(
    rows: dict[str, Any], boss: Caller, staff: Callable[..., Caller]
) -> None:
    data = boss.get("events/evt_1/").json()["data"]
    assert (data["id"], data["object"], data["payer"]) == ("pay_1", "payment", PAYER)
    assert "unheard_of" not in data
    less = staff("view_event").get("events/evt_1/").json()["data"]
    assert less["amount"] == 10000
    assert "payer" not in less
    assert "traceback" not in boss.get("events/").content.decode()


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (None, "done"),
        (b"", "done"),
        (b"no JSON", "quarantined"),
        (b"no JSON", "done"),
        (factories.body(factories.event(factories.payment())), "quarantined"),
        (factories.body(factories.event({"object": "webhook_endpoint", "id": "whk_1", "secret": "s3cret"})), "done"),
    ],
    ids=["pruned", "empty", "quarantined", "no JSON", "quarantined with an object", "kind without a mirror"],
)
def test_a_pruned_or_quarantined_event_has_no_data(rows: Any, boss: Caller, body: bytes | None, state: str) -> None:
    Event.objects.update(body=body, state=state)
    response = boss.get("events/evt_1/")
    assert response.json()["data"] is None
    assert "s3cret" not in response.content.decode()


def test_an_erased_row_shows_no_personal_data(
    rows: dict[str, Any], boss: Caller, customer: Caller, opened: Any
) -> None:
    Payment.objects.update(payer=None, metadata=None, next_action=None)
    for who in (boss, customer):
        shown = who.get("payments/pay_1/").json()
        assert (shown["payer"], shown["metadata"]) == (None, None)


def test_an_answer_is_private_and_not_stored_by_caches(rows: Any, boss: Caller) -> None:
    for response in (boss.get("payments/"), Caller().get("payments/"), boss.get("nothing/")):
        assert response["Cache-Control"] == "private, no-store"
        assert response["Request-Id"].startswith("req_")
        assert response["Content-Type"] == "application/json"


#: What callers see without the permission for personal data. A new field of the provider comes here, or is personal.
OPEN = {
    PaymentSerializer: (
        "id object account status amount amount_received fee net_amount currency country method_code method_family "
        "flow checkout_url refunded_amount merchant_reference created_at expires_at succeeded_at is_final display"
    ),
    PayoutSerializer: (
        "id object account status amount fee currency country method_code merchant_reference refund_id created_at "
        "succeeded_at"
    ),
    RefundSerializer: "id object account status payment_id payout_id amount currency created_at",
    DepositReferenceSerializer: "id object account status country currency method_code merchant_reference created_at",
}


@pytest.mark.parametrize("serializer", OPEN)
def test_a_new_field_is_shown_only_once_somebody_has_decided_that_it_is_not_personal(serializer: Any) -> None:
    shown = {*serializer().fields} - {*serializer.personal}
    assert shown == {*OPEN[serializer].split()}
    assert {*serializer.Meta.model.personal} & {*serializer().fields} <= {*serializer.personal}
