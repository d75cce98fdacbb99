"""Rows of every kind: plain ones, saved and each with an id of its own, and ones as odd as a provider may send."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from payments_integration.contrib.backoffice.models import Note
from payments_integration.contrib.finance.models import BalanceChange
from payments_integration.models import (
    AccountState,
    Balance,
    DepositReference,
    DueRefresh,
    Erasure,
    Event,
    EventState,
    ObjectDispatch,
    Operation,
    OperationState,
    Payment,
    Payout,
    ReconciliationRun,
    Refund,
    StatusChange,
    WebhookEndpoint,
)

AT = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)
#: Characters of many scripts, and markup.
ODD = "Ñandú 漢字 🦙 <script>alert(1)</script> & \"'"
SECRET = "gAAAA-a-secret-token"
#: Not 1: the provider's objects and operations of tests name ``pay_1``.
_numbers = itertools.count(2)


def mirror(**fields: Any) -> dict[str, Any]:
    return {"account": "default", "state_at": AT, "state_by": "event", "synced_at": AT, **fields}


def unsaved_payment(**fields: Any) -> Payment:
    number = next(_numbers)
    values = {
        "id": f"pay_{number}", "status": "succeeded", "amount": 1050, "amount_received": 1050, "currency": "USD",
        "country": "EC", "method_code": "ec_card", "method_family": "card", "refunded_amount": 0,
        "merchant_reference": f"order-{number}", "created_at": AT + timedelta(seconds=number),
    }  # fmt: skip
    return Payment(**mirror(**{**values, **fields}))


def payment(**fields: Any) -> Payment:
    row = unsaved_payment(**fields)
    row.save(force_insert=True)
    return row


def payout(**fields: Any) -> Payout:
    number = next(_numbers)
    values = {
        "id": f"pout_{number}", "status": "created", "amount": 2000, "currency": "CLP", "country": "CL",
        "method_code": "cl_bank_transfer", "created_at": AT + timedelta(seconds=number),
        "destination": {"type": "bank_account", "account_number": "000111", "holder_name": "Ana"},
    }  # fmt: skip
    return Payout.objects.create(**mirror(**{**values, **fields}))


def refund(**fields: Any) -> Refund:
    number = next(_numbers)
    values = {
        "id": f"ref_{number}", "status": "processing", "amount": 500, "currency": "USD",
        "created_at": AT + timedelta(seconds=number),
    }  # fmt: skip
    return Refund.objects.create(**mirror(**{**values, **fields}))


def deposit_reference(**fields: Any) -> DepositReference:
    number = next(_numbers)
    values = {
        "id": f"dep_{number}", "status": "active", "country": "MX", "currency": "MXN", "method_code": "mx_deposit",
        "details": {"type": "bank_transfer_details"}, "created_at": AT + timedelta(seconds=number),
    }  # fmt: skip
    return DepositReference.objects.create(**mirror(**{**values, **fields}))


def balance(**fields: Any) -> Balance:
    values = {"currency": f"X{next(_numbers)}", "available": 100, "pending": 2, "reserve": 3, "hold": 4, "debt": 5}
    row = Balance.objects.create(**mirror(**{**values, **fields}))
    for second in range(2):
        balance_change(row, at=AT + timedelta(seconds=second), available=second)
    return row


def balance_change(row: Balance, **fields: Any) -> BalanceChange:
    nothing = dict.fromkeys(("available", "pending", "reserve", "hold", "debt"), 0)
    return BalanceChange.objects.create(
        **{"account": row.account, "currency": row.currency, "at": row.state_at, **nothing, **fields}
    )


def endpoint(**fields: Any) -> WebhookEndpoint:
    values = {
        "id": f"whk_{next(_numbers)}", "url": "https://shop.example/payments/webhook/", "status": "active",
        "events": ["payment.succeeded"], "secret_token": SECRET, "previous_secret_token": SECRET, "secret_since": AT,
    }  # fmt: skip
    return WebhookEndpoint.objects.create(**mirror(**{**values, **fields}))


def unsaved_event(obj: Any = None, **fields: Any) -> Event:
    number = next(_numbers)
    kind, object_id = (obj.kind, obj.object_id) if obj is not None else ("payment", "pay_absent")
    values = {
        "id": f"evt_{number}", "account": "default", "type": f"{kind}.succeeded", "object_kind": kind,
        "object_id": object_id, "created_at": AT + timedelta(seconds=number), "source": "webhook",
        "body": json.dumps({"id": f"evt_{number}", "data": {"id": object_id}}).encode(), "content_hash": "0" * 64,
        "state": EventState.DONE,
    }  # fmt: skip
    return Event(**{**values, **fields})


def event(obj: Any = None, **fields: Any) -> Event:
    row = unsaved_event(obj, **fields)
    row.save(force_insert=True)
    return row


def change(obj: Any = None, **fields: Any) -> StatusChange:
    number = next(_numbers)
    kind, object_id = (obj.kind, obj.object_id) if obj is not None else ("payment", "pay_absent")
    values = {
        "account": "default", "object_kind": kind, "object_id": object_id, "previous_status": "created",
        "status": "succeeded", "at": AT + timedelta(seconds=number),
    }  # fmt: skip
    return StatusChange.objects.create(**{**values, **fields})


def operation(**fields: Any) -> Operation:
    number = next(_numbers)
    values = {
        "account": "default", "operation": "create_refund", "arguments": {"payment": "pay_1"},
        "arguments_hash": "0" * 64, "idempotency_key": f"key-{number}", "amount": 500, "currency": "USD",
        "state": OperationState.DONE, "created_at": AT + timedelta(seconds=number), "request_ids": ["req_1"],
        "body": b'{"amount": 500}', "sent_to": "hash-of-a-key", "actor": "7:ana",
    }  # fmt: skip
    return Operation.objects.create(**{**values, **fields})


def note(obj: Any = None, **fields: Any) -> Note:
    number = next(_numbers)
    kind, object_id = (obj.kind, obj.object_id) if obj is not None else ("payment", "pay_absent")
    values = {
        "account": "default", "object_kind": kind, "object_id": object_id, "text": f"note_{number}",
        "author": "7:ana", "created_at": AT + timedelta(seconds=number), "key": f"note-{number}",
    }  # fmt: skip
    return Note.objects.create(**{**values, **fields})


def run(**fields: Any) -> ReconciliationRun:
    values = {"account": "default", "kind": "events", "state": "done", "started_at": AT, "finished_at": AT}
    return ReconciliationRun.objects.create(**{**values, **fields})


def objectdispatch(**fields: Any) -> ObjectDispatch:
    values = {"account": "default", "object_kind": "payment", "object_id": f"pay_t{next(_numbers)}"}
    return ObjectDispatch.objects.create(**{**values, **fields})


def due(**fields: Any) -> DueRefresh:
    values = {"account": "default", "object_kind": "refund", "object_id": f"ref_d{next(_numbers)}", "reason": "drift"}
    return DueRefresh.objects.create(**{**values, **fields})


def erasure(**fields: Any) -> Erasure:
    values = {"account": "default", "object_kind": "payment", "object_id": f"pay_e{next(_numbers)}", "actor": "7:ana"}
    return Erasure.objects.create(**{**values, **fields})


def account_state(**fields: Any) -> AccountState:
    return AccountState.objects.create(**{"account": f"acc{next(_numbers)}", "claim_token": "claim", **fields})


#: A plain row of every model that has a page.
MAKERS: dict[str, Any] = {
    "payment": payment,
    "payout": payout,
    "refund": refund,
    "depositreference": deposit_reference,
    "balance": balance,
    "webhookendpoint": endpoint,
    "event": event,
    "statuschange": change,
    "operation": operation,
    "note": note,
    "reconciliationrun": run,
}


#: Models whose lists have an export. Notes leave the app in no way.
EXPORTED = (
    "payment", "payout", "refund", "depositreference", "balance", "operation", "event", "reconciliationrun",
)  # fmt: skip


def app_of(model: str) -> str:
    """The label of the app that a model belongs to."""
    return "payments_backoffice" if model in ("note", "todo", "overview") else "payments_integration"


def odd_rows() -> list[Any]:
    """Unknown statuses and types, nulls, dangling references, markup, bodies that cannot be read."""
    nested: Any = "x"
    for _ in range(29):  # an event nests no deeper, and MariaDB stores no deeper JSON than two levels more
        nested = [nested]
    pay = payment(
        id="pay_odd-_.~1", status="quarked", currency="CLP", amount=1000, amount_received=0, refunded_amount=None,
        country="ZZ", method_code=ODD, method_family="barter", flow=None, merchant_reference=ODD,
        checkout_url="javascript:alert(1)", payer={"name": ODD}, metadata={ODD: ODD},
        next_action=nested, failure_reason=ODD, extra={ODD: [None]}, gone_at=AT,
    )  # fmt: skip
    return [
        pay,
        payment(merchant_reference=None, payer=None, erased_at=AT, state_by="answer", currency="<b>"),
        payout(status="quarked", destination=None, fee=None, refund_id="ref_absent", failure_reason=ODD),
        refund(status="quarked", payment_id=None, payout_id="pout_absent", reason=ODD),
        refund(payment=pay, reason=None),
        deposit_reference(status="quarked", details=ODD, merchant_reference=ODD),
        balance(currency=ODD, updated_at=None),
        endpoint(url="javascript:alert(1)", events=[ODD], created_at=None, secret_token=""),
        event(pay, type="quark.spun", body=None, state=EventState.PARKED, error=ODD, attempts=6),
        event(type=ODD, object_kind="", object_id="", body=b"\xff\x00 not json <script>alert(1)</script>"),
        event(body=b'{"a": "\\ud800", "b": 1e999}', object_kind="balance", object_id="CLP"),
        event(body=b"[" * 100_000, state=EventState.QUARANTINED),
        change(pay, previous_status="", status="quarked", event_id="evt_absent", error=ODD),
        note(pay, text=ODD, author=ODD),
        operation(state="quarked", amount=None, currency="", error={"message": ODD}, note=ODD, body=None, actor=""),
        operation(result_kind="payment", result_id=pay.pk, target_id=pay.pk, request_ids=[], body=b""),
        run(state="failed", finished_at=None, drift=[{"field": ODD}], error=ODD),
        objectdispatch(object_kind="quark", object_id=ODD),
        due(reason=ODD, error=ODD),
        erasure(object_kind="quark", object_id=ODD, actor=ODD),
        account_state(watermark=AT),
    ]
