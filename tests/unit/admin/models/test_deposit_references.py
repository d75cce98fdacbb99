"""The payments that probably came in through a deposit reference, with the note that explains it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from payments_integration import services
from payments_integration.admin.models import deposit_references
from payments_integration.models import DepositReference, Payment
from tests.factories import rows
from tests.unit.admin.conftest import page, url

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
    assert "probably came in" not in html
    assert pay.pk in page(staff("view_depositreference", "view_payment"), url("depositreference", "change", ref.pk))
    nameless = reference(merchant_reference=None)
    html = page(staff("view_depositreference"), url("depositreference", "change", nameless.pk))
    assert "probably came in" not in html


@pytest.mark.django_db(transaction=True)
def test_a_transfer_in_the_sandbox_is_found(payments_sandbox: Any) -> None:
    ref = services.create_deposit_reference(
        country="MX", currency="MXN", method_code="mx_deposit", merchant_reference="payer-7"
    )
    payments_sandbox.engine.transfer(ref.pk, 50_000)
    payments_sandbox.settle()
    ref.refresh_from_db()
    assert list(deposit_references.probable_payments(ref)) == [Payment.objects.get()]
