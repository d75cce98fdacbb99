"""What payments are searched by follows from the payer as it came, whatever that is."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from payments_integration.models import Payment
from tests.unit.admin import rows

PAYERS: list[tuple[Any, str, str]] = [
    (None, "", ""),
    ({}, "", ""),
    ("Ana", "", ""),
    (
        {"email": " Ana@Example.COM ", "document": {"type": "RUT", "number": "11.111.111-k"}},
        "ana@example.com",
        "11111111K",
    ),
    ({"email": 5, "document": []}, "", ""),
    ({"email": "a" * 255, "document": {"number": "9" * 65}}, "", ""),
    ({"email": "İ" * 254, "document": {"number": "ß" * 64}}, ("İ".lower() * 127), "S" * 64),
]


@pytest.mark.parametrize(("payer", "email", "document"), PAYERS)
def test_of_a_payer(payer: Any, email: str, document: str) -> None:
    assert Payment.derived({"payer": payer}) == {"payer_email": email, "payer_document": document}


@pytest.mark.django_db
def test_rows_that_were_there_before_are_filled_in() -> None:
    migration = import_module("payments_integration.migrations.0003_admin")
    for payer, _email, _document in PAYERS:
        rows.payment(payer=payer)
    migration.fill_search_fields(apps, SimpleNamespace(connection=connection))
    for payment in Payment.objects.all():
        assert payment.derived({"payer": payment.payer}) == {
            "payer_email": payment.payer_email,
            "payer_document": payment.payer_document,
        }
    assert Payment.objects.exclude(payer_email="").count() == 2
