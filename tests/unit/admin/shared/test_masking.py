"""Personal data is masked without its permission; keys and structure stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client

from payments_integration.admin.base import ReadOnlyAdmin
from payments_integration.admin.shared import masking
from payments_integration.models import MIRRORS
from tests.factories import rows
from tests.unit.admin.conftest import page, places_of, url

#: Not to be seen on any page without the permission.
SECRETS = (
    "Ana Torres", "ana@example.com", "+56911112222", "11111111", "10.1.2.3", "device-7", "pix-copy-paste",
    "vou-123", "order note", "000111", "newfield-value", "wants it back",
)  # fmt: skip
PAYER = {
    "name": "Ana Torres", "email": "ana@example.com", "phone": "+56911112222", "ip": "10.1.2.3",
    "document": {"type": "RUT", "number": "11111111"}, "device_id": "device-7",
}  # fmt: skip
NEXT_ACTION = {"type": "qr", "qr_payload": "pix-copy-paste", "voucher_code": "vou-123", "expires_at": "2025-01-01"}
METADATA = {"note": "order note", "type": "Ana Torres", "ana@example.com": "x"}
EXTRA = {"newfield": [{"deep": "newfield-value"}]}
DESTINATION = {
    "type": "bank_account", "bank_code": "001", "account_number": "000111", "account_type": "checking",
    "holder_name": "Ana Torres", "holder_document": {"type": "RUT", "number": "11111111"},
}  # fmt: skip
OBJECT = {
    "id": "pay_1", "object": "payment", "status": "succeeded", "amount": 1050, "payer": PAYER, "metadata": METADATA,
    "next_action": NEXT_ACTION, "destination": DESTINATION, **EXTRA,
}  # fmt: skip
TRACE = """Traceback (most recent call last):
  File "shop/receivers.py", line 7, in ship
    raise ValueError(payment.payer)
ValueError: {'name': 'Ana Torres'}
 of ana@example.com

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "shop/receivers.py", line 9, in ship
    mail("ana@example.com")
