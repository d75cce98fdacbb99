"""Reconciliation runs: their drift, and a pass on demand, within the request or in a worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import DataError, connection
from django.db.models import F
from django.test import Client
from django.utils import timezone

from payments_integration import reconciliation, services, tasks
from payments_integration.admin.flows import reconcile
from payments_integration.models import AccountState, Event, Payment, ReconciliationRun, RunState
from payments_integration.reconciliation.runs import claimed
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url

RUN = "/admin/payments_integration/reconciliationrun/run/"
EVENTS = {"account": "default", "kind": "events"}


def messages_of(response: Any) -> list[str]:
    return [str(message) for message in response.context["messages"]]


def test_drift_is_shown_field_by_field(boss: Client) -> None:
    drift = [
        {"object": "pay_1", "field": "status", "ours": "processing", "theirs": "succeeded"},
        {"object": "pay_1", "field": "amount_received", "ours": 0, "theirs": 1050},
        {"object": "pout_2", "field": "fee", "ours": None, "theirs": 7},
        {"object": "<b>odd</b>", "field": ["x"], "ours": {"a": 1}},
        "nonsense",
    ]
    row = rows.run(drifted=3, repaired=2, drift=drift)
    html = page(boss, url("reconciliationrun", "change", row.pk))
    table = html.split("<h2>Drift</h2>")[1].split("</table>")[0]
    assert f'<td><a href="{url("payment", "change", "pay_1")}">pay_1</a></td><td>status</td>' in table
    assert "<td>processing</td><td>succeeded</td>" in table
    assert "<td>0</td><td>1050</td>" in table
    assert f'href="{url("payout", "change", "pout_2")}"' in table
    assert "&lt;b&gt;odd&lt;/b&gt;" in table
    assert table.count("<tr>") == 6
    assert "<h2>Drift</h2>" not in page(boss, url("reconciliationrun", "change", rows.run().pk))


def test_drift_links_only_to_objects_that_open(staff: Callable[..., Client]) -> None:
    row = rows.run(drift=[{"object": "pay_1", "field": "status"}, {"object": "pout_2", "field": "fee"}])
    html = page(staff("view_reconciliationrun", "view_payout"), url("reconciliationrun", "change", row.pk))
    assert "<td>pay_1</td>" in html
    assert f'href="{url("payout", "change", "pout_2")}"' in html


@pytest.fixture
def client(transactional_db: None) -> Client:
    return browser(User.objects.create_superuser("boss"))


@pytest.mark.parametrize("atomic_requests", [False, True])
def test_a_pass_runs_within_the_request(
    client: Client, payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch, atomic_requests: bool
) -> None:
    services.create_payment(amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card")
    payments_sandbox.engine.clock.advance(5)
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic_requests)
    response = client.post(RUN, EVENTS, follow=True)
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", False)
    [message] = messages_of(response)
    run = ReconciliationRun.objects.get(kind="events")
    assert run.state == RunState.DONE
    assert f"Events (default): Done: {run.seen} seen, {run.recovered} recovered" in message
    assert Event.objects.count() == run.recovered > 0
    assert LogEntry.objects.get().object_id == str(run.pk)
    for kind in ("objects", "balances"):
        client.post(RUN, {"account": "default", "kind": kind})
        assert ReconciliationRun.objects.get(kind=kind).state == RunState.DONE


def test_a_pass_over_the_objects_compares_them_also_before_it_is_due(client: Client, payments_sandbox: Any) -> None:
    row = services.create_payment(amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card")
    assert reconciliation.reconcile_objects().drifted == 0
    Payment.objects.update(amount=1, state_at=F("state_at") - timedelta(minutes=1))
    assert reconciliation.reconcile_objects().seen == 0
    [message] = messages_of(client.post(RUN, {"account": "default", "kind": "objects"}, follow=True))
    assert "Done: 1 seen, 0 recovered, 1 differed, 1 repaired" in message
    assert Payment.objects.get(pk=row.pk).amount == 1000


def test_nothing_is_compared_twice_at_once(client: Client, payments_sandbox: Any) -> None:
    services.create_payment(amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card")
    ended = timezone.now() + timedelta(minutes=20)
    rows.account_state(account="default", sweep_claimed_until=ended, sweep_claim_token="another")
    client.post(RUN, {"account": "default", "kind": "objects"})
    assert ReconciliationRun.objects.get(kind="objects").seen == 0
    assert AccountState.objects.get().sweep_claimed_until == ended


def test_a_pass_beside_another_is_skipped_with_a_message(client: Client, payments_sandbox: Any) -> None:
    with claimed("default"):
        [message] = messages_of(client.post(RUN, EVENTS, follow=True))
    assert "Another pass of this account is running, so this one was skipped." in message
    assert ReconciliationRun.objects.get().state == RunState.SKIPPED


def test_a_failed_pass_shows_the_error(client: Client) -> None:
    [message] = messages_of(client.post(RUN, EVENTS, follow=True))  # nothing listens there
    assert "The pass failed:" in message
    assert ReconciliationRun.objects.get().state == RunState.FAILED


def test_a_long_pass_stops_in_time_and_the_next_one_continues(
    client: Client, payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(60):  # three events each: more than a page
        made = services.create_payment(amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card")
        payments_sandbox.engine.pay(made.pk)
    payments_sandbox.engine.clock.advance(5)
    AccountState.objects.filter(pk="default").update(watermark=payments_sandbox.engine.clock.now())
    monkeypatch.setattr(reconcile, "MAX_SECONDS", 0.0)
    [message] = messages_of(client.post(RUN, EVENTS, follow=True))
    assert "What was read is kept; the next pass continues from there." in message
    stopped = ReconciliationRun.objects.get()
    assert stopped.pages == 1
    assert Event.objects.count() == stopped.recovered == 100
    assert AccountState.objects.get().cursor
    monkeypatch.setattr(reconcile, "MAX_SECONDS", 60.0)
    client.post(RUN, EVENTS)
    gone_on = ReconciliationRun.objects.order_by("pk").last()
    assert gone_on is not None
    assert gone_on.state == RunState.DONE
    assert stopped.recovered + gone_on.recovered == Event.objects.count() == len(payments_sandbox.project.events)


def test_a_long_comparison_stops_in_time_and_another_can_follow(
    client: Client, payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.create_payment(amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card")
    monkeypatch.setattr(reconcile, "MAX_SECONDS", 0.0)
    client.post(RUN, {"account": "default", "kind": "objects"})
    monkeypatch.setattr(reconcile, "MAX_SECONDS", 60.0)
    client.post(RUN, {"account": "default", "kind": "objects"})
    runs = ReconciliationRun.objects.filter(kind="objects").order_by("pk").values_list("state", "pages")
    assert list(runs) == [(RunState.FAILED, 1), (RunState.DONE, 3)]


def test_every_pass_makes_progress_however_short_its_time(
    client: Client, payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "MAX_SECONDS", 0.0)
    now = payments_sandbox.engine.clock.now()
    AccountState.objects.create(account="default", watermark=now - timedelta(days=3))
    reached = []
    for _ in range(5):
        client.post(RUN, EVENTS)
        reached.append(AccountState.objects.get().watermark)
    assert reached == sorted(reached)
    assert len(set(reached)) >= 4
    assert ReconciliationRun.objects.order_by("-pk")[0].state == RunState.DONE


def test_a_full_resync_cannot_be_started_here(client: Client, payments_sandbox: Any) -> None:
    client.post(RUN, EVENTS)
    client.post(RUN, {"account": "default", "kind": "objects"})
    assert AccountState.objects.get().resync_due_at is not None
    assert not ReconciliationRun.objects.filter(kind="full").exists()
    reconciliation.reconcile_events("default")
    assert ReconciliationRun.objects.filter(kind="full").exists()


@pytest.fixture
def worker(settings: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """A broker that accepts tasks; returns them."""
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "PROCESSING": "celery"}
    asked: list[tuple[str, dict[str, Any]]] = []
    for name in ("reconcile_events", "reconcile_objects", "sync_balances"):
        task = getattr(tasks, name)
        monkeypatch.setattr(task, "apply_async", lambda name=name, **options: asked.append((name, options["kwargs"])))
    return asked


def test_with_celery_a_worker_runs_the_pass(client: Client, worker: list[tuple[str, dict[str, Any]]]) -> None:
    for kind, task, arguments in (
        ("events", "reconcile_events", {}),
        ("objects", "reconcile_objects", {"sweep": True}),
        ("balances", "sync_balances", {}),
    ):
        [message] = messages_of(client.post(RUN, {"account": "second", "kind": kind}, follow=True))
        assert worker.pop() == (task, {"account": "second", **arguments})
        assert "The pass was sent to a worker" in message
        assert LogEntry.objects.latest("pk").object_id == "second"
    assert not ReconciliationRun.objects.exists()


def test_a_running_pass_is_mentioned(client: Client, worker: list[tuple[str, dict[str, Any]]]) -> None:
    rows.account_state(account="default", claimed_until=timezone.now() + timedelta(seconds=10))
    assert "another pass of this account is still running" in messages_of(client.post(RUN, EVENTS, follow=True))[0]
    assert len(worker) == 1


@pytest.mark.case(69)
def test_a_dead_or_hanging_broker_is_reported_within_seconds(
    client: Client, worker: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**options: Any) -> None:
        raise OSError("refused")

    monkeypatch.setattr(tasks.reconcile_events, "apply_async", refuse)
    assert "The broker did not accept the task" in messages_of(client.post(RUN, EVENTS, follow=True))[0]
    release = threading.Event()
    monkeypatch.setattr(tasks.reconcile_events, "apply_async", lambda **options: release.wait(60))
    monkeypatch.setattr(reconcile, "_BROKER_SECONDS", 0.05)
    begun = time.monotonic()
    assert "The broker did not accept the task" in messages_of(client.post(RUN, EVENTS, follow=True))[0]
    assert time.monotonic() - begun < 30
    release.set()


def test_a_failed_pass_shows_only_the_class_of_its_error(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error's text may quote a row, which an erasure would not find."""

    def fail(*args: object, **options: object) -> None:
        raise DataError("payer ana@shop.example is too long")

    monkeypatch.setattr("payments_integration.reconciliation.accounts.sync_balances", fail)
    [message] = messages_of(client.post(RUN, {"account": "default", "kind": "balances"}, follow=True))
    assert "DataError" in message
    assert "ana@" not in message
    assert ReconciliationRun.objects.get().error == "DataError"


