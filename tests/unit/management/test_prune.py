"""``payments_prune``: which rows are deleted, and which stay."""

from __future__ import annotations

import io
import threading
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, models
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration import conf, erasure, inbox, reconciliation, tasks
from payments_integration.models import (
    AccountState,
    Erasure,
    Event,
    EventState,
    Operation,
    OperationState,
    ReconciliationRun,
    StatusChange,
)
from payments_integration.reconciliation import retention
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.factories import rows
from tests.unit.management.test_forget import parcels

pytestmark = pytest.mark.django_db


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("payments_prune", *words, stdout=out)
    return out.getvalue()


def ago(days: float) -> datetime:
    return timezone.now() - timedelta(days=days)


def event(days: float, *, received: float | None = None, **fields: Any) -> Event:
    return rows.event(created_at=ago(days), received_at=ago(days if received is None else received), **fields)


def test_bodies_are_pruned_before_events() -> None:
    young, middle, old = event(89), event(91), event(401)
    assert run() == (
        "2 raw event bodies removed\n1 events deleted\n0 records of passes deleted\n"
        "0 rows erased that an erasure had to leave\n"
    )
    kept = {row.pk: row.body for row in Event.objects.all()}
    assert set(kept) == {young.pk, middle.pk}
    assert kept[young.pk] is not None
    assert kept[middle.pk] is None
    assert "0 raw event bodies removed\n0 events deleted" in run()
    assert not Event.objects.filter(pk=old.pk).exists()


@pytest.mark.parametrize(
    "state", [EventState.PENDING, EventState.HELD, EventState.APPLIED, EventState.PARKED, EventState.QUARANTINED]
)
def test_only_done_events_are_pruned(state: str) -> None:
    row = event(5000, state=state)
    content = bytes(row.body or b"")
    run()
    row.refresh_from_db()
    assert bytes(row.body or b"") == content


def test_an_event_that_the_provider_may_deliver_again_is_not_pruned(settings: Any) -> None:
    """Also with the shortest retention, a redelivery on day 30 finds its row."""
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "EVENT_DAYS": 37, "EVENT_BODY_DAYS": 37}
    body = factories.body(factories.life()[0])
    assert inbox.receive("default", body) is inbox.Receipt.NEW
    inbox.process()
    Event.objects.update(created_at=ago(36.9), received_at=ago(36.9))
    run()
    assert inbox.receive("default", body) is inbox.Receipt.KNOWN
    # It was received late, so the provider may still deliver it.
    Event.objects.update(created_at=ago(3000), received_at=ago(36.9))
    run()
    assert inbox.receive("default", body) is inbox.Receipt.KNOWN
    Event.objects.update(received_at=ago(37.1))
    run()
    assert not Event.objects.exists()


def test_a_shorter_retention_is_refused() -> None:
    for name in ("EVENT_DAYS", "EVENT_BODY_DAYS"):
        (problem,) = conf.problems({"ACCOUNTS": {}, name: 36})
        assert problem.id == "E007"


def test_records_of_passes_are_pruned_after_ninety_days() -> None:
    for days, state in ((91, "done"), (91, "running"), (91, "failed"), (89, "done"), (1, "running")):
        rows.run(started_at=ago(days), state=state)
    assert "3 records of passes deleted" in run()
    assert ReconciliationRun.objects.count() == 2


def test_history_and_operations_are_never_pruned() -> None:
    rows.change(at=ago(5000), event=event(5000))
    rows.balance()
    rows.operation(created_at=ago(5000))
    run()
    assert not Event.objects.exists()
    assert StatusChange.objects.count() == Operation.objects.count() == 1
    assert rows.BalanceChange.objects.count() == 2
    assert bytes(Operation.objects.get().body or b"")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("manager", ["objects", "visible"])
def test_an_event_to_which_a_row_of_the_site_refers_stays_and_the_others_go(manager: str) -> None:
    with parcels(event=models.ForeignKey(Event, models.CASCADE), base_manager_name=manager) as parcel:
        kept, _ = event(401), event(402)
        parcel.objects.create(event=kept)
        assert "1 events deleted" in run()
        assert [row.pk for row in Event.objects.all()] == [kept.pk]
        parcel.objects.all().delete()


def test_erasures_are_finished_although_pruning_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    event(401)
    finished: list[Any] = []
    real = erasure.finish
    monkeypatch.setattr(erasure, "finish", lambda *args, **options: finished.append(options) or real(*args, **options))
    monkeypatch.setattr(retention, "deleted", mock.Mock(side_effect=DatabaseError("refused")))
    with pytest.raises(DatabaseError):
        reconciliation.prune()
    assert finished == [{"thorough": True}]


def test_pruning_one_account_leaves_the_others() -> None:
    event(500)
    other = event(500, account="second")
    rows.run(account="second", started_at=ago(100))
    assert "1 events deleted\n0 records of passes deleted" in run("--account", "default")
    assert Event.objects.get() == other


