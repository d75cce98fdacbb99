"""Exports as Excel files, read back with openpyxl. ``tests/systems/office`` opens them with LibreOffice."""

from __future__ import annotations

import asyncio
import io
import tempfile
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib import admin
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.db import connections
from django.test import AsyncRequestFactory, Client
from django.urls import reverse
from django.utils import translation
from openpyxl import load_workbook

from payments_integration.contrib.backoffice.admin import export, xlsx
from payments_integration.models import Payment
from tests.factories import rows
from tests.unit.admin.conftest import page, url
from tests.unit.contrib.finance.books import movement

EXPORT = url("payment", "export") + "?format=xlsx"


def content(response: Any) -> bytes:
    return b"".join(response.streaming_content)


def cells(client: Client, model: str) -> list[dict[str, Any]]:
    """The rows of a file as the cells of their columns."""
    return cells_at(client, url(model, "export"))


def cells_at(client: Client, address: str) -> list[dict[str, Any]]:
    response = client.get(f"{address}?format=xlsx")
    assert response.headers["Content-Type"] == "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    assert response.headers["Content-Disposition"].endswith('.xlsx"')
    (sheet,) = load_workbook(io.BytesIO(content(response))).worksheets
    first, *others = sheet.iter_rows()
    return [{str(name.value): found for name, found in zip(first, row, strict=True)} for row in others]


@pytest.mark.parametrize("model", rows.EXPORTED)
def test_every_list_can_be_exported(boss: Client, model: str) -> None:
    rows.MAKERS[model]()
    (row,) = cells(boss, model)
    model_admin: Any = next(shown for shown in admin.site._registry.values() if shown.opts.model_name == model)
    assert list(row) == [name.replace("__", "_") for name in model_admin.export]


def test_amounts_and_times_are_numbers_in_every_language(boss: Client, settings: Any) -> None:
    settings.TIME_ZONE = "America/Lima"
    rows.payment(amount=123_450, fee=None, net_amount=-5, currency="USD", created_at=rows.AT)
    rows.payment(amount=15_990, currency="CLP", created_at=rows.AT)
    with translation.override("es"):
        peso, dollar = cells(boss, "payment")
    assert (peso["amount"].value, peso["amount"].number_format, peso["amount"].data_type) == (15_990, "#,##0", "n")
    assert (dollar["amount"].value, dollar["amount"].number_format) == (1234.5, "#,##0.00")
    assert (dollar["fee"].value, dollar["net_amount"].value, dollar["currency"].value) == (None, -0.05, "USD")
    assert dollar["created_at"].value == datetime(2025, 3, 4, 0, 6, 7)  # noqa: DTZ001
    assert dollar["created_at"].number_format == "yyyy-mm-dd hh:mm:ss"


def test_days_are_days(boss: Client) -> None:
    movement(occurred_on="2026-01-10", booked_on="2026-02-05")
    [row] = cells_at(boss, reverse("admin:payments_finance_movement_export"))
    assert row["occurred_on"].value == datetime(2026, 1, 10)  # noqa: DTZ001
    assert row["booked_on"].number_format == "yyyy-mm-dd"


def test_other_numbers_are_numbers_too(boss: Client) -> None:
    rows.event(rows.payment(), attempts=3)
    assert cells(boss, "event")[0]["attempts"].value == 3


def test_what_a_number_of_excel_cannot_hold_is_text(boss: Client) -> None:
    rows.payment(amount=999_999_999_999_999, currency="USD")
    rows.payment(amount=2**63 - 1, currency="USD", created_at=datetime(1899, 12, 31, tzinfo=UTC))
    exact, large = cells(boss, "payment")
    assert exact["amount"].value == 9_999_999_999_999.99
    assert (large["amount"].value, large["amount"].data_type) == ("92233720368547758.07", "s")
    assert large["created_at"].value == "1899-12-31 00:00:00"


def test_no_amount_changes_by_a_digit(boss: Client) -> None:
    amounts = [*range(1, 100), 999_999_999_999_99, 123_456_789_012_345, 7, 10**14 + 7]
    for amount in amounts:
        rows.payment(amount=amount, currency="USD")
    found = [repr(row["amount"].value) for row in cells(boss, "payment")]
    assert sorted(Decimal(value) * 100 for value in found) == sorted(map(Decimal, amounts))


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", " =", "＝", '=HYPERLINK("https://x")'])
def test_no_cell_is_a_formula(boss: Client, start: str) -> None:
    rows.payment(merchant_reference=f"{start}1+1")
    found = cells(boss, "payment")[0]["merchant_reference"]
    assert found.data_type == "s"
    assert str(found.value).startswith("'")


