"""The payments that probably came in through a deposit reference, with the note that explains it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils.html import strip_tags

from payments_integration import services
from payments_integration.contrib.backoffice.admin.sections import deposit_references
from payments_integration.models import DepositReference, Payment
from tests.factories import rows
from tests.unit.admin.conftest import page, url

pytestmark = pytest.mark.any_database

SAME = {
    "method_code": "mx_spei", "method_family": "deposit_reference", "country": "MX", "currency": "MXN",
    "merchant_reference": "payer-7", "flow": "deposit_reference",
}  # fmt: skip


def reference(**fields: Any) -> DepositReference:
    values = {"method_code": "mx_spei", "merchant_reference": "payer-7", "created_at": rows.AT}
    return rows.deposit_reference(**{**values, **fields})


def test_matching_payments_are_found_newest_first(boss: Client) -> None:
    ref = reference()
    first = rows.payment(**SAME, created_at=rows.AT)
    second = rows.payment(**{**SAME, "flow": None}, created_at=rows.AT + timedelta(days=1))
    html = page(boss, url("depositreference", "change", ref.pk))
    shown = html.split("probably came in", 1)[1].split("pi-timeline")[0]
    assert shown.index(second.pk) < shown.index(first.pk)
    assert "does not say which reference" in shown


@pytest.mark.parametrize(
    "other",
    [
        {"method_code": "mx_card"}, {"country": "CL"}, {"currency": "USD"}, {"merchant_reference": "payer-8"},
        {"merchant_reference": None}, {"flow": "hosted"}, {"flow": "s2s"}, {"account": "second"},
        {"created_at": rows.AT - timedelta(seconds=1)},
    ],
)  # fmt: skip
def test_payments_that_differ_in_one_field_are_not_found(db: None, other: dict[str, Any]) -> None:
    ref = reference()
    rows.payment(**{**SAME, "created_at": rows.AT, **other})
    assert not deposit_references.probable_payments(ref).exists()


@pytest.mark.parametrize("merchant_reference", [None, ""])
def test_without_a_merchant_reference_no_payments_are_listed(boss: Client, merchant_reference: str | None) -> None:
    ref = reference(merchant_reference=merchant_reference)
    pay = rows.payment(**{**SAME, "merchant_reference": merchant_reference})
    html = page(boss, url("depositreference", "change", ref.pk))
    assert "cannot be identified" in html
    assert pay.pk not in html


def test_the_payments_of_a_reference_need_the_permission_to_view_payments(staff: Callable[..., Client]) -> None:
    ref, pay = reference(), rows.payment(**SAME)
    html = page(staff("view_depositreference"), url("depositreference", "change", ref.pk))
    assert pay.pk not in html
    assert "?q=payer-7" not in html
    assert "Not visible to you." in html
    assert pay.pk in page(staff("view_depositreference", "view_payment"), url("depositreference", "change", ref.pk))
    nameless = reference(merchant_reference=None)
    html = page(staff("view_depositreference"), url("depositreference", "change", nameless.pk))
    assert "Not visible to you." in html
    assert "cannot be identified" not in html


def headline(client: Client, ref: DepositReference) -> str:
    html = page(client, url("depositreference", "change", ref.pk))
    return " ".join(strip_tags(html.split('class="pi-headline">')[1].split("</p>")[0].replace("<", " <")).split())


def test_the_page_begins_with_what_the_payer_transfers_to(boss: Client, staff: Callable[..., Client]) -> None:
    bank = {"bank_name": "BBVA", "account_number": "012345678901234567"}
    details = {"type": "bank_transfer_details", "bank_transfer": bank}
    ref = reference(details=details)
    rows.operation(result_kind=ref.kind, result_id=ref.pk, arguments={"payer": {"name": "Ana Soto"}})
    assert headline(boss, ref) == "012345678901234567 active Ana Soto payer-7 default"
    ref.details = {**details, "reference": "REF-88"}
    ref.save()
    assert headline(boss, ref) == "REF-88 active Ana Soto payer-7 default"
    html = page(boss, url("depositreference", "change", ref.pk))
    assert f'<a href="{url("payment", "changelist")}?q=payer-7">payer-7</a>' in html
    assert html.index("012345678901234567") < html.index("probably came in")
    masked = staff("view_depositreference")
    assert headline(masked, ref) == "••• active ••• payer-7 default"
    html = page(masked, url("depositreference", "change", ref.pk))
    assert "Ana Soto" not in html
    assert "012345678901234567" not in html
    assert "BBVA" not in html


def test_odd_details_and_an_unknown_payer_are_left_out_of_the_first_line(boss: Client) -> None:
    ref = reference(details=["odd"], status="disabled")
    rows.operation(result_kind=ref.kind, result_id=ref.pk, arguments={"payer": "odd"})
    assert headline(boss, ref) == "disabled payer-7 default"


def received(client: Client, ref: DepositReference) -> str:
    html = page(client, url("depositreference", "change", ref.pk))
    found = html.partition("<h2>Probably received through it</h2>")[2].partition("</table>")[0]
    return " ".join(strip_tags(found.replace("<", " <")).replace("\xa0", " ").split())


def test_what_was_received_is_added_up(
    boss: Client, staff: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = reference()
    assert received(boss, ref) == "Received in total MXN 0.00 Payments 0 Newest payment –"
    for number, status in enumerate(("succeeded", "overpaid", "chargeback", "on_hold", "succeeded")):
        at = rows.AT + timedelta(days=number)
        rows.payment(**{**SAME, "status": status, "amount_received": 1000 * 2**number, "created_at": at})
    everything = "Received in total MXN 190.00 Payments 3 Newest payment 2025-03-08 05:06:07"
    assert received(boss, ref) == everything
    assert received(staff("view_depositreference"), ref) == ""
    monkeypatch.setattr(deposit_references, "MAX_COUNTED", 5)
    assert received(boss, ref) == everything
    monkeypatch.setattr(deposit_references, "MAX_COUNTED", 4)
    shown = received(boss, ref)
    assert shown.startswith("Received in total MXN 180.00 Payments 2")
    assert shown.endswith("only the newest 4 payments")


@pytest.mark.django_db(transaction=True)
def test_a_transfer_in_the_sandbox_is_found(payments_sandbox: Any) -> None:
    ref = services.create_deposit_reference(
        country="MX", currency="MXN", method_code="mx_deposit", merchant_reference="payer-7"
    )
    payments_sandbox.engine.transfer(ref.pk, 50_000)
    payments_sandbox.settle()
    ref.refresh_from_db()
    assert list(deposit_references.probable_payments(ref)) == [Payment.objects.get()]