def test_a_dry_run_only_counts() -> None:
    event(91)
    event(401)
    rows.run(started_at=ago(100))
    assert run("--dry-run") == (
        "Nothing was removed. This would be removed:\n"
        "2 raw event bodies removed\n1 events deleted\n1 records of passes deleted\n"
    )
    assert Event.objects.filter(body__isnull=False).count() == 2
    assert ReconciliationRun.objects.count() == 1


def test_an_unknown_account_is_refused() -> None:
    with pytest.raises(CommandError, match="no account"):
        run("--account", "missing")


def many(number: int, days: float) -> None:
    at = ago(days)
    connection.ensure_connection()  # Django 6.0.0 forgets to on SQLite
    Event.objects.bulk_create(
        Event(
            id=f"evt_{days}_{index:05d}",
            account="default",
            type="payment.created",
            created_at=at + timedelta(seconds=index // 3),  # several events have the same time
            received_at=at,
            object_kind="payment",
            object_id="pay_1",
            source="webhook",
            body=b"{}",
            content_hash="0",
            state=EventState.DONE,
        )
        for index in range(number)
    )


def test_pruning_in_batches_reads_each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 10)
    many(95, 100)
    with CaptureQueriesContext(connection) as queries:
        assert "95 raw event bodies removed" in run()
    assert Event.objects.filter(body=None).count() == 95
    updates = [query["sql"] for query in queries if query["sql"].startswith("UPDATE")]
    assert len(updates) == 10
    selects = [query["sql"] for query in queries if "ORDER BY" in query["sql"] and "body" in query["sql"]]
    assert len(selects) == 11
    # Each page starts where the last one ended.
    assert all(">=" in query for query in selects[1:])


def test_pruning_can_be_interrupted_and_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 10)
    many(35, 500)
    real, calls = retention.deleted, []

    def dying(found: Any) -> int:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(found)

    monkeypatch.setattr(retention, "deleted", dying)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert Event.objects.count() == 15
    monkeypatch.setattr(retention, "deleted", real)
    assert "15 events deleted" in run()
    assert not Event.objects.exists()


def test_an_event_that_is_replayed_meanwhile_is_not_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event is replayed after it was selected and before it is deleted."""
    many(3, 500)
    real = retention.deleted

    def late(found: Any) -> int:
        Event.objects.filter(pk__endswith="00001").update(state=EventState.APPLIED)
        return real(found)

    monkeypatch.setattr(retention, "deleted", late)
    run()
    assert Event.objects.get().state == EventState.APPLIED


@pytest.mark.django_db(transaction=True)
def test_two_processes_can_prune_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 20)
    many(300, 500)
    many(300, 100)
    together, counts, errors = threading.Barrier(2), [], []

    def work() -> None:
        try:
            together.wait(10)
            counts.append(reconciliation.prune())
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert sum(count["events"] for count in counts) == 300
    assert Event.objects.count() == Event.objects.filter(body=None).count() == 300


def test_the_prune_task_prunes() -> None:
    event(401)
    tasks.prune()
    assert not Event.objects.exists()


def removed_accounts_wait() -> list[bool]:
    """Whether data past its retention, and an erasure, of an account that the setting lacks are still there."""
    return [Event.objects.filter(account="old").exists(), Erasure.objects.filter(account="old", done_at=None).exists()]


def removed_account() -> None:
    event(500, account="old")
    operation = rows.operation(
        account="old", state=OperationState.NEEDS_PERSON, arguments={"payer": {"email": "a@b.cl"}}
    )
    erasure.erase(erasure.select(erasure.Selection.of(emails=("a@b.cl",))), actor="me")
    Operation.objects.filter(pk=operation.pk).update(state=OperationState.CLOSED)
    assert removed_accounts_wait() == [True, True]


def test_the_task_of_the_first_account_prunes_removed_accounts() -> None:
    removed_account()
    tasks.prune("second")
    assert removed_accounts_wait() == [True, True]
    tasks.prune("default")
    assert removed_accounts_wait() == [False, False]


def test_payments_process_prunes_removed_accounts_once_a_day(payments_sandbox: ProviderSandbox) -> None:
    with time_machine.travel(timezone.now()) as clock:
        call_command("payments_process", account="default", verbosity=0)
        for _day in range(2):
            removed_account()
            for hours, waits in ((20, True), (5, False)):
                clock.shift(timedelta(hours=hours))
                call_command("payments_process", account="default", verbosity=0)
                assert removed_accounts_wait() == [waits, waits]


def test_payments_process_prunes_after_the_daily_sweep(
    payments_sandbox: ProviderSandbox, settings: Any, woken: list[str]
) -> None:
    only = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {"default": only}}
    call_command("payments_process", "--all")
    event(401)
    call_command("payments_process", "--all")
    assert Event.objects.filter(object_id="pay_absent").exists()
    AccountState.objects.update(swept_at=ago(1.1))
    call_command("payments_process", "--all")
    assert not Event.objects.filter(object_id="pay_absent").exists()
