"""A term is looked up as an id, a reference, an e-mail address and a document number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from payments_integration.admin.lists import filters
from payments_integration.models import Payment
from tests.factories import rows
from tests.unit.admin.conftest import page, url


def found(client: Client, model: str, term: str, **query: str) -> set[Any]:
    response = client.get(url(model, "changelist"), {"q": term, **query})
    assert response.status_code == 200
    return {row.pk for row in response.context["cl"].result_list}


def paid_by(**payer: Any) -> Payment:
    return rows.payment(payer=payer, **Payment.derived({"payer": payer}))


def test_a_payer_is_found_by_email_and_document(boss: Client) -> None:
    ana = paid_by(email="Ana.Torres@Example.com", document={"type": "RUT", "number": "12.345.678-k"}).pk
    paid_by(email="other@example.com", document={"type": "RUT", "number": "1-9"})
    for term in ("ana.torres@example.com", " ANA.TORRES@EXAMPLE.COM ", "12.345.678-K", "12345678k"):
        assert found(boss, "payment", term) == {ana}, term
    for term in ("torres", "ana.torres", "12345678", "@", "."):
        assert found(boss, "payment", term) == set(), term


def test_searching_payers_needs_the_permission_to_see_personal_data(staff: Callable[..., Client]) -> None:
    ana = paid_by(email="ana@example.com", document={"type": "RUT", "number": "12345678K"}).pk
    someone = staff("view_payment")
    for term in ("ana@example.com", "12345678K"):
        assert found(someone, "payment", term) == set()
        assert found(staff("view_payment", "view_personal_data"), "payment", term) == {ana}


def test_an_empty_payer_field_matches_no_search(boss: Client) -> None:
    rows.payment()
    for term in ("@", "-", "...", "%"):
        assert found(boss, "payment", term) == set()


def test_the_beginning_of_an_id_is_taken_literally(boss: Client) -> None:
    one = rows.payment(id="pay_1a").pk
    rows.payment(id="payX1a")
    assert found(boss, "payment", "pay_1") == {one}
    assert found(boss, "payment", "PAY_1") == set()
    assert found(boss, "payment", "pay%") == set()


def test_search_and_filters_combine(boss: Client) -> None:
    good = rows.payment(merchant_reference="same", status="succeeded").pk
    rows.payment(merchant_reference="same", status="failed")
    assert found(boss, "payment", "same", status="succeeded") == {good}


@pytest.mark.parametrize("kind", ["payment", "balance", "webhook_endpoint", ""])
@pytest.mark.parametrize("account", ["default", "second", "closed-long-ago"])
def test_history_is_found_by_its_object(boss: Client, kind: str, account: str) -> None:
    rows.account_state(account="closed-long-ago")
    made = {
        "event": rows.event(object_kind=kind, object_id="x_1", account=account).pk,
        "statuschange": rows.change(object_kind=kind, object_id="x_1", account=account).pk,
    }
    for model, pk in made.items():
        assert found(boss, model, "x_1") == {pk}
        assert found(boss, model, "x_") == set()


def test_a_cut_search_shows_a_warning(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MAX_IDS", 3)
    made = [rows.payment(id=f"pay_{number}", merchant_reference="same").pk for number in range(5)]
    assert found(boss, "payment", "pay_") == set(made[:3])
    assert found(boss, "payment", "same") == set(made)
    assert "not all are shown" in page(boss, url("payment", "changelist") + "?q=pay_")
    for query in ("pay_1", "same"):
        assert "not all are shown" not in page(boss, url("payment", "changelist") + f"?q={query}")


def test_odd_terms_are_no_error(boss: Client) -> None:
    rows.payment()
    for term in ("\x00", "'", '"', "\\", "%", "_", "a" * 5000, "\U0010ffff", "🦙", "\u202e", "  "):
        for model in ("payment", "event", "statuschange", "operation"):
            assert boss.get(url(model, "changelist"), {"q": term}).status_code == 200


@pytest.mark.parametrize("model", ["payment", "payout", "refund", "event", "statuschange", "operation"])
def test_a_search_looks_ids_up_before_it_sorts(boss: Client, model: str) -> None:
    rows.MAKERS[model]()
    found(boss, model, "warm up")
    with CaptureQueriesContext(connection) as queries:
        found(boss, model, "pay_1")
    lookups = [query["sql"] for query in queries if "LIMIT 501" in query["sql"]]
    assert 1 <= len(lookups) <= 2
    assert not [sql for sql in lookups if "created_at" in sql.split("ORDER BY")[-1] and "ORDER BY" in sql]
    assert len(queries) <= 8


def test_a_cut_search_is_not_exported(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MAX_IDS", 3)
    for number in range(5):
        rows.payment(id=f"pay_{number}", merchant_reference="same")
    response = boss.get(url("payment", "export") + "?q=pay_&status=succeeded", follow=True)
    assert response.redirect_chain == [(url("payment", "changelist") + "?q=pay_&status=succeeded", 302)]
    assert "not all are shown" in response.content.decode()
    exported: Any = boss.get(url("payment", "export") + "?q=same")
    assert b"".join(exported.streaming_content).count(b"pay_") == 5
