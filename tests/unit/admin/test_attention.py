"""Operations that a person should look at, above the list of all."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from payments_integration.admin import attention
from payments_integration.models import OperationState
from tests.unit.admin import rows
from tests.unit.admin.conftest import page, url

OPEN = ("needs_person", "awaiting_approval", "unknown")


def shown(client: Client, query: str = "") -> str:
    html = page(client, url("operation", "changelist") + query)
    return html.split('id="pi-attention"')[1].split("</section>")[0] if "pi-attention" in html else ""


def test_the_most_pressing_first_and_of_each_the_oldest(boss: Client) -> None:
    made = {
        state: [
            rows.operation(state=state, target_id=f"pay_{state}", created_at=rows.AT + timedelta(minutes=minute)).pk
            for minute in range(attention.ROWS + 1)
        ]
        for state in OperationState.values
    }
    html = shown(boss)
    found = sorted((pk for pks in made.values() for pk in pks if pk in html), key=html.index)
    assert found == [pk for state in OPEN for pk in made[state][: attention.ROWS]]
    assert f'href="{url("payment", "change", "pay_unknown")}"' in html
    for state in OPEN:
        assert f'href="{url("operation", "changelist")}?state={state}"' in html


def test_it_is_over_the_list_as_it_opens(boss: Client) -> None:
    rows.operation(state="unknown")
    assert shown(boss)
    for query in ("?state=done", "?q=op_1", "?o=-1"):
        assert not shown(boss, query)


def test_nothing_open_is_said(boss: Client) -> None:
    rows.operation(state="done")
    assert "Nothing is undecided" in shown(boss)


@pytest.mark.parametrize("count", [1, 20])
def test_its_queries_do_not_grow(boss: Client, count: int) -> None:
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
