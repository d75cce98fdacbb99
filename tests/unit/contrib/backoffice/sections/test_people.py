"""Payers and recipients beside the page of an object."""

from __future__ import annotations

from django.contrib import admin
from django.test import Client, RequestFactory

from payments_integration.admin.shared.sections import Page
from payments_integration.contrib.backoffice.admin.sections.people import Facts, facts_section
from tests.factories import rows
from tests.unit.admin.conftest import page, url

ANA = {"name": "Ana Soto", "email": "ana@shop.example"}


def test_erased_data_is_said_to_be_erased(boss: Client, rf: RequestFactory) -> None:
    row = rows.payment(payer=ANA, erased_at=rows.AT)
    shown = list(facts_section(Page(admin.site, rf.get("/")), "Payer", row, "payer"))
    assert [section.facts for section in shown if isinstance(section, Facts)] == [[("Payer", "erased")]]
    assert "Ana Soto" not in page(boss, url("payment", "change", row.pk))
