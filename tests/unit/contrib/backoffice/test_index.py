"""The search terms of a row follow it in the same transaction, whatever writes it and in whatever order."""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from payments_integration import erasure, inbox, projection
from payments_integration.contrib.backoffice import index
from payments_integration.contrib.backoffice.models import SearchTerm
from payments_integration.contrib.backoffice.terms import terms_of
from payments_integration.erasure import Selection
from payments_integration.models import MIRRORS, DepositReference, Payment, Payout, Refund
from tests import factories
from tests.factories import body, event
from tests.unit.projection.test_answers import payment, write

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("woken"),
    pytest.mark.promise(3),
    pytest.mark.any_database,
]

NAMES = ("Ana Rojas", "José Núñez", "ana@example.com", "Ana Ana", "")


def stored() -> dict[tuple[str, str], list[tuple[str, bool]]]:
    found: dict[tuple[str, str], list[tuple[str, bool]]] = {}
    for term in SearchTerm.objects.order_by("term"):
        found.setdefault((term.object_kind, term.object_id), []).append((term.term, term.is_personal))
    return found


def expected() -> dict[tuple[str, str], list[tuple[str, bool]]]:
    """The terms of every row as it is in the database now."""
    rows = [row for model in MIRRORS.values() for row in model._default_manager.all()]
    return {(str(row.kind), row.object_id): sorted(terms_of(row).items()) for row in rows if terms_of(row)}


def arrive(*events: dict[str, Any]) -> None:
    inbox.receive_many("default", map(body, events), source="webhook")
    inbox.process()


def made(rng: random.Random, kind: str) -> dict[str, Any]:
    """Some state of one of a few objects."""
    person, number = rng.choice(NAMES), rng.randint(0, 2)
    reference = rng.choice([None, "order-1", "Order 2", "ana"])
    amounts = {"amount": rng.choice([1000, 1001])}
    if kind == "payment":
        action = rng.choice([None, {"type": "qr", "qr_payload": person}, {"type": "x", "a": [{"reference": person}]}])
        payer = rng.choice([None, {"name": person, "email": "ana@example.com"}])
        received = rng.choice([0, 1000])
        return factories.payment(
            id=f"pay_{number}", merchant_reference=reference, next_action=action, payer=payer,
            amount_received=received, status=rng.choice(["created", "succeeded"]), **amounts,
        )  # fmt: skip
    if kind == "payout":
        to = {"type": "bank_account", "holder_name": person, "account_number": "000-1"}
        return factories.payout(id=f"pout_{number}", merchant_reference=reference, destination=to, **amounts)
    if kind == "deposit_reference":
        details = {"type": "bank_transfer_details", "reference": person}
        return factories.deposit_reference(id=f"dep_{number}", merchant_reference=reference, details=details)
    return factories.refund(id=f"ref_{number}", payment_id=f"pay_{number}", **amounts)


@pytest.mark.parametrize("seed", range(25))
def test_after_any_order_of_arrival_the_terms_are_those_of_the_rows(seed: int) -> None:
    rng = random.Random(seed)
    for step in range(12):
        kind = rng.choice(["payment", "payment", "payout", "refund", "deposit_reference"])
        door = rng.random()
        if door < 0.5:
            arrive(
                *(
                    event(made(rng, kind), seconds=rng.randint(0, 30), id=f"evt_{seed}_{step}_{number}")
                    for number in range(rng.randint(1, 6))
                )
            )
        elif door < 0.8:
            write(payment(**made(rng, "payment")), seconds=rng.randint(0, 30))
        elif door < 0.9:
            projection.record_identity("default", payment(**made(rng, "payment")))
        else:
            known = list(Payment.objects.values_list("pk", flat=True)[:1])
            if known:
                erasure.erase(erasure.select(Selection.of(ids=tuple(known))), actor="test")
        assert stored() == expected()
        for model in (Payment, Payout, Refund, DepositReference):
            erased = model._default_manager.exclude(erased_at=None).values_list("pk", flat=True)
            assert not SearchTerm.objects.filter(object_id__in=list(erased), is_personal=True).exists()


def test_what_comes_after_an_erasure_has_no_personal_term() -> None:
    arrive(event(factories.payment(payer={"name": "Ana"}, merchant_reference="order-1")))
    erasure.erase(erasure.select(Selection.of(ids=("pay_1",))), actor="test")
    assert ("ana", True) not in stored()["payment", "pay_1"]
    arrive(
        event(factories.payment(status="succeeded", payer={"name": "Ana"}, merchant_reference="order-2"), seconds=9)
    )
    assert [term for term, _ in stored()["payment", "pay_1"]] == ["$10000 clp", "2", "order-2"]


def statements(call: Any) -> list[str]:
    """The statements about search terms. SQLite splits long INSERTs; the parts count as one."""
    with CaptureQueriesContext(connection) as queries:
        call()
    kinds = [query["sql"].split()[0] for query in queries if "searchterm" in query["sql"]]
    return list(dict.fromkeys(kinds))


def batch(first: str, *, seconds: float, **fields: Any) -> None:
    items = [
        event(factories.payment(id=f"pay_{n}", payer={"name": f"{first} {n}"}, **fields), seconds=seconds)
        for n in range(200)
    ]
    inbox.receive_many("default", map(body, items), source="reconciliation")


def test_a_batch_writes_its_terms_in_sets() -> None:
    batch("Ana", seconds=0)
    assert statements(inbox.process) == ["SELECT", "INSERT"]
    # A payment that succeeds has the same terms.
    batch("Ana", seconds=10, status="succeeded", amount_received=10_000)
    assert statements(inbox.process) == ["SELECT"]
    batch("José", seconds=20, status="succeeded", amount_received=10_000)
    assert statements(inbox.process) == ["SELECT", "DELETE", "INSERT"]
    assert stored() == expected()


def test_terms_that_do_not_change_are_not_written() -> None:
    write(payment(payer={"name": "Ana", "email": "a@b.c"}))
    before = sorted(SearchTerm.objects.values_list("pk", flat=True))
    # Another spelling of the name has the same terms.
    assert statements(lambda: write(payment(payer={"name": "ÁNA", "email": "a@b.c"}), seconds=60)) == ["SELECT"]
    # A term more leaves the others as they are.
    assert statements(lambda: write(payment(payer={"name": "Ana R", "email": "a@b.c"}), seconds=90)) == [
        "SELECT",
        "INSERT",
    ]
    SearchTerm.objects.get(term="r").delete()
    assert sorted(SearchTerm.objects.values_list("pk", flat=True)) == before


def test_terms_are_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("payments_integration.contrib.backoffice.index._PAGE", 2)
    batch("Ana", seconds=0)
    inbox.process()
    SearchTerm.objects.filter(object_id__in=["pay_1", "pay_2"]).delete()
    twice = SearchTerm.objects.filter(object_id="pay_3").values("object_kind", "object_id", "term", "is_personal")
    SearchTerm.objects.bulk_create(SearchTerm(**values) for values in list(twice))
    SearchTerm.objects.filter(object_id="pay_7").update(term="something else")
    assert stored() != expected()
    assert index.rebuild("default") == 200
    assert stored() == expected()
    assert index.rebuild("second") == 0