@pytest.mark.case(88)
def test_a_pass_needs_its_permission(staff: Callable[..., Client], worker: list[tuple[str, dict[str, Any]]]) -> None:
    viewer = staff("view_reconciliationrun")
    assert f'action="{RUN}"' not in page(viewer, url("reconciliationrun", "changelist"))
    for method in ("get", "post"):
        assert getattr(viewer, method)(RUN, EVENTS).status_code == 403
    assert worker == []
    runner = staff("view_reconciliationrun", "run_reconciliation")
    assert f'action="{RUN}"' in page(runner, url("reconciliationrun", "changelist"))
    assert runner.get(RUN).status_code == 302
    for odd in ({}, {"account": "unknown", "kind": "events"}, {"account": "default", "kind": "full"}):
        response = runner.post(RUN, odd, follow=True)
        assert "There is no such account or kind of pass." in response.content.decode()
    assert worker == []
    assert runner.post(RUN, EVENTS).status_code == 302
    assert len(worker) == 1
    assert staff("run_reconciliation").post(RUN, EVENTS)["Location"] == "/admin/"


@pytest.mark.case(88)
def test_start_itself_checks_the_permission(db: None) -> None:
    user = User.objects.create_user("ana", is_staff=True)
    with pytest.raises(PermissionDenied):
        reconcile.start("default", "events", user)
