"""Races that are lost when a request has no time left: the schedule does the rest, and nothing is wrong."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from django.db import IntegrityError

from payments_integration import inbox, reconciliation
from payments_integration.db import statements, transactions
from payments_integration.inbox import claiming
from payments_integration.models import Event, ObjectDispatch, Payment
from tests import factories
from tests.conftest import Receiver

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("woken")]


def test_an_object_whose_row_another_worker_inserts_meanwhile_is_dispatched(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = claiming.rows_of

    def read_before_the_other(keys: Any, using: str) -> Any:
        found = real(keys, using)
        [(account, kind, object_id)] = keys
        ObjectDispatch.objects.create(account=account, object_kind=kind, object_id=object_id)
        monkeypatch.setattr(claiming, "rows_of", real)
        return found

    monkeypatch.setattr(claiming, "rows_of", read_before_the_other)
    event = factories.life()[0]
    inbox.receive("default", factories.body(event))
    inbox.process()
    inbox.dispatch()
    assert receiver.events == [(event["id"], False)]


@pytest.mark.parametrize("model", [ObjectDispatch, Payment])
def test_a_race_that_is_lost_after_the_deadline_is_no_error(
    model: type[Any], receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.receive("default", factories.body(factories.life()[0]))
    real, deadline = statements.insert_many, time.monotonic() + 60

    def insert_many(rows: Any, **options: Any) -> None:
        if rows and isinstance(rows[0], model):
            clock = time.monotonic
            monkeypatch.setattr(time, "monotonic", lambda: clock() + 120)
            raise IntegrityError("UNIQUE constraint failed")
        real(rows, **options)

    with monkeypatch.context() as patch, caplog.at_level(logging.INFO, logger="payments_integration"):
        patch.setattr(statements, "insert_many", insert_many)
        reconciliation.process_due("default", deadline=deadline)
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [("INFO", None)]
    assert "RaceLost" in caplog.text
    monkeypatch.undo()
    assert not Event.objects.filter(state="quarantined").exists()
    reconciliation.process_due("default")
    assert receiver.dispatched == [factories.life()[0]["id"]]


def test_a_race_that_is_lost_in_time_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    def lose() -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise IntegrityError("UNIQUE constraint failed")

    transactions.repeatable(lose, using="default")
    assert len(attempts) == 3
