"""What is pasted brings marks along that nobody sees: no field, amount or search depends on them."""

from __future__ import annotations

import pytest
from django.forms import Form
from django.http import QueryDict
from django.test import Client

from payments_integration.admin.flows.decisions import CommentForm
from payments_integration.admin.flows.forms import DestinationForm, KeyedForm
from payments_integration.admin.flows.refund import ReasonForm
from payments_integration.admin.shared.typed import TypedForm
from payments_integration.contrib.backoffice.admin.days import DaysForm
from payments_integration.contrib.backoffice.admin.overview.todo import NoteForm
from payments_integration.contrib.backoffice.terms import readings
from payments_integration.validation.text import typed
from tests.factories import rows
from tests.unit.admin.lists.test_filters import found

pytestmark = pytest.mark.any_database

PASTED = "\u202d{}\u202c"


@pytest.mark.parametrize("form", [CommentForm, DestinationForm, KeyedForm, DaysForm])
def test_every_form_of_typed_text_cleans_it(form: type[Form]) -> None:
    assert issubclass(form, TypedForm)


def test_a_form_reads_what_was_meant() -> None:
    data = QueryDict(mutable=True)
    data.setlist("comment", ["first", "\ufeffcalled\u200b back"])
    form = CommentForm(data)
    assert form.is_valid()
    assert form.cleaned_data["comment"] == "called back"


@pytest.mark.parametrize(("form", "name"), [(CommentForm, "comment"), (ReasonForm, "reason"), (NoteForm, "note")])
def test_a_line_break_counts_as_one_character_as_in_the_browser(form: type[Form], name: str) -> None:
    text = "a\n" * 999 + "ab"
    filled = form({name: text.replace("\n", "\r\n"), "idempotency_key": "key"})
    assert filled.is_valid()
    assert filled.cleaned_data[name] == text


@pytest.mark.parametrize("text", ["\u0928\u094d\u200d", "\U0001f468\u200d\U0001f469", "Ñandú 漢字"])
def test_letters_keep_what_joins_them(text: str) -> None:
    assert typed(text) == text


def test_a_search_reads_what_was_meant() -> None:
    assert readings(PASTED.format("1,500.50")) == readings("1,500.50")


@pytest.mark.django_db
@pytest.mark.parametrize("pasted", [PASTED.format("{}"), "\ufeff{}", "{}\u200e"])
def test_lists_are_searched_and_filtered_by_what_was_meant(boss: Client, pasted: str) -> None:
    row = rows.payment(merchant_reference="factura 12")
    rows.payment()
    assert found(boss, f"q={pasted.format(row.pk)}") == {row.pk}
    assert found(boss, f"q={pasted.format('factura 12')}") == {row.pk}
    assert row.pk in found(boss, f"from={pasted.format('2025-03-04')}")