shop.errors.MailError: Ana Torres
"""


def personal_rows() -> dict[str, Any]:
    """A row of every model with personal data."""
    body = json.dumps({"id": "evt_1", "type": "payment.succeeded", "data": OBJECT}).encode()
    return {
        "payment": rows.payment(
            payer=PAYER, next_action=NEXT_ACTION, metadata=METADATA, extra=EXTRA, payer_email="ana@example.com",
            payer_document="11111111",
        ),
        "payout": rows.payout(destination=DESTINATION, metadata=METADATA, extra=EXTRA),
        "refund": rows.refund(reason="wants it back", extra=EXTRA),
        "depositreference": rows.deposit_reference(details=NEXT_ACTION, extra=EXTRA),
        "balance": rows.balance(extra=EXTRA),
        "webhookendpoint": rows.endpoint(extra=EXTRA),
        "event": rows.event(body=body, error=TRACE),
        "statuschange": rows.change(error=TRACE),
        "operation": rows.operation(
            arguments={"payment": "pay_1", "amount": 5, "destination": DESTINATION, "reason": "wants it back"},
            body=json.dumps({"payer": PAYER, "destination": DESTINATION}).encode(),
            note="sent to 000111 of Ana Torres",
            error={"code": "invalid", "message": "no account 000111", "param": "destination"},
        ),
    }  # fmt: skip


@pytest.mark.parametrize("model", [
    "payment", "payout", "refund", "depositreference", "balance", "webhookendpoint", "event", "statuschange",
    "operation",
])  # fmt: skip
def test_personal_data_is_masked_without_the_permission(staff: Callable[..., Client], model: str) -> None:
    row = personal_rows()[model]
    someone = staff(f"view_{model}")
    for address in (url(model, "change", row.pk), url(model, "changelist"), url(model, "history", row.pk)):
        html = page(someone, address)
        assert [secret for secret in SECRETS if secret in html] == [], address
    assert masking.MASK in page(someone, url(model, "change", row.pk))
    permitted = page(staff(f"view_{model}", "view_personal_data"), url(model, "change", row.pk))
    assert masking.MASK not in permitted
    assert any(secret in permitted for secret in SECRETS)


def test_the_error_of_a_refresh_is_masked_without_the_permission(staff: Callable[..., Client]) -> None:
    (where,) = places_of(rows.due(error=TRACE))
    html = page(staff("view_duerefresh"), where)
    assert [secret for secret in SECRETS if secret in html] == []
    assert masking.MASK in html
    assert any(secret in page(staff("view_duerefresh", "view_personal_data"), where) for secret in SECRETS)


def test_related_rows_are_masked_too(staff: Callable[..., Client]) -> None:
    pay = rows.payment()
    rows.refund(payment=pay, reason="wants it back")
    assert "wants it back" not in page(staff("view_payment", "view_refund"), url("payment", "change", pay.pk))
    permitted = staff("view_payment", "view_refund", "view_personal_data")
    assert "wants it back" in page(permitted, url("payment", "change", pay.pk))


def test_every_shown_personal_field_of_a_mirror_is_masked() -> None:
    for model in MIRRORS.values():
        model_admin = admin.site.get_model_admin(model)
        assert isinstance(model_admin, ReadOnlyAdmin)
        shown = {name for _title, options in model_admin.fieldsets for name in options["fields"]}
        shown |= {str(name) for name in model_admin.list_display}
        personal = {f"{name}_shown" for name in ("extra", *model.personal)} | set(model.personal)
        assert shown & personal <= set(model_admin.personal)
        assert set(model_admin.personal) <= shown


def test_odd_rows_are_shown_to_those_who_may_not_see_personal_data(staff: Callable[..., Client]) -> None:
    for row in rows.odd_rows():
        someone = staff(f"view_{row._meta.model_name}")
        for address in places_of(row):
            assert "<script>alert" not in page(someone, address)


def test_masking_keeps_keys_and_structure() -> None:
    shown = masking.masked(OBJECT)
    assert list(shown) == list(OBJECT)
    assert (shown["id"], shown["status"], shown["amount"]) == ("pay_1", "succeeded", 1050)
    assert shown["payer"]["document"] == {"type": "RUT", "number": masking.MASK}
    assert shown["destination"]["type"] == "bank_account"
    assert shown["newfield"] == [{"deep": masking.MASK}]


def test_metadata_is_masked_under_any_key() -> None:
    shown = masking.masked(OBJECT)["metadata"]
    assert shown == {"note": masking.MASK, "type": masking.MASK, f"{masking.MASK} 3": masking.MASK}


def test_empty_values_stay_empty() -> None:
    assert masking.hidden({"a": None, "b": "", "c": [], "d": {}, "e": 0, "f": False}) == {
        "a": None, "b": "", "c": [], "d": {}, "e": masking.MASK, "f": masking.MASK,
    }  # fmt: skip


def test_a_code_with_free_text_is_masked() -> None:
    assert masking.field("destination", {"type": "Ana Torres"}) == {"type": masking.MASK}


@pytest.mark.parametrize("raw", [b"\xff", b"[1]", b'"ana"', b"{", b"[" * 100_000, b'{"a":' * 500 + b"1" + b"}" * 500])
def test_a_body_that_is_not_json_is_hidden(raw: bytes) -> None:
    shown = masking.body(raw)
    assert shown is None or "1" not in shown


def test_a_masked_traceback_keeps_its_frames_and_the_class() -> None:
    shown = masking.traceback(TRACE)
    assert 'File "shop/receivers.py", line 7, in ship' in shown
    assert f"ValueError: {masking.MASK}" in shown
    assert f"shop.errors.MailError: {masking.MASK}" in shown
    assert "Ana" not in shown
    assert "ana@" not in shown


@pytest.mark.parametrize("text", ["Ana: 7", "it is Ana", '  File "x", line 1, in y\nAna: 7', "ana@example.com"])
def test_a_text_that_is_not_a_traceback_is_masked(text: str) -> None:
    assert "ana" not in masking.traceback(text).lower()


def test_personal_arguments_are_masked_in_a_note() -> None:
    arguments = {"destination": DESTINATION, "reason": "x"}
    assert masking.note("to 000111, Ana Torres; x", arguments) == f"to {masking.MASK}, {masking.MASK}; x"
    assert masking.without("to 000111, Ana Torres; x", arguments) == f"to {masking.MASK}, {masking.MASK}; x"


@pytest.mark.parametrize("time", ["2026-01-31 12:00:00", "2026-01-31 12:00:00 UTC"])
def test_comments_and_details_are_masked_in_a_note(time: str) -> None:
    note = f"{time}: answered gateway_error (HTTP 500)\n{time}: 7:boss rejected it: Ana Rojas called\n    : twice"
    assert masking.note(note, {}) == f"{time}: answered gateway_error (HTTP 500)\n{time}: 7:boss rejected it: •••"


def test_the_error_of_a_run_is_masked(staff: Callable[..., Client]) -> None:
    row = rows.run(state="failed", error="IntegrityError: DETAIL: Failing row contains (Ana Soto)")
    where = url("reconciliationrun", "change", row.pk)
    assert "Ana Soto" not in page(staff("view_reconciliationrun"), where)
    assert "Ana Soto" in page(staff("view_reconciliationrun", "view_personal_data"), where)
