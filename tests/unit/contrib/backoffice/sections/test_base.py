"""The order of a row's page: its headline, what comes above the fields, the fields, sections, and what is folded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from django.test import Client

from payments_integration.admin.base import ReadOnlyAdmin
from payments_integration.admin.shared import display
from payments_integration.admin.shared.sections import Page, Section
from payments_integration.contrib.backoffice.admin.model_admins import BackOfficePaymentAdmin
from tests.factories import rows
from tests.unit.admin.conftest import page, url

pytestmark = pytest.mark.any_database


@dataclass(frozen=True, slots=True)
class Words(Section):
    template: ClassVar[str] = "admin/payments_backoffice/includes/shown_to_payer.html"

    title: str
    content: str = ""


def of(words: str) -> Any:
    def hook(self: ReadOnlyAdmin, page: Page, obj: Any) -> Iterable[Section]:
        yield Words(words)

    return hook


def test_a_page_has_its_parts_in_this_order(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BackOfficePaymentAdmin, "headline", lambda self, page, obj: ["first line"])
    monkeypatch.setattr(BackOfficePaymentAdmin, "lead", of("above the fields"))
    fieldsets = ((None, {"fields": ("id", "country_shown")}), *BackOfficePaymentAdmin.fieldsets)
    monkeypatch.setattr(BackOfficePaymentAdmin, "fieldsets", fieldsets)
    monkeypatch.setattr(BackOfficePaymentAdmin, "sections", of("below the fields"))
    html = page(boss, url("payment", "change", rows.payment().pk))
    parts = [
        "first line",
        "above the fields",
        "field-country_shown",
        "below the fields",
        "Identifiers",
        "field-synced_at",
    ]
    places = [html.index(part) for part in parts]
    assert places == sorted(places)
    assert html.count("Identifiers") == 1
    assert "submit-row" not in html, "nothing can be saved"
    assert "historylink" not in html, "the timeline links to it"


def test_empty_parts_of_a_headline_are_left_out(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BackOfficePaymentAdmin, "headline", lambda self, page, obj: ["a", "", display.EMPTY, "<b>"])
    html = page(boss, url("payment", "change", rows.payment().pk))
    (line,) = re.findall(r'class="pi-headline">(.*?)</p>', html, re.DOTALL)
    assert re.findall(r"<span>(.*?)</span>", line) == ["a", "&lt;b&gt;", "default"]


def test_a_page_without_a_headline_keeps_its_title(boss: Client) -> None:
    row = rows.change()
    html = page(boss, url("statuschange", "change", row.pk))
    assert "pi-headline" not in html
    assert f"<h2>{row}</h2>" in html
    payment = rows.payment()
    assert f"<h2>{payment}</h2>" not in page(boss, url("payment", "change", payment.pk)), "the breadcrumbs show the id"


def test_the_payment_page_ends_with_identifiers_and_the_mirror(boss: Client) -> None:
    row = rows.payment(
        payer={"name": "Ana"},
        next_action={"type": "voucher", "voucher_code": "77"},
        checkout_url="https://pay.example/",
    )
    rows.refund(payment=row)
    html = page(boss, url("payment", "change", row.pk))
    titles = [
        "Money", "What happened", "Refunds", "What the payer was shown", "Records", "Payer", "Payment", "Identifiers",
        "Mirror",
    ]  # fmt: skip
    found = [re.sub(r"<[^>]+>", "", title).strip() for title in re.findall(r"<h2[^>]*>(.*?)</h2>", html, re.DOTALL)]
    assert [title for title in found if title in titles] == titles
