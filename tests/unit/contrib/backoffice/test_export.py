"""Exports as CSV: every row, in little memory, and no cell that a spreadsheet would run."""

from __future__ import annotations

import asyncio
import csv
import io
import re
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection, connections
from django.test import AsyncRequestFactory, Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from payments_integration.contrib.backoffice.admin import export
from payments_integration.contrib.backoffice.admin.lists import BackOfficeAdmin
from payments_integration.db.keyset import Order
from payments_integration.models import Payment
from tests.factories import rows
from tests.unit.admin.conftest import page, url


def read(client: Client, model: str, query: str = "", *, delimiter: str = ",") -> list[dict[str, str]]:
    response = client.get(url(model, "export") + query)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    content = b"".join(response.streaming_content).decode("utf-8-sig")  # type: ignore[attr-defined]
    return list(csv.DictReader(io.StringIO(content), delimiter=delimiter))


@pytest.mark.parametrize("model", rows.EXPORTED)
def test_every_list_can_be_exported_as_csv(boss: Client, model: str) -> None:
    rows.MAKERS[model]()
    assert f'action="{url(model, "export")}"' in page(boss, url(model, "changelist"))
    found = read(boss, model)
    assert len(found) == 1
    model_admin: Any = next(shown for shown in admin.site._registry.values() if shown.opts.model_name == model)
    assert list(found[0]) == [name.replace("__", "_") for name in model_admin.export]


def test_an_export_has_the_rows_and_the_order_of_the_list(boss: Client) -> None:
    made = [rows.payment(status="failed", merchant_reference="same").pk for _ in range(3)]
    rows.payment(status="succeeded", merchant_reference="same")
    rows.payment(status="failed")
    query = "?status=failed&q=same&from=2025-01-01"
    assert [row["id"] for row in read(boss, "payment", query)] == made[::-1]
    html = page(boss, url("payment", "changelist") + query + "&after=x&format=xlsx")
    form = html.partition(f'action="{url("payment", "export")}"')[2].partition("</form>")[0]
    kept = re.findall(r'<input type="hidden" name="(.*?)" value="(.*?)"', form)
    assert kept == [("status", "failed"), ("q", "same"), ("from", "2025-01-01")]
    assert re.findall(r'<option value="(.*?)"', form) == ["csv", "csv-point", "csv-comma", "xlsx"]


def test_the_button_for_a_link_that_repeats_a_parameter_repeats_it_too(boss: Client) -> None:
    html = page(boss, url("payment", "changelist") + "?status=failed&status=expired")
    form = html.split(f'action="{url("payment", "export")}">')[1].split("</form>")[0]
    assert re.findall(r'<input type="hidden" name="status" value="(.*?)"', form) == ["failed", "expired"]


def test_a_cursor_skips_no_row(boss: Client) -> None:
    made = [rows.payment().pk for _ in range(3)]
    cursor = Order(Payment._meta, ["-created_at"]).cursor(Payment.objects.get(pk=made[1]))
    assert len(read(boss, "payment", f"?after={cursor}")) == 3


def test_invalid_days_give_no_rows(boss: Client) -> None:
    rows.payment()
    assert read(boss, "payment", "?from=x") == []


def test_an_unknown_parameter_is_refused(boss: Client) -> None:
    assert boss.get(url("payment", "export") + "?payer_email=a").status_code == 400
    assert boss.get(url("payment", "export") + "?status=%00").status_code == 302
    assert boss.get(url("payment", "export") + "?format=pdf").status_code == 400


def test_amounts_are_exported_in_major_units_with_their_currency(boss: Client) -> None:
    rows.payment(amount=2**63 - 1, amount_received=1050, fee=None, net_amount=-5, currency="USD")
    rows.payment(amount=1050, currency="CLP")
    peso, dollar = read(boss, "payment")
    assert (peso["amount"], peso["currency"]) == ("1050", "CLP")
    assert (dollar["amount"], dollar["amount_received"]) == ("92233720368547758.07", "10.50")
    assert (dollar["fee"], dollar["net_amount"], dollar["currency"]) == ("", "-0.05", "USD")


@pytest.mark.parametrize(
    ("language", "query", "delimiter", "amount"),
    [
        ("en", "", ",", "1234.50"),
        ("es", "", ";", "1234,50"),
        ("es", "?format=csv", ";", "1234,50"),
        ("es-mx", "", ",", "1234.50"),
        ("pt-br", "", ";", "1234,50"),
        ("es", "?format=csv-point", ",", "1234.50"),
        ("en", "?format=csv-comma", ";", "1234,50"),
    ],
)
def test_decimals_and_separators_are_the_readers_or_chosen(
    boss: Client, language: str, query: str, delimiter: str, amount: str
) -> None:
    rows.payment(amount=123_450, currency="USD")
    with translation.override(language):
        (row,) = read(boss, "payment", query, delimiter=delimiter)
    assert (row["amount"], row["currency"]) == (amount, "USD")


def test_exported_times_are_in_the_time_zone_of_the_site(boss: Client, settings: Any) -> None:
    rows.payment(created_at=rows.AT + timedelta(microseconds=5))
    with timezone.override("Asia/Tokyo"):
        assert read(boss, "payment")[0]["created_at"] == "2025-03-04 05:06:07"
        settings.TIME_ZONE = "America/Lima"
        assert read(boss, "payment")[0]["created_at"] == "2025-03-04 00:06:07"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r=", "\n=", " =", "＝", "\u3000="])
