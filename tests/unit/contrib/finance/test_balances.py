"""The history of balances: a row per change, in the transaction that writes the mirror."""

from __future__ import annotations

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext

from payments_integration import projection, schemas, signals
from payments_integration.contrib.finance import balances
from payments_integration.contrib.finance.models import BalanceChange
from tests import factories
from tests.factories import event
from tests.unit.contrib.finance.books import apply, at

pytestmark = pytest.mark.django_db


def read(seconds: float, **available: int) -> None:
    """Write the answer to a GET of balances."""
    resources = [
        schemas.parse_resource(factories.balance(currency=currency, available=amount), schemas.Balance)
        for currency, amount in available.items()
    ]
    with time_machine.travel(at(seconds), tick=False):
        before = projection.balance_snapshots("default")
        projection.write_balances("default", resources, answered_at=at(seconds), duration=0, before=before)


def history(account: str = "default", currency: str = "CLP") -> list[tuple[float, int]]:
    """When, in seconds, and how much was available."""
    rows = BalanceChange.objects.filter(account=account, currency=currency).order_by("at", "pk")
    return [((at_ - at(0)).total_seconds(), available) for at_, available in rows.values_list("at", "available")]


def test_an_answer_is_recorded_if_an_amount_changed() -> None:
    read(0, CLP=5, MXN=1)
    read(60, CLP=5, MXN=1)
    read(120, CLP=6, MXN=1)
    assert history() == [(0, 5), (120, 6)]
    assert history(currency="MXN") == [(0, 1)]


def test_a_batch_of_events_is_recorded_once() -> None:
    apply(event(factories.balance(), seconds=1), event(factories.balance(available=50), seconds=2))
    apply(event(factories.balance(available=60), seconds=3), event(factories.balance(available=60), seconds=4))
    apply(event(factories.balance(available=60), seconds=5))
    assert history() == [(2, 50), (4, 60)]


def test_a_change_takes_one_statement_and_no_change_none() -> None:
    def cost(seconds: int, **available: int) -> int:
        with CaptureQueriesContext(connection) as queries:
            read(seconds, **available)
        return sum("balancechange" in query["sql"] for query in queries)

    read(0, CLP=1, USD=1)
    assert cost(60, CLP=1, USD=1) == 0
    assert cost(120, CLP=2, USD=2) == 1


def test_a_change_is_not_dated_before_the_one_before_it() -> None:
    apply(event(factories.balance(available=5), seconds=10.5))
    read(10, CLP=5)  # a Date has whole seconds
    read(10, CLP=6)
    assert [available for _at, available in history()] == [5, 6]


def test_the_backfill_records_what_was_mirrored_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(signals, "_mirror_listeners", [])
        read(0, CLP=5, USD=7)
    assert history() == []
    read(60, CLP=6)
    assert balances.backfill() == 1
    assert balances.backfill() == 0
    assert history() == [(60, 6)]
    assert history(currency="USD") == [(0, 7)]


def test_the_backfill_closes_a_gap_that_a_process_without_the_app_left(monkeypatch: pytest.MonkeyPatch) -> None:
    read(0, CLP=5)
    with monkeypatch.context() as patch:
        patch.setattr(signals, "_mirror_listeners", [])
        read(60, CLP=9)
    assert balances.backfill() == 1
    assert balances.backfill() == 0
    assert history() == [(0, 5), (60, 9)]
