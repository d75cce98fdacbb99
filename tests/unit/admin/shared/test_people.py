"""Payers, recipients and other JSON as fields with names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import translation

from payments_integration.admin.shared import people
from tests.factories import rows
from tests.unit.admin.conftest import page, url

pytestmark = pytest.mark.any_database

PAYER = {
    "device_id": "dev-1", "ip": "10.0.0.1", "loyalty": {"tier": "gold", "since": 2020}, "phone": "+56911112222",
    "address": {"street": "Av. Ñuñoa 1", "city": "Santiago"}, "email": "ana@shop.example",
    "document": {"type": "RUT", "number": "11.111.111-1"}, "name": "Ana Soto", "vip": True, "tags": ["a", "b"],
}  # fmt: skip


def plain(value: Any) -> list[tuple[str, str]]:
    return [(str(label), str(shown)) for label, shown in people.facts(value)]


def test_a_payer_is_shown_as_a_person_first_and_technically_last() -> None:
    assert plain(PAYER) == [
        ("Name", "Ana Soto"),
        ("Document", "RUT 11.111.111-1"),
        ("E-mail", "ana@shop.example"),
        ("Phone", "+56911112222"),
        ("Address · Street", "Av. Ñuñoa 1"),
        ("Address · City", "Santiago"),
        ("loyalty · tier", "gold"),
        ("loyalty · since", "2020"),
        ("vip", "yes"),
        ("tags", "a, b"),
        ("IP address", "10.0.0.1"),
        ("Device", "dev-1"),
    ]


def test_a_recipient_is_shown_with_the_account_and_its_kind_in_words() -> None:
    destination = {
        "type": "bank_account", "account_type": "checking", "account_number": "000111", "bank_code": "012",
        "holder_name": "Ana", "holder_document": {"type": "PASS", "number": "X1"},
    }  # fmt: skip
    with translation.override("es"):
        assert plain(destination)[-1][1] == "cuenta bancaria"
    assert plain(destination) == [
        ("Account holder", "Ana"),
        ("Document", "passport X1"),
        ("Bank", "012"),
        ("Account number", '<code class="pi-code">000111</code>'),
        ("Account type", "checking"),
        ("Type", "bank account"),
    ]


@pytest.mark.parametrize("value", [None, "", {}, [], {"name": None, "phone": ""}, {"a": {"b": []}}])
def test_nothing_is_shown_for_nothing(value: Any) -> None:
    assert people.facts(value) == []
    assert people.as_html(value) == "–"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("word", [("Value", "word")]),
        ({"items": [{"sku": 1}, {"sku": 2}]}, [("items · 1 · sku", "1"), ("items · 2 · sku", "2")]),
        ({"document": "11-1"}, [("Document", "11-1")]),
        (
            {"document": {"type": {"x": 1}, "number": ["7"]}},
            [("Document · Type · x", "1"), ("Document · Number", "7")],
        ),
        ({"document": {"number": "7"}}, [("Document · Number", "7")]),
        ({"type": ["bank_account"]}, [("Type", "bank_account")]),
        ({"<b>": "<i>"}, [("<b>", "&lt;i&gt;")]),
        ({"name": "d\u2066e"}, [("Name", "d\\u2066e")]),
        ([1, [2, {"c": False}]], [("1", "1"), ("2 · 1", "2"), ("2 · 2 · c", "no")]),
    ],
)
def test_values_of_any_shape_are_readable(value: Any, shown: list[tuple[str, str]]) -> None:
    assert plain(value) == shown
    html = people.as_html(value)
    assert "<b>" not in html
    assert "{" not in html


def test_a_person_is_masked_without_the_permission(staff: Callable[..., Client]) -> None:
    row = rows.payment(payer=PAYER)
    html = page(staff("view_payment"), url("payment", "change", row.pk))
    for secret in ("Ana Soto", "11.111.111-1", "ana@shop.example", "Av. Ñuñoa 1", "gold", "10.0.0.1"):
        assert secret not in html
    assert "RUT •••" in html
    assert "Ana Soto" in page(staff("view_payment", "view_personal_data"), url("payment", "change", row.pk))


def test_further_fields_are_no_json_either(boss: Client) -> None:
    row = rows.payment(extra={"risk": {"score": 7}})
    html = page(boss, url("payment", "change", row.pk))
    assert "<dt>risk · score</dt><dd>7</dd>" in html
    assert "pi-pre" not in html
