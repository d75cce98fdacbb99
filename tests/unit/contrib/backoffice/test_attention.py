"""The operations that need attention, above the list of operations."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from payments_integration.contrib.backoffice.admin import attention
from payments_integration.models import Operation, OperationState
from tests.factories import rows
from tests.unit.admin.conftest import page, url

OPEN = ("needs_person", "awaiting_approval", "unknown")


def shown(client: Client, query: str = "") -> str:
    html = page(client, url("operation", "changelist") + query)
    return html.split('id="pi-attention"')[1].split("</section>")[0] if "pi-attention" in html else ""


def test_attention_shows_the_oldest_of_each_state_most_urgent_first(boss: Client) -> None:
    made = {
        state: [
            rows.operation(state=state, target_id=f"pay_{state}", created_at=rows.AT + timedelta(minutes=minute)).pk
            for minute in range(attention.ATTENTION_ROWS + 1)
        ]
        for state in OperationState.values
    }
    html = shown(boss)
    place = {pk: html.find(f'href="{url("operation", "change", pk)}"') for pks in made.values() for pk in pks}
    found = sorted((pk for pk, at in place.items() if at >= 0), key=place.__getitem__)
    assert found == [pk for state in OPEN for pk in made[state][: attention.ATTENTION_ROWS]]
    assert f'href="{url("payment", "change", "pay_unknown")}"' in html
    for state in OPEN:
        assert f'href="{url("operation", "changelist")}?state={state}"' in html


def test_attention_says_who_and_for_what(staff: Callable[..., Client]) -> None:
    arguments = {"destination": {"holder_name": "Ana Rojas", "account_number": "000123"}}
    rows.operation(state="awaiting_approval", arguments=arguments, merchant_reference="invoice-7")
    own = rows.operation(state="awaiting_approval")
    Operation.objects.filter(pk=own.pk).update(merchant_reference=own.pk)
    for rights, name in (
        (("view_operation", "view_personal_data"), "Ana Rojas"),
        (("view_operation",), "•••"),
    ):
        client = staff(*rights)
        for html in (shown(client), page(client, url("operation", "changelist") + "?state=awaiting_approval")):
            assert f">{name}<" in html
            assert ("Rojas" in html) is (name != "•••")
            assert "000123" not in html
            assert ">invoice-7<" in html
            # An operation's own id, which was sent without another reference, says nothing to people.
            assert f">{own.pk}</td>" not in html


def test_attention_is_shown_only_above_the_unfiltered_list(boss: Client) -> None:
    rows.operation(state="unknown")
    assert shown(boss)
    for query in ("?state=done", "?q=op_1", "?o=-1"):
        assert not shown(boss, query)


def test_without_open_operations_a_message_is_shown(boss: Client) -> None:
    rows.operation(state="done")
    assert "No operation needs a decision" in shown(boss)


@pytest.mark.parametrize("count", [1, 20])
def test_the_queries_for_attention_do_not_grow(boss: Client, count: int) -> None:
    for _ in range(count):
        for state in OPEN:
            rows.operation(state=state, target_id="pay_1")
    page(boss, url("operation", "changelist"))
    with CaptureQueriesContext(connection) as queries:
        shown(boss)
    assert len(queries) <= 8
    own = [query["sql"] for query in queries if re.search(r"\bstate\W = ", query["sql"])]
    assert len(own) == len(OPEN)
    assert not any(re.search(r"\bbody\b|\bCOUNT\b", sql) for sql in own)