def test_text_stays_text_even_without_the_apostrophe(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "cell", str)
    texts = ["=1+1", "{=1+1}", "2025-01-01", "0123", "1e5", "https://provider.example/", "mailto:a@b.example"]
    for text in texts:
        rows.payment(merchant_reference=text)
    found = [row["merchant_reference"] for row in cells(boss, "payment")]
    assert sorted(cell.value for cell in found) == sorted(texts)
    assert {(cell.data_type, cell.hyperlink) for cell in found} == {("s", None)}


def test_text_that_looks_like_xml_of_a_sheet_is_escaped(boss: Client) -> None:
    written = "<r><t>1</t></r></is></c><c r='A9'><f>1+1</f></c><c><is><r></r>"
    rows.payment(merchant_reference=written, failure_reason="<b>&amp;")
    (row,) = cells(boss, "payment")
    assert row["merchant_reference"].value == f"'{written}"
    assert row["failure_reason"].value == "<b>&amp;"


def test_odd_and_long_text_is_written(boss: Client) -> None:
    rows.payment(merchant_reference=rows.ODD, failure_reason="\x01\ufffe" + "x" * 40_000)
    row = cells(boss, "payment")[0]
    assert row["merchant_reference"].value == rows.ODD
    assert str(row["failure_reason"].value).startswith("��")
    assert len(row["failure_reason"].value) == 32_767
    for odd in rows.odd_rows():
        if odd._meta.model_name in rows.EXPORTED:
            assert cells(boss, str(odd._meta.model_name))


def test_personal_data_is_left_out_without_the_permission(staff: Callable[..., Client]) -> None:
    rows.payment(payer_email="ana@example.com")
    (masked,) = cells(staff("view_payment"), "payment")
    (shown,) = cells(staff("view_payment", "view_personal_data"), "payment")
    assert "payer_email" not in masked
    assert shown["payer_email"].value == "ana@example.com"


def test_a_longer_list_is_refused_with_the_limit(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx, "MAX_ROWS", 2)
    for _ in range(2):
        rows.payment()
    assert len(cells(boss, "payment")) == 2
    rows.payment(status="failed")
    assert content(boss.get(EXPORT + "&status=succeeded"))
    response = boss.get(EXPORT)
    assert (response.status_code, response.headers["Location"]) == (302, url("payment", "changelist") + "?format=xlsx")
    (message,) = get_messages(response.wsgi_request)
    assert "at most 2 rows" in str(message)


def test_without_the_extra_the_choice_is_missing_and_the_address_names_it(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    html = page(boss, url("payment", "changelist"))
    assert 'value="csv-comma"' in html
    assert 'value="xlsx"' not in html
    response = boss.get(EXPORT)
    assert response.status_code == 302
    (message,) = get_messages(response.wsgi_request)
    assert "payments-integration[xlsx]" in str(message)


def test_memory_does_not_grow_with_the_rows(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "BATCH", 50)
    plain = rows.payment()
    fields = {field.attname: getattr(plain, field.attname) for field in Payment._meta.concrete_fields}
    Payment.objects.bulk_create(
        Payment(**{**fields, "id": f"pay_many_{number}", "failure_reason": "x" * 5000}) for number in range(1000)
    )
    # What is loaded once.
    content(boss.get(EXPORT + "&status=failed"))
    tracemalloc.start()
    response: Any = boss.get(EXPORT)
    length = sum(map(len, response.streaming_content))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert length > 10_000
    assert peak < 2_500_000


@pytest.mark.parametrize("failing_batch", [0, 1])
def test_a_failure_leaves_no_file_behind(
    boss: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing_batch: int
) -> None:
    rows.payment()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def records(*args: Any) -> Any:
        for _ in range(failing_batch):
            yield [["pay_1"]]
        raise ConnectionError

    monkeypatch.setattr(export, "records", records)
    with pytest.raises(ConnectionError):
        boss.get(EXPORT)
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_nobody_reads_leaves_no_file_open(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    file = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: opened.append(file()) or opened[-1])
    response: Any = boss.get(EXPORT)
    assert not opened[0].closed
    # The browser goes away before the first part.
    response.close()
    assert opened[0].closed


@pytest.mark.django_db(transaction=True)
def test_an_export_is_streamed_under_asgi() -> None:
    rows.payment(created_at=rows.AT + timedelta(days=1))
    request: Any = AsyncRequestFactory().get(EXPORT)
    request.user = User.objects.create_superuser("boss")
    response: Any = admin.site.get_model_admin(Payment).export_view(request)  # type: ignore[attr-defined]
    assert response.is_async

    async def parts() -> list[bytes]:
        read = [part async for part in response.streaming_content]
        await sync_to_async(connections.close_all)()  # those of the thread that read
        return read

    found = b"".join(asyncio.run(parts()))
    response.close()
    assert load_workbook(io.BytesIO(found)).active["A2"].value.startswith("pay_")  # type: ignore[index, union-attr]
