"""Personal data is what can hold it: every text of every table holds a needle, which nobody without the permission
reads, and which an erasure removes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import models
from django.test import Client

from payments_integration import erasure
from payments_integration.contrib.backoffice.models import SavedFilter, SearchTerm, Todo
from payments_integration.contrib.finance.models import Movement
from payments_integration.contrib.notify.models import Notice, Turn
from payments_integration.contrib.receipts.models import ReceiptMail
from payments_integration.models import DueAttention, Erasure, Operation
from tests.factories import rows
from tests.unit.admin.conftest import browser, url

pytestmark = [pytest.mark.case(142), pytest.mark.django_db, pytest.mark.usefixtures("search_terms")]

APPS = ("payments_integration", "payments_backoffice")
NEEDLE = "Ana Ñ"
TEXTS = (models.CharField, models.TextField, models.JSONField, models.BinaryField)

#: What holds no personal data, with the reason: fields by their names in any table, or ``Model.field``.
KEPT = {
    "names a row, an account or a request": {
        "id", "account", "object_kind", "object_id", "payment_id", "event_in_hand", "claim_token", "cursor",
        "sweep_claim_token", "resync_list", "resync_cursor", "unknown_operation", "traceparent", "Operation.target_id",
        "Operation.result_kind", "Operation.result_id", "Operation.other_objects", "Operation.request_ids", "Note.key",
        "Todo.thing",
    },
    "a code of the provider or of ours": {
        "status", "previous_status", "state", "state_by", "currency", "country", "method_code", "method_family",
        "flow", "source", "kind", "channel", "Event.type", "Operation.operation", "DueRefresh.reason",
        "DueAttention.reason", "DueAttention.sender", "Notice.reason", "Turn.reason", "ReceiptMail.reason",
        "ObjectDispatch.grouping",
    },
    "a hash": {"arguments_hash", "body_digest", "content_hash", "sent_to", "key_hash", "refused_key_hash"},
    "the merchant's own number, which an erasure is asked for by": {"merchant_reference", "idempotency_key"},
    "names who works with the data": {
        "actor", "actor_id", "approved_by", "Note.author", "SavedFilter.owner", "assignee", "assignee_name", "done_by",
    },
    "the provider's page, where a payment that is still open is paid": {"checkout_url"},
    "of the merchant's account, and of no payer": {
        "Balance.extra", "WebhookEndpoint.extra", "WebhookEndpoint.url", "WebhookEndpoint.events",
        "WebhookEndpoint.secret_token", "WebhookEndpoint.previous_secret_token", "WebhookEndpoint.reported_problem",
    },
    "a user's own list, without search texts": {"SavedFilter.listed", "SavedFilter.name", "SavedFilter.query"},
    "sentences of ours, of ids and codes; deleted when they are sent": {
        "DueAttention.message", "Notice.message", "Notice.path",
    },
    "of an object that differs the names of personal fields only, of an error that is not ours its class": {
        "ReconciliationRun.drift", "ReconciliationRun.error",
    },
}  # fmt: skip
#: Fields whose texts the app writes in one shape.
SHAPES: dict[str, Callable[[str], Any]] = {
    "Operation.error": lambda text: {
        "status_code": 422, "type": "invalid_request_error", "code": "parameter_invalid", "message": text,
        "param": text, "request_id": "req_1",
    },
    "Operation.note": lambda text: (
        f"2026-01-31 12:00:00: it cannot be sent again: {text}\n"
        f"2026-01-31 12:00:01: 7:boss rejected it: {text}\n    {text}"
    ),
}  # fmt: skip
NAMES = {name for names in KEPT.values() for name in names}


def tables() -> list[type[models.Model]]:
    configs = [config for config in apps.get_app_configs() if config.name.startswith("payments_integration")]
    found = (model for config in configs for model in config.get_models(include_auto_created=True))
    return [model for model in found if not model._meta.proxy]


def texts(model: type[models.Model]) -> Iterator[models.Field[Any, Any]]:
    """The fields that can hold personal data."""
    for field in model._meta.concrete_fields:
        if isinstance(field, TEXTS) and not {field.name, f"{model.__name__}.{field.name}"} & NAMES:
            yield field


def needle(model: type[models.Model], field: models.Field[Any, Any]) -> str:
    # Another one in each field: none is found by what another one holds.
    return f"{NEEDLE} {model.__name__}.{field.name}"


def fill(row: models.Model) -> None:
    """Write a needle into every text of a row that can hold one."""
    model = type(row)
    values: dict[str, Any] = {}
    for field in texts(model):
        text = needle(model, field)
        if shape := SHAPES.get(f"{model.__name__}.{field.name}"):
            values[field.name] = shape(text)
        elif isinstance(field, models.JSONField):
            values[field.name] = {"name": text, text: [text], "email": text}
        elif isinstance(field, models.BinaryField):
            values[field.name] = json.dumps({"data": {"object": "payment", text: text, "name": text}}).encode()
        else:
            values[field.name] = text
    model._default_manager.filter(pk=row.pk).update(**values)


def left() -> list[str]:
    """The fields that hold a needle."""
    found = set()
    for model in tables():
        for row in model._default_manager.values():
            for name, value in row.items():
                raw = bytes(value).decode() if isinstance(value, bytes | memoryview) else value
                if NEEDLE in str(raw) or json.dumps(NEEDLE)[1:-1] in str(raw):
                    found.add(f"{model.__name__}.{name}")
    return sorted(found)


@pytest.fixture
def life() -> dict[type[models.Model], models.Model]:
    """A row in every table, about one payer, with a needle in every text."""
    payment = rows.payment(status="failed", amount_received=0)
    refund = rows.refund(payment=payment, status="failed")
    payout = rows.payout(refund_id=refund.pk, status="failed")
    deposit = rows.deposit_reference()
    about = {"account": "default", "object_kind": "payment", "object_id": payment.pk}
    found = [
        payment, refund, payout, deposit, rows.event(payment), rows.change(payment), rows.note(payment),
        Todo.objects.create(**about, kind="on_hold", thing=payment.pk, since=rows.AT, done_at=rows.AT, note="x"),
        rows.operation(state="rejected", result_kind="deposit_reference", result_id=deposit.pk),
        rows.due(**about), rows.objectdispatch(**about), rows.balance(), rows.endpoint(), rows.run(),
        rows.account_state(), rows.erasure(),
        SearchTerm.objects.create(object_kind="payment", object_id=payment.pk, term="ana", is_personal=True),
        DueAttention.objects.create(account="default", reason="endpoint", message="", sender="x"),
        SavedFilter.objects.create(owner="1", listed="x", name="x", query=""),
        Movement.objects.create(
            account="default", object_kind="payment", object_id=payment.pk, kind="payment", currency="CLP", amount=1,
            occurred_at=rows.AT, occurred_on=rows.AT, recorded_at=rows.AT, booked_on=rows.AT,
        ),
        ReceiptMail.objects.create(account="default", payment_id=payment.pk),
        Notice.objects.create(channel="mail", reason="x", account="default", message="", path=""),
        Turn.objects.create(channel="mail", reason="x"),
    ]  # fmt: skip
    for row in found:
        fill(row)
    return {type(row): row for row in found}


def test_every_table_has_a_row_and_every_exception_a_field(life: dict[type[models.Model], models.Model]) -> None:
    names = {field.name for model in tables() for field in model._meta.concrete_fields}
    names |= {f"{model.__name__}.{field.name}" for model in tables() for field in model._meta.concrete_fields}
    assert names >= NAMES
    assert {model for model in tables() if any(texts(model))} <= set(life)
    assert left() == sorted(f"{model.__name__}.{field.name}" for model in tables() for field in texts(model))
    assert {"Payment.failure_reason", "Payout.failure_reason", "Operation.error", "Operation.note"} <= set(left())


def test_an_erasure_leaves_no_needle(life: dict[type[models.Model], models.Model]) -> None:
    ids = tuple(str(row.pk) for row in life.values() if getattr(row, "personal", ()) or isinstance(row, Operation))
    erased = erasure.erase(erasure.select(erasure.Selection.of(ids=ids)), actor="test")
    assert left() == []
    assert erased.left == {}
    # What recognises a repetition, and explains a refusal, is still there.
    operation = Operation.objects.get()
    assert operation.error == {
        "status_code": 422, "type": "invalid_request_error", "code": "parameter_invalid", "request_id": "req_1",
        "message": "removed with the personal data",
    }  # fmt: skip
    assert not Erasure.objects.exclude(pk=life[Erasure].pk).filter(done_at=None).exists()


def test_the_texts_of_a_later_operation_are_erased_with_its_object(
    life: dict[type[models.Model], models.Model],
) -> None:
    ids = tuple(str(row.pk) for row in life.values() if getattr(row, "personal", ()) or isinstance(row, Operation))
    erasure.erase(erasure.select(erasure.Selection.of(ids=ids)), actor="test")
    target = next(row.pk for row in life.values() if type(row).__name__ == "Payment")
    rows.operation(target_id=target, state="closed", arguments={}, body=b"", note=f"7:boss rejected it: {NEEDLE}")
    erasure.finish(thorough=True)
    assert left() == []


@pytest.fixture
def viewer(db: None) -> User:
    """A member of staff who may see every row, and no personal data."""
    user = User.objects.create_user("viewer", is_staff=True)
    views = Permission.objects.filter(codename__startswith="view_").exclude(codename="view_personal_data")
    user.user_permissions.set([*views, Permission.objects.get(codename="change_operation")])
    return user


def test_nobody_without_the_permission_reads_a_needle_in_the_admin(
    life: dict[type[models.Model], models.Model], viewer: User
) -> None:
    client: Client = browser(viewer)
    read = []
    for model, row in life.items():
        if not admin.site.is_registered(model) or model._meta.app_label not in APPS:
            continue
        name = str(model._meta.model_name)
        pages = [url(name, "changelist")]
        if model is not Todo:  # its list is its only page
            pages += [url(name, "change", row.pk), url(name, "history", row.pk)]
        read += [(where, client.get(where)) for where in pages]
        if name in rows.EXPORTED:
            read.append((name, client.get(url(name, "export"))))
    for where, response in read:
        content = b"".join(response.streaming_content) if response.streaming else response.content  # type: ignore[attr-defined]
        assert response.status_code == 200, where
        assert NEEDLE not in content.decode(), where
    assert len(read) > 40


@pytest.mark.parametrize("path", ["payments", "payouts", "refunds", "deposit-references", "events", "operations"])
def test_nobody_without_the_permission_reads_a_needle_in_the_api(
    life: dict[type[models.Model], models.Model], viewer: User, path: str
) -> None:
    response = browser(viewer).get(f"/payments/api/{path}/")
    assert response.status_code == 200
    (row,) = response.json()["data"]
    for shown in (response, browser(viewer).get(f"/payments/api/{path}/{row['id']}/")):
        assert NEEDLE not in json.dumps(shown.json(), ensure_ascii=False)