def test_no_cell_is_a_formula(boss: Client, start: str) -> None:
    rows.payment(merchant_reference=f"{start}cmd|' /C calc'!A0")
    shown = read(boss, "payment")[0]["merchant_reference"]
    assert shown.startswith("'")
    assert shown.endswith("calc'!A0")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("ref;=cmd|'/C calc'!A0;x", "ref;'=cmd|'/C calc'!A0;x"),
        ("ref\n;=1", "ref ;'=1"),
        ("a;\t@sum", "a;\t'@sum"),
        # Two quotes there are an empty text, and the formula would follow.
        ('x;"=1+1;', "x;\"'=1+1;"),
        ('x;" "=1', 'x;" "\'=1'),
        ("a-b;c=d", "a-b;c=d"),
    ],
)
def test_cells_after_a_semicolon_are_no_formulas_either(text: str, written: str) -> None:
    """Spreadsheets split at semicolons in languages with a decimal comma."""
    assert export.cell(text) == written


def test_with_semicolons_cells_after_a_comma_are_no_formulas_either(boss: Client) -> None:
    rows.payment(merchant_reference="ref,=cmd|' /C calc'!A0, -1,\"=2")
    (row,) = read(boss, "payment", "?format=csv-comma", delimiter=";")
    assert row["merchant_reference"] == "ref,'=cmd|' /C calc'!A0, '-1,\"'=2"


def test_odd_text_is_written(boss: Client) -> None:
    rows.payment(merchant_reference=f'{rows.ODD},"\n;')
    assert read(boss, "payment")[0]["merchant_reference"] == f'{rows.ODD}," ;'
    assert export.cell("\ud800") == "\\ud800"
    for row in rows.odd_rows():
        if row._meta.model_name in rows.EXPORTED:
            assert read(boss, row._meta.model_name)


def test_personal_data_is_left_out_without_the_permission(staff: Callable[..., Client]) -> None:
    rows.payment(payer_email="ana@example.com", payer_document="12345678K")
    rows.payout(destination={"holder_name": "Ana"})
    rows.refund(reason="Ana asked")
    for model, secret in (("payment", "ana@example.com"), ("payout", "Ana"), ("refund", "Ana asked")):
        (masked,) = read(staff(f"view_{model}"), model)
        assert secret not in str(masked)
        (shown,) = read(staff(f"view_{model}", "view_personal_data"), model)
        assert secret in str(shown)
        assert set(masked) < set(shown)


def test_the_payments_reference_is_left_out_without_the_permission_to_view_payments(
    staff: Callable[..., Client],
) -> None:
    refund = rows.refund(payment=rows.payment(merchant_reference="order-7"))
    (left_out,) = read(staff("view_refund"), "refund")
    assert "payment_merchant_reference" not in left_out
    assert left_out["payment_id"] == refund.payment_id
    (shown,) = read(staff("view_refund", "view_payment"), "refund")
    assert shown["payment_merchant_reference"] == "order-7"


def test_no_exported_column_holds_unmarked_personal_data_or_secrets() -> None:
    for model, model_admin in admin.site._registry.items():
        if not isinstance(model_admin, BackOfficeAdmin):
            continue
        personal = {"extra", "body", "arguments", "error", "note", "actor", *getattr(model, "personal", ())}
        assert set(model_admin.export_personal) == set(model_admin.export) & personal
        hidden = {"secret_token", "previous_secret_token", "sent_to", "claim_token", "arguments_hash", "body_digest"}
        assert not set(model_admin.export) & (hidden | {"idempotency_key", "cursor", "content_hash"})


def test_an_export_needs_the_permission_to_view(staff: Callable[..., Client], client: Client) -> None:
    rows.payment()
    assert staff("view_event").get(url("payment", "export")).status_code == 403
    assert staff("view_personal_data").get(url("payment", "export")).status_code == 403
    assert client.get(url("payment", "export")).status_code == 302


def test_posting_to_the_export_is_refused(boss: Client) -> None:
    assert boss.post(url("payment", "export")).status_code == 405


def test_an_export_is_read_in_batches_without_a_count(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        rows.refund(created_at=rows.AT + timedelta(seconds=number // 3), payment=rows.payment(), extra={"x": "y"})
    monkeypatch.setattr(export, "BATCH", 2)
    with CaptureQueriesContext(connection) as queries:
        found = read(boss, "refund")
    assert len({row["id"] for row in found}) == 7
    statements = [query["sql"] for query in queries if "payments_integration_refund" in query["sql"]]
    assert len([sql for sql in statements if "LIMIT 2" in sql]) == 4
    assert not [sql for sql in statements if "COUNT(" in sql or "OFFSET" in sql]


def test_memory_does_not_grow_with_the_rows(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "BATCH", 50)
    plain = rows.payment()
    fields = {field.attname: getattr(plain, field.attname) for field in Payment._meta.concrete_fields}
    Payment.objects.bulk_create(
        Payment(**{**fields, "id": f"pay_many_{number}", "failure_reason": "x" * 2000}) for number in range(2000)
    )
    response: Any = boss.get(url("payment", "export"))
    parts = iter(response.streaming_content)
    next(parts), next(parts)
    tracemalloc.start()
    length = sum(map(len, parts))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert length > 3_900_000
    assert peak < 1_500_000


@pytest.mark.django_db(transaction=True)
def test_an_export_is_streamed_under_asgi(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        rows.payment()
    monkeypatch.setattr(export, "BATCH", 2)
    request: Any = AsyncRequestFactory().get(url("payment", "export"))
    request.user = User.objects.create_superuser("boss")
    response: Any = admin.site.get_model_admin(Payment).export_view(request)  # type: ignore[attr-defined]
    assert response.is_async

    async def parts() -> list[bytes]:
        read = [part async for part in response.streaming_content]
        await sync_to_async(connections.close_all)()  # those of the thread that read
        return read

    found = asyncio.run(parts())
    assert len(found) == 3
    assert b"".join(found).count(b"pay_") == 3
